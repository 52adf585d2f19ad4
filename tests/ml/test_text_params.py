"""The parameters of `TFTextFileEstimator`: set, read, copied, and refused where they make no sense."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from tfos_lab.errors import ConfigError
from tfos_lab.ml import TFTextFileEstimator


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


def test_parameters_have_documentation_setters_and_getters():
    estimator = TFTextFileEstimator(**GIVEN, kafkaParam={"topic": "t"})
    assert {param.name for param in estimator.params} == {*GIVEN, "kafkaParam"}
    assert all(param.doc for param in estimator.params)
    for name, value in {**GIVEN, "kafkaParam": {"topic": "t"}}.items():
        title = name[0].upper() + name[1:]
        assert getattr(estimator, f"get{title}")() == value
        other = TFTextFileEstimator()
        assert getattr(other, f"set{title}")(value) is other
        assert other.getOrDefault(name) == value


def test_defaults_and_copies():
    estimator = TFTextFileEstimator(fitParam=({"epochs": 1},))
    assert (estimator.getRunningMode(), estimator.getLocal(), estimator.getFitParam()) == (
        "Normal",
        "auto",
        [{"epochs": 1}],
    )
    other = estimator.copy({estimator.runningMode: "TFoS"})
    assert (other.getRunningMode(), other.getFitParam()) == ("TFoS", [{"epochs": 1}])
    assert (estimator.getRunningMode(), other.uid) == ("Normal", estimator.uid)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("fitParam", {"epochs": 5}, "fitParam is a dict: a list of dicts is needed, one for each model"),
        ("fitParam", "epochs", "fitParam is a str"),
        ("fitParam", [5], "fitParam is a list: a list of dicts is needed"),
        ("fitParam", [], "fitParam is empty: give it a dict for each model"),
        ("fitParam", [{}, {"epochs": 0}], r"fitParam\[1\]\['epochs'\] is 0: a whole number from 1 on is needed"),
        ("fitParam", [{"cluster_size": "2"}], r"\['cluster_size'\] is '2'"),
        ("fitParam", [{"batch_size": True}], r"\['batch_size'\] is True"),
        ("fitParam", [{"model": ""}], r"fitParam\[0\]\['model'\] is '': a path is needed"),
        ("fitParam", [{3: 4}], r"fitParam\[0\] has the key 3: names are needed"),
        ("runningMode", "normal", r"runningMode='normal': 'Normal' \(a model for each fitParam\) and 'TFoS'"),
        ("runningMode", 3, "runningMode=3"),
        ("mapFnParam", "train", r"mapFnParam is a str: a function is needed, def map_fun\(args=\{\}, ctx=None"),
        ("mapFnParam", lambda: None, r"cannot be called \(.*\): it has to be def map_fun\(args"),
        ("mapFnParam", lambda x, y, z: None, "missing a required argument: .x."),
        ("mapFnParam", lambda args, ctx, _read_data, more: None, "missing a required argument: 'more'"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(name, value, told):
    with pytest.raises(ValueError, match=told):
        TFTextFileEstimator(**{name: value})


@pytest.mark.parametrize(("name", "value"), [("inputCol", 3), ("labelCol", ["label"]), ("kafkaParam", "host")])
def test_a_wrong_type_is_refused_as_spark_does(name, value):
    with pytest.raises(TypeError, match=f'param "{name}"'):
        TFTextFileEstimator(**{name: value})


def test_an_unknown_parameter_is_refused():
    with pytest.raises(ConfigError, match="epochs: there is no such parameter; there are fitParam, inputCol"):
        TFTextFileEstimator().setParams(epochs=5)


def test_what_is_not_set_is_told_before_anything_begins():
    with pytest.raises(ConfigError) as caught:
        TFTextFileEstimator(labelCol="label").fit(SimpleNamespace())
    assert [problem.split()[0] for problem in caught.value.problems] == ["inputCol", "fitParam", "mapFnParam"]


def test_no_data_frame_is_refused():
    with pytest.raises(ConfigError, match="a Spark DataFrame is needed, not a list"):
        TFTextFileEstimator(**GIVEN).fit([])


@pytest.mark.parametrize(
    ("changed", "told"),
    [
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
def test_what_does_not_fit_the_mode_is_refused(changed, told):
    with pytest.raises(ConfigError, match=told):
        TFTextFileEstimator(**{**GIVEN, **changed}).fit([])


@pytest.mark.parametrize(("module", "logs"), [("tfos_lab.ml.text", "[]"), ("tfos_lab.compat", "[<StreamHandler")])
def test_logging_is_set_up_for_programs_of_tensorflowonspark_only(module, logs):
    code = f"import logging, {module}; print(logging.getLogger().handlers)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(logs)
