"""`TFTextFileEstimator` on a local session: models side by side, one on a cluster, and what is refused."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest

from tfos_lab.compat.alias import make_alias
from tfos_lab.errors import ConfigError, FeedError, NodeFailed, ParallelFailed
from tfos_lab.ml import TFTextFileEstimator

ROWS = 25
SCHEMA = "id int, label int, matrix array<array<float>>, vocab_size int"


@pytest.fixture(autouse=True)
def _runs_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))


@pytest.fixture
def sentences(spark):
    """A function that makes a DataFrame of so many sentence matrices, three words long."""

    def make(rows=ROWS, matrix=lambda row: [[float(row), 0.5], [1.0, 0.0], [0.0, 0.0]]):
        return spark.createDataFrame([(row, row % 2, matrix(row), 900) for row in range(rows)], SCHEMA).repartition(3)

    return make


def estimator(map_fun, *fit_params, **params):
    values = {"inputCol": "matrix", "outputCol": "matrix", "labelCol": "label", "local": "inline", **params}
    return TFTextFileEstimator(fitParam=list(fit_params), mapFnParam=map_fun, **values)


def count(args={}, ctx=None, _read_data=None):  # noqa: B006 - the interface's own
    """Count the rows of each epoch, and their batches."""
    assert ctx is None
    fit_param = args["params"]["fitParam"]
    if fit_param.get("fails"):
        raise ValueError("no such luck")
    seen, sizes = [], []
    for epoch in range(fit_param["epochs"]):
        for batch in _read_data(max_records=fit_param["batch_size"]):
            seen += [row["id"] for row in batch]
            sizes.append(len(batch))
        _read_data.report(step=epoch + 1, loss=1 / (epoch + 1))
    assert sorted(seen) == sorted([*range(25)] * fit_param["epochs"])
    assert (batch[0][0], batch[0][1]) == (batch[0][args["feature"]], batch[0].label)
    Path(args["model"]).write_text("a model")
    return {"batches": len(sizes), "last": sizes[-1], "words": args.vocab_size, "width": args["embedding_size"]}


def test_each_model_is_trained_on_all_rows_and_all_are_compared(sentences, tmp_path):
    own = str(tmp_path / "own")
    stage = estimator(count, {"epochs": 5, "batch_size": 4}, {"epochs": 1, "batch_size": 64, "model": own})
    trained = stage.fit(sentences())
    first, second = trained.results.orderBy("metrics.batches", ascending=False).collect()
    assert first.params.asDict() == {"epochs": 5, "batch_size": 4, "model": None}
    assert first.metrics == {"batches": 35.0, "last": 1.0, "words": 900.0, "width": 2.0, "loss": 0.2}
    assert second.metrics["last"] == 25.0
    assert (first.state, first.error, second.model) == ("done", "", own)
    assert Path(first.model).read_text() == Path(own).read_text() == "a model"
    assert Path(first.model).is_relative_to(first.run_dir)
    # As programs of Spark Deep Learning look at it.
    assert trained.collect() == trained.results.collect()
    assert [model.path for model in trained.models] == [first.model, own]
    assert trained.models[1].metrics["last"] == 25.0
    with pytest.raises(ConfigError, match=r"model.path: these are 2 models: choose one, as in model.models\[0\].path"):
        trained.path  # noqa: B018 - it raises


def test_a_model_that_fails_is_a_row_unless_all_do(sentences):
    fails, works = {"epochs": 1, "fails": True}, {"epochs": 1, "batch_size": 5}
    with pytest.warns(UserWarning, match=r"fitParam\[0\] could not be trained: ValueError: no such luck"):
        trained = estimator(count, fails, works).fit(sentences())
    failed, done = trained.collect()
    assert (failed.state, failed.error, failed.model, failed.metrics) == (
        "failed",
        "ValueError: no such luck",
        "",
        {},
    )
    assert done.state == "done"
    assert len(trained.models) == 1
    with pytest.raises(ParallelFailed, match="no such luck"):
        estimator(count, fails).fit(sentences())


def test_dicts_of_a_call_are_used_instead_and_spark_mls_own_override(sentences):
    stage = estimator(count, {"epochs": 9})
    assert stage.fit(sentences(), {"epochs": 1, "batch_size": 5}).metrics["batches"] == 5
    two = stage.fit(sentences(), [{"epochs": 1, "batch_size": 5}, {"epochs": 2, "batch_size": 5}])
    assert [row.metrics["batches"] for row in two.collect()] == [5, 10]
    maps = [{stage.fitParam: [{"epochs": 1, "batch_size": size}]} for size in (5, 25)]
    assert [model.metrics["batches"] for model in stage.fit(sentences(), maps)] == [5, 1]
    assert stage.getFitParam() == [{"epochs": 9}]


def read_all(args, ctx, _read_data=None):
    """Read this node's rows from a `DataFeed`, one module under either name; tell of them."""
    import tensorflowonspark.TFNode

    from tfos_lab.compat import TFNode

    assert tensorflowonspark.TFNode is TFNode
    assert _read_data is None
    assert ctx.job_name == "worker"
    assert args["params"]["fitParam"][0]["cluster_size"] == args.cluster_size == 2
    feed = TFNode.DataFeed(ctx.mgr, True)
    seen, sizes = [], []
    while not feed.should_stop():
        batch = feed.next_batch(args["batch_size"])
        seen += [row["id"] for row in batch]
        sizes.append(len(batch))
    Path(f"{args['model']}-{ctx.task_index}.json").write_text(json.dumps(seen))
    return {"task": ctx.task_index, "workers": len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])}


