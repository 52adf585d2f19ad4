"""`TFTextFileEstimator` on a local session: models side by side, one on a cluster, and what is refused."""

import copy
import json
import os
import pickle
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfos_lab.errors import ConfigError, FeedError, NodeFailed, ParallelFailed
from tfos_lab.ml import TFTextFileEstimator

ROWS = 150
SCHEMA = "id int, label int, matrix array<array<float>>, vocab_size int"


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
    assert sorted(seen) == sorted([*range(ROWS)] * fit_param["epochs"])
    assert (batch[0][0], batch[0][1]) == (batch[0][args["feature"]], batch[0].label)
    Path(args["model"]).write_text("a model")
    return {"batches": len(sizes), "last": sizes[-1], "words": args.vocab_size, "width": args["embedding_size"]}


def test_each_model_is_trained_on_all_rows_and_all_are_compared(sentences, tmp_path):
    own = str(tmp_path / "own")
    stage = estimator(count, {"epochs": 5, "batch_size": 4}, {"epochs": 1, "batch_size": 500, "model": own})
    trained = stage.fit(sentences())
    first, second = trained.results.orderBy("metrics.batches", ascending=False).collect()
    assert first.params.asDict() == {"epochs": 5, "batch_size": 4, "model": None}
    assert first.metrics == {"batches": 190.0, "last": 2.0, "words": 900.0, "width": 2.0, "loss": 0.2}
    assert second.metrics["last"] == 150.0
    assert (first.state, first.error, second.model) == ("done", "", own)
    assert Path(first.model).read_text() == Path(own).read_text() == "a model"
    assert Path(first.model).is_relative_to(first.run_dir)
    # As programs of Spark Deep Learning look at it.
    assert trained.collect() == trained.results.collect()
    assert [model.path for model in trained.models] == [first.model, own]
    assert trained.models[1].metrics["last"] == 150.0
    with pytest.raises(ConfigError, match=r"model.path: these are 2 models: choose one, as in model.models\[0\].path"):
        trained.path  # noqa: B018 - it raises


def test_a_model_that_fails_is_a_row_unless_all_do(sentences):
    fails, works = {"epochs": 1, "fails": True}, {"epochs": 1, "batch_size": 5}
    with pytest.warns(UserWarning, match=r"fitParam\[0\] could not be trained: ValueError: no such luck"):
        trained = estimator(count, fails, works).fit(sentences())
    failed, done = trained.collect()
    assert (failed.state, failed.error) == ("failed", "ValueError: no such luck")
    assert (failed.model, failed.metrics, done.state) == ("", {}, "done")
    assert len(trained.models) == 1
    with pytest.raises(ParallelFailed, match="no such luck"):
        estimator(count, fails).fit(sentences())


def test_dicts_of_a_call_are_used_instead_and_spark_mls_own_override(sentences):
    stage = estimator(count, {"epochs": 9})
    assert stage.fit(sentences(), {"epochs": 1, "batch_size": 5}).metrics["batches"] == 30
    two = stage.fit(sentences(), [{"epochs": 1, "batch_size": 5}, {"epochs": 2, "batch_size": 5}])
    assert [row.metrics["batches"] for row in two.collect()] == [30, 60]
    maps = [{stage.fitParam: [{"epochs": 1, "batch_size": size}]} for size in (5, 150)]
    assert [model.metrics["batches"] for model in stage.fit(sentences(), maps)] == [30, 1]
    assert stage.getFitParam() == [{"epochs": 9}]


# ---- what the function finds, and says -------------------------------------------------------------------------------


def test_each_pass_has_all_rows_in_the_same_order_however_often_and_far_one_reads(sentences):
    def read(args, ctx, _read_data):
        first = [row["id"] for row in _read_data]
        assert sorted(first) == list(range(ROWS))
        for size in (1, 64, 1000):
            batches = list(_read_data(max_records=size))
            assert [row["id"] for batch in batches for row in batch] == first
            assert {len(batch) for batch in batches[:-1]} <= {size}
            assert len(batches[-1]) <= size
        assert [row["id"] for row in next(_read_data(7))] == first[:7], "a pass that ends early costs the next no row"
        pairs = [(one["id"], other["id"]) for one, other in zip(_read_data, _read_data, strict=True)]
        assert pairs == [(number, number) for number in first]
        assert len(list(_read_data(max_records=75, consume_threads=2, print_consume_time=True))) == 2
        for size in (0, 1.5, "8", True, None):
            with pytest.raises(ConfigError, match=r"_read_data\(max_records=.*\): a whole number from 1 on is needed"):
                _read_data(max_records=size)
        return {"rows": len(first)}

    assert estimator(read, {}).fit(sentences()).metrics == {"rows": ROWS}


