"""Spark's tuning fits our estimators on threads of its own; what it abandons is stopped."""

from __future__ import annotations

import time

import pytest

from tests.ml import functions
from tests.ml.test_estimator import press_stop_when
from tests.support.quick import QUICK_ENV
from tfos_lab.errors import NodeFailed
from tfos_lab.ml import TFEstimator


def tuned(kind, estimator, grid, **options):
    from pyspark.ml import tuning
    from pyspark.ml.evaluation import RegressionEvaluator

    return getattr(tuning, kind)(
        estimator=estimator, estimatorParamMaps=grid, evaluator=RegressionEvaluator(), parallelism=2, **options
    )


def wait_for(condition, timeout_s=30):
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


@pytest.mark.tensorflow
@pytest.mark.parametrize("kind", ["CrossValidator", "TrainValidationSplit"])
def test_validators_choose_the_best_model(rows, models, tmp_path, no_clusters, kind):
    from pyspark.ml import Pipeline

    estimator = TFEstimator(functions.keep_model, env=QUICK_ENV, show=False, exportDir=str(tmp_path / "models"))
    grid = [{estimator.args: {"model": path}} for path in (models.one, models.three)]
    options = {"numFolds": 2, "seed": 1} if kind == "CrossValidator" else {}
    fitted = tuned(kind, Pipeline(stages=[estimator]), grid, **options).fit(rows.union(rows))
    metrics = fitted.avgMetrics if kind == "CrossValidator" else fitted.validationMetrics
    assert metrics[1] == pytest.approx(0, abs=1e-6)
    assert metrics[0] > 1
    best = fitted.bestModel.stages[0]
    assert best.getModelPath() == str(tmp_path / "models" / "model.keras")
    fitted.save(str(tmp_path / "saved"))
    loaded = type(fitted).load(str(tmp_path / "saved"))
    assert loaded.bestModel.stages[0].uid == best.uid
    assert no_clusters()


def test_a_fit_that_fails_ends_the_others(rows, tmp_path, no_clusters):
    estimator = TFEstimator(functions.hang, env=QUICK_ENV)
    grid = [{estimator.args: {"folder": str(tmp_path), "fails": fails}} for fails in (False, True)]
    with pytest.raises(NodeFailed, match="no such weights"):
        tuned("CrossValidator", estimator, grid, numFolds=2).fit(rows)
    assert wait_for(no_clusters)


@pytest.mark.tensorflow
@pytest.mark.parametrize("spark_mode", ["standalone"])
def test_fits_wait_for_one_another_where_slots_are_few(rows, models, no_clusters):
    estimator = TFEstimator(functions.keep_model, env=QUICK_ENV, show=False, clusterSize=3)
    grid = [{estimator.args: {"model": path}} for path in (models.one, models.three)]
    fitted = tuned("TrainValidationSplit", estimator, grid, seed=1).fit(rows.union(rows))
    assert fitted.validationMetrics[1] == pytest.approx(0, abs=1e-6)
    assert no_clusters()


def test_an_interrupt_ends_all_fits(rows, tmp_path, no_clusters):
    estimator = TFEstimator(functions.hang, {"folder": str(tmp_path)}, env=QUICK_ENV)
    grid = [{estimator.batchSize: size} for size in (8, 16)]
    pressing = press_stop_when(lambda: len(list(tmp_path.glob("runs-*"))) == 2)
    with pytest.raises(KeyboardInterrupt):
        tuned("TrainValidationSplit", estimator, grid).fit(rows)
    pressing.join()
    assert wait_for(no_clusters)
