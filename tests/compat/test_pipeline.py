"""TensorFlowOnSpark's stages of Spark ML: arguments, parameters, training, and which model is scored.

`tests/scoring/test_mapped.py` has the rules by which inputs and outputs are named; `tests/rigs/test_programs.py` all of
it on a cluster.
"""

import argparse
import copy
import json
import os
import pickle
import sys

import pytest

import tfos_lab
from tests.support.tensorflow_process import in_tensorflow
from tfos_lab.compat import pipeline
from tfos_lab.errors import ConfigError, NodeFailed

# ---- arguments -------------------------------------------------------------------------------------------------------

VALUES = {"string": "foo", "integer": 1, "float": 3.14, "array": [1, 2, 3], "map": {"a": 1}}


@pytest.mark.parametrize(
    "given", [VALUES, argparse.Namespace(**VALUES), pipeline.Namespace(VALUES)], ids=lambda x: type(x).__name__
)
def test_arguments_are_attributes(given):
    args = pipeline.Namespace(given)
    assert vars(args) == VALUES
    assert (args.string, args.map, args.argv) == ("foo", {"a": 1}, None)
    assert "string" in args
    assert "extra" not in args
    assert list(args) == list(VALUES)
    assert args == pipeline.Namespace(VALUES) == argparse.Namespace(**VALUES)
    assert args != pipeline.Namespace({**VALUES, "extra": 1})
    assert args != 3
    assert copy.copy(args) == pickle.loads(pickle.dumps(args)) == args
    other = pipeline.Namespace(args)
    other.extra = 1
    assert "extra" not in args
    assert repr(pipeline.Namespace({"b": "two", "a": 1})) == "Namespace(a=1, b='two')"


def test_a_command_line_stays_a_list():
    args = pipeline.Namespace(["program", "--epochs", "3"])
    assert args.argv == list(args) == ["program", "--epochs", "3"]
    assert args == ["program", "--epochs", "3"] == pipeline.Namespace(["program", "--epochs", "3"])
    assert args != pipeline.Namespace(["program"])
    assert "--epochs" in args
    assert repr(args) == "['program', '--epochs', '3']"
    for given in (None, 3, "text", ("program",)):
        with pytest.raises(ConfigError, match=r"args=.*: use a dict, an argparse.Namespace, a Namespace, or a list"):
            pipeline.Namespace(given)


# ---- parameters ------------------------------------------------------------------------------------------------------

ESTIMATOR_DEFAULTS = {
    "input_mapping": {},
    "cluster_size": 1,
    "num_ps": 0,
    "driver_ps_nodes": False,
    "input_mode": 1,
    "master_node": "chief",
    "protocol": "grpc",
    "tensorboard": False,
    "model_dir": None,
    "export_dir": None,
    "tfrecord_dir": None,
    "batch_size": 100,
    "epochs": 1,
    "readers": 1,
    "steps": 1000,
    "grace_secs": 30,
}
MODEL_DEFAULTS = {
    "input_mapping": {},
    "output_mapping": {},
    "batch_size": 100,
    "model_dir": None,
    "export_dir": None,
    "signature_def_key": None,
    "tag_set": None,
}
TITLES = {"num_ps": "NumPS", "driver_ps_nodes": "DriverPSNodes", "tfrecord_dir": "TFRecordDir"}


def train(args, ctx):
    """Stands for the user's function."""


def test_defaults_setters_and_getters_are_those_of_tensorflowonspark():
    mixins = {f"Has{TITLES.get(name, name.title().replace('_', ''))}" for name in ESTIMATOR_DEFAULTS | MODEL_DEFAULTS}
    assert {name for name in dir(pipeline) if name.startswith("Has")} == mixins - {"HasDriverPSNodes"}
    for stage, defaults in (
        (pipeline.TFEstimator(train, {}), ESTIMATOR_DEFAULTS),
        (pipeline.TFModel({}), MODEL_DEFAULTS),
    ):
        assert {param.name: stage.getOrDefault(param) for param in stage.params} == defaults
        for name, default in defaults.items():
            title = TITLES.get(name, name.title().replace("_", ""))
            value = {dict: {"c": "x"}, bool: True, int: 1}.get(type(default), "text")
            assert getattr(stage, f"set{title}")(value) is stage
            assert getattr(stage, f"get{title}")() == value
            assert stage.getParam(name).doc


