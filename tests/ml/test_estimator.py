"""`TFEstimator.fit`: what it feeds and returns, what is left when it fails or is interrupted, and Spark's tuning."""

import shutil
import signal
import threading

import pytest

from tests.ml import functions
from tests.support.eventually import eventually
from tests.support.quick import QUICK_ENV
from tfos_lab.errors import ClusterInterrupted, ConfigError, NodeFailed, NoModel
from tfos_lab.ml import TFEstimator


@pytest.fixture
def estimator(models):
    """Trains without TensorFlow: it keeps the model ``args["model"]``."""
    return TFEstimator(functions.keep_model, {"model": models.three}, env=QUICK_ENV, featuresCol="features")


def press_stop_when(condition):
    """Interrupt the main thread, as ■ does, once a condition holds."""

    def press():
        try:
            eventually(condition)
        finally:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=press, daemon=True)
    thread.start()
    return thread


def test_a_function_gets_its_arguments_and_the_params_and_the_model_what_it_saved(estimator, rows, capsys, no_clusters):
    model = estimator.setBatchSize(7).setEpochs(2).fit(rows)
    assert model.history == {"rows": [12], "width": [2], "batch": [7, 7, 7]}
    assert (model.uid, model.getFeaturesCol(), model.getBatchSize()) == (estimator.uid, "features", 1024)
    assert model.getModelPath() == str(model.run_dir / "output" / "model.keras")
    assert list(model.metrics.columns) == ["time", "node", "step"]
    assert model.results["chief:0"] == model.history
    assert "[TFEstimator] done, 1/1 nodes done" in capsys.readouterr().out
    assert no_clusters()


def test_nothing_is_shown_on_request_and_all_columns_are_fed_to_a_function_without_inputs(models, rows, capsys):
    estimator = TFEstimator(functions.keep_model, {"model": models.three}, env=QUICK_ENV, show=False, clusterSize=2)
    assert estimator.fit(rows, {estimator.batchSize: 3}).history == {"rows": [3], "width": [3], "batch": [3, 3, 3]}
    assert capsys.readouterr().out == ""
    assert estimator.getBatchSize() == 32


def test_a_function_can_run_in_this_very_process(estimator, rows):
    model = estimator.setParams(local="inline", env={}, show=False).fit(rows)
    assert model.history["rows"] == [6]


def test_one_model_is_fitted_for_each_map_of_params_in_folders_of_their_own(estimator, rows, models, tmp_path):
    estimator.setParams(show=False, exportDir=str(tmp_path / "exported"))
    maps = [{estimator.batchSize: 3}, {estimator.batchSize: 4, estimator.args: {"model": models.one}}]
    fitted = estimator.fit(rows, maps)
    assert [model.history["batch"][0] for model in fitted] == [3, 4]
    assert len({model.getModelPath() for model in fitted}) == 2
    assert all(model.getModelPath().startswith(str(tmp_path / "exported")) for model in fitted)
    assert estimator.fit(rows).getModelPath() == str(tmp_path / "exported" / "model.keras")


def test_a_function_may_export_the_model_itself_and_of_two_that_it_saves_the_newer_counts(rows, models, tmp_path):
    kept = TFEstimator(functions.keep_two_models, {"model": models.three}, env=QUICK_ENV, show=False).fit(rows)
    assert kept.getModelPath() == str(kept.run_dir / "output" / "model.keras")
    folder = tmp_path / "exported"
    estimator = TFEstimator(functions.export_model, {"model": models.exported}, env=QUICK_ENV, exportDir=folder)
    assert estimator.fit(rows).getModelPath() == str(folder)


def test_a_training_without_a_model_says_how_to_save_one_and_takes_no_older_one(rows, models, tmp_path):
    (tmp_path / "nothing").mkdir()
    shutil.copy(models.one, tmp_path / "nothing" / "model.keras")
    estimator = TFEstimator(functions.keep_nothing, env=QUICK_ENV, exportDir=tmp_path / "nothing")
    with pytest.raises(NoModel, match=r"train_fn has saved no model, nor exported one .* call ctx.save_model\(model\)"):
        estimator.fit(rows)


def test_a_failure_comes_with_the_remote_traceback_and_leaves_no_cluster(rows, no_clusters):
    with pytest.raises(NodeFailed, match=r"(?s)ValueError: no such weights.*raise ValueError"):
        TFEstimator(functions.fail, env=QUICK_ENV).fit(rows)
    assert no_clusters()


