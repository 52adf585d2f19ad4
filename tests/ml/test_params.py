"""Params of `TFEstimator`, `TFModel` and `TFTextFileEstimator`: Spark ML's promises, and the sentence of a refusal."""

import argparse
import inspect
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfos_lab
from tfos_lab.compat.pipeline import Namespace
from tfos_lab.errors import ConfigError, ParamError
from tfos_lab.ml import TFEstimator, TFModel, TFTextFileEstimator


def train(args, ctx):
    """Is never called here."""


@pytest.mark.parametrize("stage", [TFEstimator, TFModel])
def test_every_param_has_a_doc_a_setter_and_a_getter(stage):
    made = stage()
    for param in made.params:
        title = param.name[0].upper() + param.name[1:]
        assert param.doc in getattr(stage, f"set{title}").__doc__
        assert callable(getattr(stage, f"get{title}"))
        assert param.name in inspect.signature(stage).parameters
        assert param.name in stage.__doc__
    assert len(made.explainParams().splitlines()) == len(made.params)
    assert "batchSize: Rows " in made.explainParams()


def test_the_options_of_a_cluster_are_params_with_the_same_defaults():
    estimator = TFEstimator(train)
    params = {re.sub("[^a-z]", "", param.name.lower()): param for param in estimator.params}
    declared = inspect.signature(tfos_lab.start).parameters
    assert len(declared) > 15
    for name, option in declared.items():
        if name in ("args", "spark", "show", "name"):
            continue
        param = params[name.removesuffix("_s").replace("_", "")]
        default = estimator.getOrDefault(param) if estimator.isDefined(param) else None
        assert default == option.default or (name, default) == ("env", {}), name


def test_setters_return_the_stage_and_the_constructor_takes_the_same_names():
    estimator = TFEstimator(train, {"lr": 0.1}, batchSize=8, inputCols="x", masterNode=None)
    assert estimator.setEpochs(3).setNumPS(np.int64(1)).setTensorboard(True) is estimator
    assert (estimator.getEpochs(), estimator.getNumPS(), estimator.getTensorboard()) == (3, 1, True)
    assert (estimator.getInputCols(), estimator.getMasterNode(), estimator.getArgs()) == (["x"], None, {"lr": 0.1})
    assert type(estimator.getNumPS()) is int
    assert estimator.setParams(batchSize=16.0).getBatchSize() == 16


@pytest.mark.parametrize("args", [{"lr": 0.1}, argparse.Namespace(lr=0.1), Namespace({"lr": 0.1})])
def test_a_copy_has_the_same_identity_and_params_and_arguments_of_its_own(args):
    estimator = TFEstimator(train, args, batchSize=8)
    assert estimator.getArgs() == {"lr": 0.1}
    copied = estimator.copy({estimator.epochs: 5, estimator.args: {"lr": 0.2}})
    assert (copied.uid, copied.train_fn, copied.getBatchSize(), copied.getEpochs()) == (estimator.uid, train, 8, 5)
    copied.setBatchSize(9)
    assert copied.getArgs() == {"lr": 0.2}
    assert (estimator.getBatchSize(), estimator.getEpochs(), estimator.getArgs()) == (8, 1, {"lr": 0.1})


def test_none_removes_what_was_set_where_it_is_no_value():
    estimator = TFEstimator(train, batchSize=8, weightCol="w").setBatchSize(None).setWeightCol(None)
    assert estimator.getBatchSize() == 32
    assert not estimator.isDefined("weightCol")
    with pytest.raises(
        ConfigError, match=r"^weightCol is not set, and has no default: call setWeightCol\(...\) first$"
    ):
        estimator.getWeightCol()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"batchSize": "ten"}, "^batchSize='ten': a whole number is needed that is not less than 1$"),
        ({"clusterSize": 0}, "^clusterSize=0: at least one node is needed$"),
        ({"epochs": np.float64(0)}, "^epochs=0: at least one is needed$"),
        ({"masterNode": "boss"}, "^masterNode='boss': not a job name that can lead"),
        ({"inputCols": ["x", "x"]}, "^inputCols: 'x' is there twice$"),
        ({"inputMapping": ["x"]}, r"^inputMapping=\['x'\]: a dict of names to names is needed$"),
        ({"labelCol": []}, r"^labelCol=\[\]: a list of names is needed$"),
        ({"labelCol": {"out": 3}}, r"^labelCol={'out': 3}: a dict of names to names is needed$"),
        ({"shuffle": 1}, "^shuffle=1: True or False is needed$"),
        ({"env": {"TF_CONFIG": "{}"}}, r"^env\['TF_CONFIG'\]: is set by tfos_lab on every node$"),
        ({"args": ["--lr"]}, r"^args=\['--lr'\]: use a dict with texts as keys, or an argparse"),
        ({"batchSize": 0, "epochs": "x"}, "^batchSize=0: .*; epochs='x': a whole number is needed$"),
    ],
)
def test_wrong_values_are_refused_in_a_sentence(params, message):
    with pytest.raises(ParamError, match=message) as raised:
        TFEstimator(train, **params)
    assert isinstance(raised.value, TypeError)
    assert isinstance(raised.value, ValueError)


NUMBERS = ["batchSize", "clusterSize", "numPS", "epochs", "restarts"]


@given(st.sampled_from(NUMBERS), st.integers(-3, 9) | st.floats(-2, 9) | st.text(max_size=3) | st.booleans())
def test_a_whole_number_is_kept_and_anything_else_is_refused_by_its_name(name, value):
    least = 0 if name in ("numPS", "restarts") else 1
    whole = not isinstance(value, bool | str) and value == int(value) and value >= least
    if whole:
        kept = TFEstimator(train, **{name: value}).getOrDefault(name)
        assert (kept, type(kept)) == (value, int)
    else:
        with pytest.raises(ParamError, match=f"^{name}="):
            TFEstimator(train, **{name: value})