def test_values_of_a_wrong_type_are_refused():
    with pytest.raises(TypeError, match="input_mapping"):
        pipeline.TFModel({}).setInputMapping(["c", "x"])
    with pytest.raises(TypeError, match="batch_size"):
        pipeline.TFModel({}).setBatchSize("many")
    with pytest.raises(ConfigError, match=r"use InputMode\.SPARK"):
        pipeline.TFEstimator(train, {}).setInputMode(0)
    with pytest.warns(UserWarning, match="export_fn is for TensorFlow 1, and is not called: export the model in"):
        pipeline.TFEstimator(train, {}, export_fn=train)


def test_parameters_join_the_arguments_and_win():
    class Stage(pipeline.TFParams, pipeline.HasBatchSize, pipeline.HasSteps):
        def __init__(self, args):
            super().__init__()
            self.args = args

    args = pipeline.Namespace({"a": 1, "b": 2, "steps": 3})
    stage = Stage(args).setBatchSize(10).setSteps(100)
    assert stage.merge_args_params() == pipeline.Namespace({"a": 1, "b": 2, "batch_size": 10, "steps": 100})
    assert args == pipeline.Namespace({"a": 1, "b": 2, "steps": 3})
    with pytest.raises(ConfigError, match=r"^steps is not set, and has no default: call its setter first$"):
        Stage(args).setBatchSize(10).merge_args_params()
    merged = pipeline.TFEstimator(train, ["program", "--lr", "0.1"]).setEpochs(3).merge_args_params()
    assert (merged.argv, merged.epochs) == (["program", "--lr", "0.1"], 3)
    estimator = pipeline.TFEstimator(train, {"lr": 0.1}).setEpochs(3)
    other = estimator.copy({estimator.batch_size: 7})
    assert (other.getBatchSize(), estimator.getBatchSize()) == (7, 100)
    assert (other.getEpochs(), other.args.lr, other.train_fn) == (3, 0.1, train)


def test_rows_are_cut_into_columns():
    rows = [(1, [0.1], bytearray(b"a")), (2, [0.2], bytearray(b"b")), (3, [0.3], bytearray(b"c"))]
    batches = list(pipeline.yield_batch(rows, 2, num_tensors=3))
    assert batches == [[[1, 2], [[0.1], [0.2]], [b"a", b"b"]], [[3], [[0.3]], [b"c"]]]
    assert list(pipeline.yield_batch([(1,), None, (2,)], 10)) == [[[1]]]