def test_an_interrupt_stops_the_cluster(rows, tmp_path, no_clusters):
    pressing = press_stop_when(lambda: list(tmp_path.glob("runs-*")))
    with pytest.raises(ClusterInterrupted, match="the nodes of 'TFEstimator' are stopped"):
        TFEstimator(functions.hang, {"folder": str(tmp_path)}, env=QUICK_ENV).fit(rows)
    pressing.join()
    assert no_clusters()


@pytest.mark.parametrize(
    ("given", "params", "message"),
    [
        ({}, {}, r"^there is nothing to train: give TFEstimator a train_fn\(args, ctx\), or model=$"),
        ({"model": 3}, {}, "^model=int: a compiled Keras model is needed, or a function that makes one$"),
        ({"model": lambda: None}, {"numPS": 1, "clusterSize": 2}, "^numPS=1: model= is trained by Keras' fit"),
        ({"model": lambda: None}, {"evaluator": True, "clusterSize": 2}, "^evaluator=True: model= has nothing to"),
        (
            {"model": functions.fail},
            {},
            "^model=<function fail .*: missing a required argument: 'ctx'; a function of no",
        ),
        ({"train_fn": functions.fail}, {"numPS": 1}, "^numPS=1: leaves no node to train .* clusterSize=2 or more$"),
        ({"train_fn": functions.fail}, {"labelCol": "y"}, "^labelCol: there is no column 'y'; the data has features, "),
        ({"model": lambda: None}, {"labelCol": ["label", "y"]}, "^labelCol: there is no column 'y'; the data has "),
        ({"train_fn": functions.fail}, {"labelCol": {"out": "y"}}, "^labelCol: there is no column 'y'; the data has "),
    ],
)
def test_what_cannot_work_starts_no_cluster(rows, given, params, message, no_clusters):
    with pytest.raises(ConfigError, match=message):
        TFEstimator(**given, **params).fit(rows)
    assert no_clusters()


def test_rows_that_never_end_or_are_no_dataframe_are_refused(spark):
    estimator = TFEstimator(functions.fail)
    with pytest.raises(ConfigError, match=r"^fit\(a streaming DataFrame\): a model is fitted to rows that end"):
        estimator.fit(spark.readStream.format("rate").load())
    with pytest.raises(ConfigError, match=r"^fit\(list\): a Spark DataFrame is needed"):
        estimator.fit([1])


# ---- Spark's tuning, which fits on threads of its own --------------------------------------------------------------


def tuned(kind, estimator, grid, evaluator=None, **options):
    from pyspark.ml import tuning
    from pyspark.ml.evaluation import RegressionEvaluator

    options |= {"evaluator": evaluator or RegressionEvaluator(), "parallelism": 2}
    return getattr(tuning, kind)(estimator=estimator, estimatorParamMaps=grid, **options)


@pytest.mark.tensorflow
def test_validators_choose_the_best_model(rows, models, tmp_path, no_clusters):
    from pyspark.ml import Pipeline

    estimator = TFEstimator(functions.keep_model, env=QUICK_ENV, show=False, exportDir=str(tmp_path / "models"))
    grid = [{estimator.args: {"model": path}} for path in (models.one, models.three)]
    validator = tuned("CrossValidator", Pipeline(stages=[estimator]), grid, numFolds=2, seed=1)
    fitted = validator.fit(rows.union(rows))
    assert fitted.avgMetrics[1] == pytest.approx(0, abs=1e-6)
    assert fitted.avgMetrics[0] > 1
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
    assert eventually(no_clusters)


@pytest.mark.parametrize("spark_mode", ["standalone"])
def test_fits_wait_for_one_another_where_slots_are_few(rows, models, no_clusters):
    from pyspark.ml.evaluation import Evaluator

    class WithoutScoring(Evaluator):
        def _evaluate(self, dataset):
            return float("prediction" in dataset.columns)

    estimator = TFEstimator(functions.keep_model, env=QUICK_ENV, show=False, clusterSize=3)
    grid = [{estimator.args: {"model": path}} for path in (models.one, models.three)]
    fitted = tuned("TrainValidationSplit", estimator, grid, WithoutScoring(), seed=1).fit(rows.union(rows))
    assert fitted.validationMetrics == [1.0, 1.0]
    assert no_clusters()