def test_rows_that_the_function_does_not_want_are_not_waited_for(sentences):
    assert estimator(lambda args, ctx, _read_data: {"read": len(next(_read_data(7)))}, {}).fit(sentences()).metrics == {
        "read": 7.0
    }


def test_numbers_are_metrics_and_a_path_is_the_models_and_the_rest_need_not_be_sendable(sentences, tmp_path):
    told = [
        (None, {}, ""),
        ("fine", {}, ""),
        (0.5, {"value": 0.5}, ""),
        ({"loss": [0.5, 0.25], "note": "fine", "list": [], "epochs": 3}, {"loss": 0.25, "epochs": 3.0}, ""),
        (SimpleNamespace(history={"loss": [0.5, 0.25], "accuracy": [0.75]}), {"loss": 0.25, "accuracy": 0.75}, ""),
        (object(), {}, ""),
        ({"model": tmp_path / "best", "loss": 1}, {"loss": 1.0}, str(tmp_path / "best")),
    ]
    trained = estimator(
        lambda args, ctx, _read_data: told[args["number"]][0], *({"number": number} for number in range(len(told)))
    ).fit(sentences())
    found = {row.params.number: row for row in trained.collect()}
    for number, (_, metrics, model) in enumerate(told):
        assert (found[number].metrics, found[number].model) == (metrics, model)


@pytest.mark.parametrize("name", ["model.keras", "best/model"])
def test_a_model_is_found_beside_the_place_for_it_and_where_the_function_says(sentences, name):
    def train(args, ctx, _read_data):
        path = Path(args["model"]).parent / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("a model")
        return {"model": path} if name == "best/model" else None

    path = Path(estimator(train, {}).fit(sentences()).path)
    assert (path.read_text(), str(path).endswith(name)) == ("a model", True)


def test_its_parameters_are_found_in_every_way_that_programs_use(sentences):
    def look(args, ctx, _read_data):
        fit_param = args["params"]["fitParam"]
        assert fit_param[0]["epochs"] == fit_param["epochs"] == fit_param.epochs == args["epochs"] == args.epochs == 5
        assert (args.params.inputCol, args["params"]["runningMode"]) == ("matrix", "Normal")
        assert isinstance(fit_param, dict)
        assert dict(**fit_param) == {"epochs": 5, "embedding_size": 8}
        assert (args.feature, args.label, args.embedding_size) == ("matrix", "label", 2)  # what the rows tell counts
        assert args["vocab_size"] == args["vacab_size"] == 900
        assert pickle.loads(pickle.dumps(fit_param)) == copy.deepcopy(fit_param) == fit_param
        with pytest.raises(AttributeError, match="args has no 'steps'; it has "):
            args.steps  # noqa: B018 - it raises

    assert estimator(look, {"epochs": 5, "embedding_size": 8}).fit(sentences()).collect()[0].state == "done"


def test_a_label_is_not_needed_and_kafka_neither_which_a_warning_says(sentences):
    def train(args, ctx, _read_data):
        return {"rows": len(list(_read_data)), "labelled": args.label is not None}

    stage = TFTextFileEstimator(inputCol="matrix", fitParam=[{}], mapFnParam=train, local="inline")
    assert stage.fit(sentences()).metrics == {"rows": ROWS, "labelled": 0}
    with pytest.warns(UserWarning, match="kafkaParam is not used: rows come from Spark itself"):
        model = stage.setKafkaParam({"topic": "test"}).fit(sentences())
    with pytest.raises(ConfigError, match="nothing says where this model was saved: have the function save it to"):
        model.transform(sentences())


# ---- on a cluster ----------------------------------------------------------------------------------------------------