def test_a_single_node_gets_its_command_line(monkeypatch):
    monkeypatch.setattr("sys.argv", ["before"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "before")
    pipeline.single_node_env(pipeline.Namespace({"num_gpus": 0}))
    assert (sys.argv, os.environ["CUDA_VISIBLE_DEVICES"]) == (["before"], "")
    for given in (pipeline.Namespace(["program", "--x"]), ["other"]):
        pipeline.single_node_env(given)
        assert sys.argv == list(given)


# ---- training --------------------------------------------------------------------------------------------------------


def write_rows(args, ctx):
    """Write the rows that a node gets, and its arguments, to the model's folder."""
    import json
    import sys
    from pathlib import Path

    from tfos_lab.compat import TFNode

    feed = TFNode.DataFeed(ctx.mgr, input_mapping=None if isinstance(args, list) else args.input_mapping)
    batches = []
    while not feed.should_stop():
        batches.append(feed.next_batch(3))
    known = {"argv": sys.argv} if isinstance(args, list) else {"lr": args.lr, "batch_size": args.batch_size}
    folder = Path(args[1] if isinstance(args, list) else args.model_dir)
    (folder / f"{ctx.job_name}-{ctx.task_index}.json").write_text(json.dumps({"batches": batches, "known": known}))


@pytest.fixture
def rows(spark):
    values = [(float(i), [i, i + 1], f"row {i}") for i in range(4)]
    return spark.createDataFrame(values, ["b", "a", "unused"]).coalesce(1)


def test_columns_are_fed_in_the_order_of_their_names(rows, tmp_path):
    estimator = pipeline.TFEstimator(write_rows, {"lr": 0.1, "batch_size": 5})
    estimator.setInputMapping({"b": "first", "a": "second"}).setModelDir(str(tmp_path)).setEpochs(2).setGraceSecs(0)
    model = estimator.fit(rows, {estimator.batch_size: 7})
    found = json.loads((tmp_path / "chief-0.json").read_text())
    assert found["known"] == {"lr": 0.1, "batch_size": 7}
    joined = {name: [value for batch in found["batches"] for value in batch[name]] for name in ("first", "second")}
    assert joined == {"first": [0.0, 1.0, 2.0, 3.0] * 2, "second": [[0, 1], [1, 2], [2, 3], [3, 4]] * 2}
    assert isinstance(model, pipeline.TFModel)
    assert (model.getModelDir(), model.getBatchSize(), model.args.lr) == (str(tmp_path), 7, 0.1)
    assert model.getInputMapping() == {"b": "first", "a": "second"}


def test_a_command_line_is_that_of_the_nodes(rows, tmp_path):
    estimator = pipeline.TFEstimator(write_rows, ["program", str(tmp_path)])
    estimator.setInputMapping({"b": "x"}).setMasterNode("master").fit(rows)
    found = json.loads((tmp_path / "master-0.json").read_text())
    assert found["known"]["argv"] == ["program", str(tmp_path)]
    assert [row for batch in found["batches"] for row in batch] == [[0.0], [1.0], [2.0], [3.0]]


def fail(args, ctx):
    """Fail while rows are fed."""
    raise ValueError("no such weights")


def test_a_training_that_fails_leaves_no_cluster_and_one_without_its_columns_starts_none(rows):
    before = set(tfos_lab.clusters())
    for mapping, message in (
        ({}, r"^input_mapping is not set, so nothing says which column is which tensor: call setInputMapping\("),
        ({"c": "x"}, "^column 'c' is not in the data"),
    ):
        with pytest.raises(ConfigError, match=message):
            pipeline.TFEstimator(fail, {}).setInputMapping(mapping).fit(rows)
    assert set(tfos_lab.clusters()) == before
    with pytest.raises(NodeFailed, match="no such weights"):
        pipeline.TFEstimator(fail, {}).setInputMapping({"b": "x"}).fit(rows)
    assert all(cluster.ended for cluster in set(tfos_lab.clusters()) - before)


# ---- scoring ---------------------------------------------------------------------------------------------------------

GRAPHS = """
v1 = tf.compat.v1
with tf.Graph().as_default(), v1.Session() as session:
    a = v1.placeholder(tf.float32, [None, 2], name="a")
    sum = tf.reduce_sum(a, axis=1) * v1.get_variable("factor", initializer=2.0)
    session.run(v1.global_variables_initializer())
    builder = v1.saved_model.builder.SavedModelBuilder(arguments[0])
    signature = v1.saved_model.signature_def_utils.predict_signature_def({"ins": a}, {"sum": sum, "a": a})
    builder.add_meta_graph_and_variables(session, ["serve"], {"doubled": signature})
    builder.add_meta_graph(["serve", "gpu"], {"doubled": signature})
    builder.save()
answer = None
"""


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """A SavedModel of TensorFlow 1 with two graphs."""
    folder = str(tmp_path_factory.mktemp("exported") / "graphs")
    in_tensorflow(GRAPHS, folder)
    return folder


@pytest.mark.tensorflow
def test_a_graph_of_tensorflow_1_is_chosen_by_its_tags(graphs, spark):
    tests = spark.createDataFrame([([1.0, 1.0], "a"), ([2.0, 0.0], "b")], ["c1", "c.2"]).coalesce(1)
    model = pipeline.TFModel({}).setModelDir(f"file://{graphs}")  # where there is no export_dir
    model.setInputMapping({"c1": "ins"}).setOutputMapping({"sum": "s"}).setTagSet("serve,gpu")
    assert [row.s for row in model.transform(tests).collect()] == [4.0, 4.0]
    with pytest.raises(ConfigError, match=r"tag_set='': .*2 MetaGraphs"):
        model.copy({model.tag_set: ""}).transform(tests)
    once = model.transform(tests, {model.output_mapping: {"a": "other"}})  # parameters of one call
    assert (once.columns, model.getOutputMapping()) == (["other"], {"sum": "s"})
    assert list(pipeline.get_meta_graph_def(graphs, "gpu,serve").signature_def) == ["doubled"]
    with pytest.raises(RuntimeError, match=r"tag_set='train': .* has graphs with the tags serve; gpu"):
        pipeline.get_meta_graph_def(graphs, "train")


def test_parameters_that_are_missing_are_named_at_once(rows):
    with pytest.raises(ConfigError) as raised:
        pipeline.TFModel({}).setBatchSize(0).transform(rows)
    assert [problem.partition(":")[0] for problem in raised.value.problems] == [
        "neither export_dir nor model_dir is set",
        "input_mapping is not set, so nothing says which column is which tensor",
        "output_mapping is not set, so nothing says which output is which column",
        "batch_size=0",
    ]
    model = pipeline.TFModel({}).setExportDir("x").setInputMapping({"a": "x"}).setOutputMapping({"y": "c", "z": "c"})
    with pytest.raises(ConfigError, match="two outputs are for the column 'c'"):
        model.transform(rows)
