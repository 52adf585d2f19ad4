"""The parameters of pipeline stages, and how they join a stage's arguments; without a session."""

from __future__ import annotations

import pytest

from tfos_lab.compat import pipeline
from tfos_lab.errors import ConfigError

# Each mix-in, and its parameters by their setters and getters.
PARAMETERS = {
    "HasBatchSize": {"BatchSize": ("batch_size", 32)},
    "HasClusterSize": {"ClusterSize": ("cluster_size", 3)},
    "HasEpochs": {"Epochs": ("epochs", 5)},
    "HasExportDir": {"ExportDir": ("export_dir", "/export")},
    "HasGraceSecs": {"GraceSecs": ("grace_secs", 7)},
    "HasInputMapping": {"InputMapping": ("input_mapping", {"c": "x"})},
    "HasInputMode": {"InputMode": ("input_mode", 1)},
    "HasMasterNode": {"MasterNode": ("master_node", "master")},
    "HasModelDir": {"ModelDir": ("model_dir", "/model")},
    "HasNumPS": {"NumPS": ("num_ps", 1), "DriverPSNodes": ("driver_ps_nodes", True)},
    "HasOutputMapping": {"OutputMapping": ("output_mapping", {"y": "c"})},
    "HasProtocol": {"Protocol": ("protocol", "grpc+verbs")},
    "HasReaders": {"Readers": ("readers", 2)},
    "HasSignatureDefKey": {"SignatureDefKey": ("signature_def_key", "other")},
    "HasSteps": {"Steps": ("steps", 10)},
    "HasTFRecordDir": {"TFRecordDir": ("tfrecord_dir", "/records")},
    "HasTagSet": {"TagSet": ("tag_set", "serve")},
    "HasTensorboard": {"Tensorboard": ("tensorboard", True)},
}
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


def train(args, ctx):
    """Stands for the user's function."""


@pytest.mark.parametrize("mixin", PARAMETERS)
def test_each_parameter_has_a_setter_and_a_getter(mixin):
    stage = type("Stage", (getattr(pipeline, mixin),), {})()
    for title, (name, value) in PARAMETERS[mixin].items():
        assert getattr(stage, f"set{title}")(value) is stage
        assert getattr(stage, f"get{title}")() == value
        assert stage.getParam(name).name == name
        assert stage.getParam(name).doc
        assert getattr(stage, f"set{title}").__name__ == f"set{title}"


def test_all_mix_ins_are_known_to_this_test():
    assert {name for name in dir(pipeline) if name.startswith("Has")} == set(PARAMETERS)


def test_values_of_a_wrong_type_are_refused():
    with pytest.raises(TypeError, match="input_mapping"):
        pipeline.TFModel({}).setInputMapping(["c", "x"])
    with pytest.raises(TypeError, match="batch_size"):
        pipeline.TFModel({}).setBatchSize("many")
    with pytest.raises(TypeError, match="is a list, not a dict"):
        pipeline.TFTypeConverters.toDict([1])
    assert pipeline.TFTypeConverters.toDict({"a": 1}) == {"a": 1}
    with pytest.raises(ConfigError, match=r"use InputMode\.SPARK"):
        pipeline.TFEstimator(train, {}).setInputMode(0)


def test_defaults_are_those_of_tensorflowonspark():
    estimator, model = pipeline.TFEstimator(train, {}), pipeline.TFModel({})
    assert {param.name: estimator.getOrDefault(param) for param in estimator.params} == ESTIMATOR_DEFAULTS
    assert {param.name: model.getOrDefault(param) for param in model.params} == MODEL_DEFAULTS
    assert estimator.train_fn is train
    assert estimator.args == pipeline.Namespace({})


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


def test_a_command_line_stays_beside_the_parameters():
    merged = pipeline.TFEstimator(train, ["program", "--lr", "0.1"]).setEpochs(3).merge_args_params()
    assert merged.argv == ["program", "--lr", "0.1"]
    assert merged.epochs == 3


def test_a_copied_stage_takes_other_parameters_and_the_same_arguments():
    estimator = pipeline.TFEstimator(train, {"lr": 0.1}).setEpochs(3)
    other = estimator.copy({estimator.batch_size: 7})
    assert (other.getBatchSize(), estimator.getBatchSize()) == (7, 100)
    assert (other.getEpochs(), other.args.lr, other.train_fn) == (3, 0.1, train)


def test_an_export_function_is_not_called_and_a_warning_says_so():
    with pytest.warns(UserWarning, match="export_fn is for TensorFlow 1, and is not called: export the model in"):
        pipeline.TFEstimator(train, {}, export_fn=train)


def test_rows_are_cut_into_columns():
    rows = [(1, [0.1], bytearray(b"a")), (2, [0.2], bytearray(b"b")), (3, [0.3], bytearray(b"c"))]
    batches = list(pipeline.yield_batch(rows, 2, num_tensors=3))
    assert batches == [[[1, 2], [[0.1], [0.2]], [b"a", b"b"]], [[3], [[0.3]], [b"c"]]]
    assert list(pipeline.yield_batch([(1,), None, (2,)], 10)) == [[[1]]]
    assert list(pipeline.yield_batch([], 10)) == []
    assert list(pipeline.yield_batch([(1, 2)], 1)) == [[[1]]]


def test_a_single_node_gets_its_command_line(monkeypatch):
    monkeypatch.setattr("sys.argv", ["before"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "before")
    import os
    import sys

    pipeline.single_node_env(pipeline.Namespace({"num_gpus": 0}))
    assert (sys.argv, os.environ["CUDA_VISIBLE_DEVICES"]) == (["before"], "")
    pipeline.single_node_env(pipeline.Namespace(["program", "--x"]))
    assert sys.argv == ["program", "--x"]
    pipeline.single_node_env(["other"])
    assert sys.argv == ["other"]