def test_wrong_values_and_names_are_refused_wherever_they_are_given():
    estimator = TFEstimator(train)
    for give in (estimator.setBatchSize, lambda value: estimator.set(estimator.batchSize, value)):
        with pytest.raises(ParamError, match="batchSize=0"):
            give(0)
    with pytest.raises(ParamError, match="batchSize=0"):
        estimator.copy({estimator.batchSize: 0})
    with pytest.raises(ValueError, match="does not belong to"):
        estimator.set(TFModel().batchSize, 8)
    with pytest.raises(TypeError, match=r"^TFEstimator has no param 'batch_size'; did you mean batchSize\?$"):
        TFEstimator(train, batch_size=8)
    with pytest.raises(TypeError, match=r"^TFModel has no param 'zzz'; see explainParams\(\)$"):
        TFModel(zzz=1)
    with pytest.raises(ConfigError, match=r"^train_fn and model: give one of them"):
        TFEstimator(train, model=train)
    with pytest.raises(ConfigError, match=r"^train_fn=3: a function that takes"):
        TFEstimator(3)


# ---- Spark Deep Learning's text estimator ----------------------------------------------------------------------------


def map_fun(args={}, ctx=None, _read_data=None):  # noqa: B006 - the interface's own
    return args


GIVEN = {
    "inputCol": "matrix",
    "outputCol": "out",
    "labelCol": "label",
    "fitParam": [{"epochs": 5, "batch_size": 64, "model": "/models/a"}],
    "runningMode": "TFoS",
    "mapFnParam": map_fun,
    "local": "inline",
}


def test_a_text_estimator_has_its_params_and_defaults():
    given = {**GIVEN, "kafkaParam": {"topic": "t"}}
    estimator = TFTextFileEstimator(**given)
    assert {param.name for param in estimator.params} == set(given)
    assert all(param.doc for param in estimator.params)
    for name, value in given.items():
        title = name[0].upper() + name[1:]
        assert getattr(estimator, f"get{title}")() == value
        other = TFTextFileEstimator()
        assert getattr(other, f"set{title}")(value) is other
        assert other.getOrDefault(name) == value
    plain = TFTextFileEstimator(fitParam=({"epochs": 1},))
    copied = plain.copy({plain.runningMode: "TFoS"})
    assert (plain.getRunningMode(), plain.getLocal(), plain.getFitParam()) == ("Normal", "auto", [{"epochs": 1}])
    assert (copied.getRunningMode(), copied.getFitParam(), copied.uid) == ("TFoS", [{"epochs": 1}], plain.uid)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("fitParam", {"epochs": 5}, "fitParam is a dict: a list of dicts is needed, one for each model"),
        ("fitParam", [{}, 3], r"fitParam\[1\] is a int: a list of dicts is needed, one for each model"),
        ("fitParam", [], "fitParam is empty: give it a dict for each model"),
        ("fitParam", [{}, {"epochs": 0}], r"fitParam\[1\]\['epochs'\] is 0: a whole number from 1 on is needed"),
        ("fitParam", [{"model": ""}], r"fitParam\[0\]\['model'\] is '': a path is needed"),
        ("fitParam", [{3: 4}], r"fitParam\[0\] has the key 3: names are needed"),
        ("runningMode", "normal", r"runningMode='normal': 'Normal' \(a model for each fitParam\) and 'TFoS'"),
        ("mapFnParam", "train", r"mapFnParam is a str: a function is needed, def map_fun\(args=\{\}, ctx=None"),
        ("mapFnParam", lambda: None, r"cannot be called \(.*\): it has to be def map_fun\(args"),
        ("mapFnParam", lambda args, ctx, _read_data, more: None, "missing a required argument: 'more'"),
    ],
)
def test_what_makes_no_sense_for_a_text_estimator_is_refused_in_a_sentence(name, value, told):
    with pytest.raises(ValueError, match=told):
        TFTextFileEstimator(**{name: value})
    with pytest.raises(TypeError, match="inputCol=3: a text is needed"):
        TFTextFileEstimator(inputCol=3)
    with pytest.raises(TypeError, match="TFTextFileEstimator has no param 'epochs'; see explainParams"):
        TFTextFileEstimator().setParams(epochs=5)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, r"fit\(list\): a Spark DataFrame is needed"),
        ({"fitParam": [{"epochs": 5}]}, r"fitParam\[0\] has no 'model': in the mode 'TFoS' it names where the model"),
        (
            {"fitParam": [{"model": "/m"}, {"model": "/m"}], "runningMode": "Normal"},
            r"fitParam\[0\] and fitParam\[1\] save to the same 'model', /m: give each its own",
        ),
        (
            {"mapFnParam": lambda args, ctx: None, "runningMode": "Normal"},
            "does not take _read_data, its rows in the mode 'Normal'",
        ),
    ],
)
def test_what_does_not_fit_the_mode_is_refused_before_anything_begins(changed, told):
    with pytest.raises(ConfigError, match=told):
        TFTextFileEstimator(**{**GIVEN, **changed}).fit([])
    with pytest.raises(ConfigError) as caught:
        TFTextFileEstimator(labelCol="label").fit(SimpleNamespace())
    assert [problem.split()[0] for problem in caught.value.problems] == ["inputCol", "fitParam", "mapFnParam"]


def test_logging_is_set_up_for_programs_of_tensorflowonspark_only():
    for statement, logs in (("from tfos_lab.ml import TFTextFileEstimator", "[]"), ("import tfos_lab.compat", "[<Str")):
        code = f"import logging\n{statement}\nprint(logging.getLogger().handlers)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.startswith(logs)
