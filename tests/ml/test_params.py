"""Params of `TFEstimator` and `TFModel`: what Spark ML promises of them, and the sentence for what they refuse."""

from __future__ import annotations

import argparse
import inspect
import json
import subprocess
import sys
import zlib

import numpy as np
import pytest

from tfos_lab.compat.namespace import Namespace
from tfos_lab.core.code_archive import code_archive
from tfos_lab.core.config import ClusterConfig, FeedConfig
from tfos_lab.core.options import options_of
from tfos_lab.errors import ConfigError, ParamError
from tfos_lab.ml import TFEstimator, TFModel
from tfos_lab.ml.param_values import camel_case


def train(args, ctx):
    """Is never called here."""


@pytest.mark.parametrize("stage", [TFEstimator, TFModel])
def test_every_param_has_a_doc_a_setter_and_a_getter(stage):
    made = stage()
    assert [param.name for param in made.params] == sorted(made.declared)
    for param in made.params:
        title = param.name[0].upper() + param.name[1:]
        assert param.doc in getattr(stage, f"set{title}").__doc__
        assert callable(getattr(stage, f"get{title}"))
        assert made.hasParam(param.name)
        assert param.name in inspect.signature(stage).parameters
        assert param.name in stage.__doc__
    assert len(made.explainParams().splitlines()) == len(made.params)
    assert "batchSize: Rows " in made.explainParams()


def test_the_options_of_a_cluster_are_params_with_the_same_defaults():
    estimator = TFEstimator(train)
    found = {
        "clusterSize": ClusterConfig().cluster_size,
        "numPS": ClusterConfig().num_ps,
        "masterNode": "chief",
        "reservationTimeout": ClusterConfig().reservation_timeout_s,
        "feedTimeout": FeedConfig().timeout_s,
        "epochs": 1,
    }
    assert {name: estimator.getOrDefault(name) for name in found} == found
    engine = {camel_case(one.name) for one in (*options_of(ClusterConfig), *options_of(FeedConfig))}
    assert engine - set(estimator.declared) == {"name", "columns", "objects"}


def test_setters_return_the_stage_and_the_constructor_takes_the_same_names():
    estimator = TFEstimator(train, {"lr": 0.1}, batchSize=8, inputCols="x", masterNode=None)
    assert estimator.setEpochs(3).setNumPS(np.int64(1)).setTensorboard(True) is estimator
    assert (estimator.getEpochs(), estimator.getNumPS(), estimator.getTensorboard()) == (3, 1, True)
    assert (estimator.getInputCols(), estimator.getMasterNode(), estimator.getArgs()) == (["x"], None, {"lr": 0.1})
    assert type(estimator.getNumPS()) is int
    assert estimator.setParams(batchSize=16.0).getBatchSize() == 16


@pytest.mark.parametrize("args", [{"lr": 0.1}, argparse.Namespace(lr=0.1), Namespace({"lr": 0.1})])
def test_arguments_are_a_param(args):
    estimator = TFEstimator(train, args)
    assert estimator.getArgs() == {"lr": 0.1}
    assert estimator.copy({estimator.args: {"lr": 0.2}}).getArgs() == {"lr": 0.2}
    assert estimator.getArgs() == {"lr": 0.1}


def test_a_copy_has_the_same_identity_and_params_of_its_own():
    estimator = TFEstimator(train, batchSize=8)
    copied = estimator.copy({estimator.epochs: 5})
    assert (copied.uid, copied.train_fn, copied.getBatchSize(), copied.getEpochs()) == (estimator.uid, train, 8, 5)
    copied.setBatchSize(9)
    assert (estimator.getBatchSize(), estimator.getEpochs()) == (8, 1)


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
        ({"batchSize": True}, "^batchSize=True: a whole number"),
        ({"batchSize": 1.5}, "^batchSize=1.5: a whole number"),
        ({"clusterSize": 0}, "^clusterSize=0: at least one node is needed$"),
        ({"epochs": np.float64(0)}, "^epochs=0: at least one is needed$"),
        ({"masterNode": "boss"}, "^masterNode='boss': not a job name that can lead"),
        ({"local": False}, "^local=False: use one of auto"),
        ({"inputCols": []}, r"^inputCols=\[\]: a list of names is needed$"),
        ({"inputCols": ["x", "x"]}, "^inputCols: 'x' is there twice$"),
        ({"inputMapping": ["x"]}, r"^inputMapping=\['x'\]: a dict of names to names is needed$"),
        ({"featuresCol": ["x"]}, r"^featuresCol=\['x'\]: a text is needed"),
        ({"shuffle": 1}, "^shuffle=1: True or False is needed$"),
        ({"exportDir": 3}, "^exportDir=3: a path is needed$"),
        ({"env": {"TF_CONFIG": "{}"}}, r"^env\['TF_CONFIG'\]: is set by tfos_lab on every node$"),
        (
            {"args": ["--lr", "0.1"]},
            r"^args=\['--lr', '0.1'\]: use a dict with texts as keys, or an argparse",
        ),
        ({"batchSize": 0, "epochs": "x"}, "^batchSize=0: .*; epochs='x': a whole number is needed$"),
    ],
)
def test_wrong_values_are_refused_in_a_sentence(params, message):
    with pytest.raises(ParamError, match=message) as raised:
        TFEstimator(train, **params)
    assert isinstance(raised.value, TypeError)
    assert isinstance(raised.value, ValueError)


def test_wrong_values_are_refused_wherever_they_are_given():
    estimator = TFEstimator(train)
    for give in (estimator.setBatchSize, lambda value: estimator.set(estimator.batchSize, value)):
        with pytest.raises(ParamError, match="batchSize=0"):
            give(0)
    with pytest.raises(ParamError, match="batchSize=0"):
        estimator.copy({estimator.batchSize: 0})
    with pytest.raises(ValueError, match="does not belong to"):
        estimator.set(TFModel().batchSize, 8)


def test_a_name_that_is_no_param_is_refused_with_the_nearest():
    with pytest.raises(TypeError, match=r"^TFEstimator has no param 'batch_size'; did you mean batchSize\?$"):
        TFEstimator(train, batch_size=8)
    with pytest.raises(TypeError, match=r"^TFModel has no param 'zzz'; see explainParams\(\)$"):
        TFModel(zzz=1)


def test_what_is_trained_is_a_function_or_a_model_not_both():
    with pytest.raises(ConfigError, match=r"^train_fn and model: give one of them"):
        TFEstimator(train, model=train)
    with pytest.raises(ConfigError, match=r"^train_fn=3: a function that takes"):
        TFEstimator(3)


def test_executors_can_import_both_from_the_archive_without_the_driver(tmp_path):
    for path, text in json.loads(zlib.decompress(code_archive()[0])).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from tfos_lab.ml import TFEstimator, TFModel; "
        "TFModel(modelPath='x'); import pyspark; "
        "print(sys.modules['tfos_lab'].__file__, pyspark.SparkContext._gateway, 'tfos_lab.engine' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(tmp_path / "tfos_lab" / "__init__.py"), "None", "False"]