def read_all(args, ctx, _read_data=None):
    """Read this node's rows from a `DataFeed`; tell of them."""
    from tfos_lab.compat import TFNode

    assert _read_data is None
    assert ctx.job_name == "worker"
    listed = args["params"]["fitParam"]
    assert isinstance(listed, list)
    assert listed[0]["cluster_size"] == listed["cluster_size"] == args.cluster_size == 2
    feed = TFNode.DataFeed(ctx.mgr, True)
    seen = []
    while not feed.should_stop():
        seen += [row["id"] for row in feed.next_batch(args["batch_size"])]
    Path(f"{args['model']}-{ctx.task_index}.json").write_text(json.dumps(seen))
    return {"task": ctx.task_index, "workers": len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])}


@pytest.mark.tensorflow
def test_a_cluster_shares_the_rows_and_none_is_lost(sentences, tmp_path):
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
        while not feed.should_stop() and len(rows) < args["enough"]:
            rows += feed.next_batch(10)
        feed.terminate()
        if args.get("fails"):
            raise ValueError("no such luck")
        return {"rows": len(rows), "pid": os.getpid()}

    fit_param = {"cluster_size": 2, "model": str(tmp_path / "model"), "enough": ROWS}
    trained = estimator(train, fit_param, runningMode="TFoS").fit(sentences())
    assert trained.metrics == {"rows": ROWS, "pid": os.getpid()}
    assert estimator(train, {**fit_param, "enough": 10}, runningMode="TFoS").fit(sentences()).metrics["rows"] == 10
    with pytest.raises(ValueError, match="no such luck"):
        estimator(train, {**fit_param, "fails": True}, runningMode="TFoS").fit(sentences())


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_matrices_of_several_shapes_are_refused(sentences, tmp_path):
    def ragged(row):
        return [[0.0, 1.0]] * (2 if row == 17 else 3)

    told = "'matrix': the first row's sentence matrix is . × 2, another row's is . × 2: pad short sentences with zeros"
    with pytest.raises(ParallelFailed, match=told):
        estimator(count, {"epochs": 1, "batch_size": 5}).fit(sentences(matrix=ragged))

    def train(args, ctx):
        feed = ctx.get_data_feed()
        while not feed.should_stop():
            feed.next_batch(100)

    with pytest.raises((FeedError, NodeFailed), match=told):
        estimator(train, {"model": str(tmp_path / "m")}, runningMode="TFoS").fit(sentences(matrix=ragged))
    with pytest.raises(ConfigError, match="has vectors of 1 and 2 values: all need to have one size"):
        estimator(count, {}).fit(sentences(matrix=lambda row: [[0.0], [0.0, 1.0]]))
    with pytest.raises(ParallelFailed, match=r"'matrix' has a null: leave such rows out, as in df.dropna\(subset="):
        estimator(count, {"epochs": 1, "batch_size": 5}).fit(
            sentences(matrix=lambda row: None if row == 17 else [[0.0]])
        )


def test_vectors_and_lists_of_words_of_any_length_are_rows_too(spark):
    from pyspark.ml.linalg import Vectors

    def train(args, ctx, _read_data):
        return {"rows": len(list(_read_data)), "width": -1 if args.embedding_size is None else args.embedding_size}

    words = spark.createDataFrame([([7, 8, 9][: 1 + row % 3],) for row in range(6)], ["words"])
    vectors = spark.createDataFrame(
        [([Vectors.dense(1.0, row), Vectors.sparse(2, {0: 1.0})],) for row in (1, 2)], ["v"]
    )
    for df, column, rows in ((words, "words", 6), (vectors, "v", 2)):
        stage = TFTextFileEstimator(inputCol=column, fitParam=[{}], mapFnParam=train, local="inline")
        assert stage.fit(df).metrics["rows"] == rows


def test_missing_columns_no_rows_and_a_stream_are_refused(sentences, spark):
    for params, told in (({"inputCol": "matrx"}, "did you mean 'matrix'"), ({"labelCol": "lable"}, "'label'")):
        with pytest.raises(ConfigError, match=f"is not in the data; .*{told}"):
            estimator(count, {"epochs": 1}, **params).fit(sentences())
    with pytest.raises(ConfigError, match="the DataFrame has no rows"):
        estimator(count, {"epochs": 1}).fit(sentences(0))
    stream = spark.readStream.schema(SCHEMA).json(tempfile.mkdtemp())
    with pytest.raises(ConfigError, match="a stream has no end"):
        estimator(count, {"epochs": 1}).fit(stream)