@pytest.mark.tensorflow
def test_a_cluster_shares_the_rows_and_none_is_lost(sentences, tmp_path, monkeypatch):
    # What `tfos_lab.compat.install` has nodes do; all else that it does would stay with the tests that follow.
    monkeypatch.setattr("tfos_lab.payload.packing._preparations", [make_alias])
    model = str(tmp_path / "model")
    fit_param = {"epochs": 2, "cluster_size": 2, "batch_size": 4, "model": model}
    trained = estimator(read_all, fit_param, runningMode="TFoS", local="processes").fit(sentences())
    shares = [json.loads(Path(f"{model}-{task}.json").read_text()) for task in (0, 1)]
    assert sorted(shares[0] + shares[1]) == sorted([*range(ROWS)] * 2)
    assert all(shares)
    assert (trained.path, trained.metrics) == (model, {"task": 0.0, "workers": 2.0})
    assert trained.collect()[0].params.asDict() == fit_param


def test_on_a_cluster_inline_the_function_is_called_here(sentences, tmp_path):
    def train(args, ctx):
        rows = []
        feed = ctx.get_data_feed()
        while not feed.should_stop():
            rows += feed.next_batch(10)
        if args.get("fails"):
            raise ValueError("no such luck")
        return {"rows": len(rows), "pid": os.getpid()}

    fit_param = {"cluster_size": 2, "model": str(tmp_path / "model")}
    trained = estimator(train, fit_param, runningMode="TFoS").fit(sentences())
    assert trained.metrics == {"rows": ROWS, "pid": os.getpid()}
    with pytest.raises(ValueError, match="no such luck"):
        estimator(train, {**fit_param, "fails": True}, runningMode="TFoS").fit(sentences())


def test_rows_that_are_not_wanted_are_not_waited_for(sentences, tmp_path):
    def look(args, ctx):
        feed = ctx.get_data_feed()
        rows = feed.next_batch(3)
        feed.terminate()
        return {"rows": len(rows)}

    trained = estimator(look, {"model": str(tmp_path / "model")}, runningMode="TFoS").fit(sentences())
    assert trained.metrics == {"rows": 3}


def test_matrices_of_several_shapes_are_refused(sentences, tmp_path):
    def ragged(row):
        return [[0.0, 1.0]] * (2 if row == 17 else 3)

    told = "'matrix': the first row's sentence matrix is . × 2, another row's is . × 2: pad short sentences with zeros"
    with pytest.raises(ParallelFailed, match=told):
        estimator(count, {"epochs": 1, "batch_size": 5}).fit(sentences(matrix=ragged))

    def train(args, ctx):
        ctx.get_data_feed().next_batch(100)

    with pytest.raises((FeedError, NodeFailed), match=told):
        estimator(train, {"model": str(tmp_path / "m")}, runningMode="TFoS").fit(sentences(matrix=ragged))
    with pytest.raises(ConfigError, match="has vectors of 1 and 2 values: all need to have one size"):
        estimator(count, {}).fit(sentences(matrix=lambda row: [[0.0], [0.0, 1.0]]))


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"inputCol": "matrx"}, "column 'matrx' is not in the data; did you mean 'matrix'"),
        ({"labelCol": "lable"}, "column 'lable' is not in the data; did you mean 'label'"),
    ],
)
def test_a_missing_column_is_refused(sentences, params, told):
    with pytest.raises(ConfigError, match=told):
        estimator(count, {"epochs": 1}, **params).fit(sentences())


def test_no_rows_and_a_stream_are_refused(sentences, spark):
    with pytest.raises(ConfigError, match="the DataFrame has no rows"):
        estimator(count, {"epochs": 1}).fit(sentences(0))
    stream = spark.readStream.schema(SCHEMA).json(tempfile.mkdtemp())
    with pytest.raises(ConfigError, match="a stream has no end"):
        estimator(count, {"epochs": 1}).fit(stream)


def test_kafka_is_not_needed_which_a_warning_says(sentences):
    stage = estimator(count, {"epochs": 1, "batch_size": 5}, kafkaParam={"topic": "test"})
    with pytest.warns(UserWarning, match="kafkaParam is not used: rows come from Spark itself"):
        stage.fit(sentences())


def test_a_label_is_not_needed(sentences):
    def train(args, ctx, _read_data):
        return {"rows": len(list(_read_data)), "labelled": args.label is not None}

    stage = TFTextFileEstimator(inputCol="matrix", fitParam=[{}], mapFnParam=train, local="inline")
    assert stage.fit(sentences()).metrics == {"rows": ROWS, "labelled": 0}


def test_a_model_of_unknown_place_cannot_score(sentences):
    model = estimator(lambda args, ctx, _read_data: None, {"epochs": 1}).fit(sentences())
    assert model.path == ""
    with pytest.raises(ConfigError, match="nothing says where this model was saved: have the function save it to"):
        model.transform(sentences())