def test_an_interrupt_ends_all_fits(rows, tmp_path, no_clusters):
    estimator = TFEstimator(functions.hang, {"folder": str(tmp_path)}, env=QUICK_ENV)
    grid = [{estimator.batchSize: size} for size in (8, 16)]
    pressing = press_stop_when(lambda: len(list(tmp_path.glob("runs-*"))) == 2)
    with pytest.raises(KeyboardInterrupt):
        tuned("TrainValidationSplit", estimator, grid).fit(rows)
    pressing.join()
    assert eventually(no_clusters)


# ---- Keras models ---------------------------------------------------------------------------------------------------


def build(args):
    """Make a model that starts with the same weights everywhere."""
    import keras

    inputs = keras.Input((2,), name="x")
    model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(inputs))
    model.compile(keras.optimizers.SGD(args.get("lr", 0.05)), "mse")
    return model


@pytest.mark.tensorflow
def test_several_workers_train_a_model_as_one_process_does(rows):
    params = {"epochs": 4, "show": False, "weightCol": "number", "args": {"lr": 0.01}}
    one = TFEstimator(model=build, batchSize=8, **params).fit(rows)
    two = TFEstimator(model=build, batchSize=4, clusterSize=2, **params).fit(rows)
    assert len(one.history["loss"]) == 4
    assert one.history["loss"][-1] < one.history["loss"][0]
    assert two.history["loss"] == pytest.approx(one.history["loss"], rel=1e-5)


@pytest.mark.tensorflow
def test_a_pipeline_trains_on_a_cluster_and_scores_and_is_saved(spark, tmp_path):
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.evaluation import RegressionEvaluator
    from pyspark.ml.feature import VectorAssembler

    values = [(i % 7 / 7, i % 5 / 5, 2 * (i % 7) / 7 - i % 5 / 5) for i in range(60)]
    df = spark.createDataFrame(values, ["a", "b", "label"]).repartition(2)
    assembler = VectorAssembler(inputCols=["a", "b"], outputCol="features")
    estimator = TFEstimator(model=build, args={"lr": 0.5}, epochs=15, clusterSize=2, batchSize=15, shuffle=True, seed=1)
    fitted = Pipeline(stages=[assembler, estimator]).fit(df)
    fitted.write().overwrite().save(str(tmp_path / "fitted"))
    loaded = PipelineModel.load(str(tmp_path / "fitted"))
    assert RegressionEvaluator().evaluate(loaded.transform(df)) < 0.3
    assert loaded.stages[1].history == fitted.stages[1].history


def build_two(args):
    """Make a model of two inputs whose answer is ``a + 10 b``, and which learns nothing."""
    import keras

    a, b = (keras.Input((1,), name=name) for name in "ab")
    answer = keras.layers.Dense(1, kernel_initializer="ones", use_bias=False)(a + 10.0 * b)
    model = keras.Model([a, b], answer)
    model.compile(keras.optimizers.SGD(0.0), "mse")
    return model


@pytest.mark.tensorflow
def test_columns_are_inputs_by_mapping_by_name_or_by_order_and_what_does_not_fit_is_refused(spark):
    values = [(float(i), 2.0 * i, i + 20.0 * i, f"{i}") for i in range(4)]
    df = spark.createDataFrame(values, ["x", "y", "label", "word"])

    def fit(df, **params):
        return TFEstimator(**{"model": build_two, "show": False, **params}).fit(df)

    for frame, params in (
        (df, {"inputCols": ["x", "y"]}),
        (df.withColumnsRenamed({"x": "a", "y": "b"}), {"inputCols": ["b", "a"]}),
        (df, {"inputMapping": {"y": "b", "x": "a"}}),
    ):
        assert fit(frame, **params).history["loss"] == [0.0]
    for params, message in (
        ({"inputMapping": {"x": "c", "y": "a"}}, "inputMapping: the model has no input 'c'; the model has a, b"),
        ({"inputCols": ["x"]}, r"1 column \(x\) for 2 inputs: the model has a, b"),
        (
            {"model": build, "args": {"lr": 0.5}, "featuresCol": "x"},
            r"takes rows of shape \(2,\), and a row has 1 value",
        ),
        ({"inputCols": ["word", "y"]}, "the model's input 'a' is float32, and the column has text"),
    ):
        with pytest.raises((ConfigError, NodeFailed), match=message) as raised:
            fit(df, **params)
        assert "StagingError" not in str(raised.value)
