"""`MirroredStrategyRunner`: what the function runs in, what it returns, and what is refused; GPUs of `TFParallel`."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.bare_python import make_bare_python
from tests.support.fake_gpus import discovery_script, fake_gpus
from tests.support.quick import QUICK_ENV
from tfos_lab.compat import MirroredStrategyRunner, TFParallel
from tfos_lab.errors import ConfigError, NodeFailed


def train(rows, units=1):
    """Train as one process would; tell of the strategy that it finds."""
    import os

    import keras
    import numpy as np
    import tensorflow as tf

    strategy = tf.distribute.get_strategy()
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(units)])
    model.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensor_slices((np.ones((rows, 2), "f"), np.ones((rows, units), "f"))).batch(8)
    history = model.fit(data, epochs=2, verbose=0).history
    return {
        "strategy": type(strategy).__name__,
        "replicas": strategy.num_replicas_in_sync,
        "config": os.environ.get("TF_CONFIG"),
        "gpus": os.environ["CUDA_VISIBLE_DEVICES"],
        "loss": history["loss"],
    }


@pytest.mark.tensorflow
def test_the_function_trains_in_the_scope_of_a_strategy(spark):
    found = MirroredStrategyRunner(num_slots=2, use_gpu=False).run(train, rows=32, units=3)
    assert (found["strategy"], found["replicas"], found["gpus"]) == ("CollectiveAllReduceStrategy", 2, "")
    config = json.loads(found["config"])
    assert len(config["cluster"]["worker"]) == 2
    assert config["task"] == {"type": "worker", "index": 0}
    assert found["loss"][1] < found["loss"][0]


@pytest.mark.tensorflow
def test_local_mode_trains_on_this_machine(spark):
    found = MirroredStrategyRunner(num_slots=1, local_mode=True, use_gpu=False).run(train, rows=16)
    assert (found["strategy"], found["replicas"], found["config"]) == ("CollectiveAllReduceStrategy", 1, None)


@pytest.mark.tensorflow
def test_a_custom_strategy_is_the_functions_own(spark):
    def own():
        import tensorflow as tf

        before = tf.distribute.has_strategy()
        return before, tf.distribute.MultiWorkerMirroredStrategy().num_replicas_in_sync

    runner = MirroredStrategyRunner(num_slots=2, use_gpu=False, use_custom_strategy=True)
    assert list(runner.run(own)) == [False, 2]


def test_an_exception_comes_with_its_traceback(spark):
    def fail():
        raise ValueError("no such luck")

    runner = MirroredStrategyRunner(num_slots=1, use_gpu=False, use_custom_strategy=True)
    with pytest.raises(NodeFailed, match=r"(?s)ValueError: no such luck.*raise ValueError"):
        runner.run(fail)


@pytest.mark.parametrize("slots", [0, 1.5, "2", None])
def test_at_least_one_slot_is_needed(slots):
    with pytest.raises(ValueError, match="num_slots="):
        MirroredStrategyRunner(num_slots=slots)


def test_gpus_that_spark_does_not_assign_are_refused(spark):
    with pytest.raises(ConfigError, match=r"'spark.task.resource.fpga.amount' was not found"):
        MirroredStrategyRunner(num_slots=2, gpu_resource_name="fpga")
    with pytest.raises(ValueError, match="assigned no resource 'gpu' to the driver"):
        MirroredStrategyRunner(num_slots=1, local_mode=True).run(print)
    with pytest.raises(ValueError, match="use num_slots=1"):
        MirroredStrategyRunner(num_slots=2, local_mode=True, use_gpu=False).run(print)


def test_encryption_that_tensorflow_does_not_have_is_refused_unless_that_is_known(spark):
    def answer():
        return 42

    runner = MirroredStrategyRunner(num_slots=1, use_gpu=False, use_custom_strategy=True)
    known = "tensorflow.spark.distributor.ignoreSsl"
    spark.conf.set("spark.ssl.enabled", "true")
    try:
        with pytest.raises(ConfigError, match="gradients and variables to one another unencrypted"):
            runner.run(answer)
        spark.conf.set(known, "maybe")
        with pytest.raises(ConfigError, match="true or false is needed"):
            runner.run(answer)
        spark.conf.set(known, "TRUE")
        assert runner.run(answer) == 42
    finally:
        spark.conf.unset("spark.ssl.enabled")
        spark.conf.unset(known)


def test_gpus_are_those_that_spark_assigns_under_their_name(new_spark, monkeypatch, tmp_path):
    def look():
        import os

        from tfos_lab.ml import TFEstimator, TFModel  # executors have them without the driver's part, nor installed

        TFModel(modelPath="x"), TFEstimator(print)
        return os.environ.get("TF_CONFIG"), os.environ["CUDA_VISIBLE_DEVICES"]

    def write(args, ctx):
        Path(args[1], "seen").write_text(f"{os.environ['CUDA_VISIBLE_DEVICES']} {sys.argv == args}")

    # Executors inherit them: TensorFlow is not needed, and of these eight GPUs a node would take one by itself.
    for name, value in {**QUICK_ENV, **fake_gpus(tmp_path / "host", 8)}.items():
        monkeypatch.setenv(name, value)
    conf = {}
    for kind, addresses in {"gpu": ("1", "3"), "accelerator": ("2", "5")}.items():
        (tmp_path / kind).mkdir()
        script = discovery_script(tmp_path / kind, *addresses)
        script.write_text(script.read_text().replace("gpu", kind))
        for owner in ("worker", "executor"):
            conf[f"spark.{owner}.resource.{kind}.amount"] = "2"
            conf[f"spark.{owner}.resource.{kind}.discoveryScript"] = str(script)
        conf[f"spark.task.resource.{kind}.amount"] = "2"
    session = new_spark("local-cluster[2,2,1024]", conf=conf, python=make_bare_python(tmp_path / "bare"))
    runner = MirroredStrategyRunner(num_slots=3, gpu_resource_name="accelerator", use_custom_strategy=True)
    assert runner.get_num_tasks() == 2
    config, gpus = runner.run(look)
    assert gpus == "2,5"
    assert len(json.loads(config)["cluster"]["worker"]) == 2

    TFParallel.run(session.sparkContext, write, ["program", str(tmp_path)], 1)
    assert (tmp_path / "seen").read_text() == "1,3 True", "an instance has them, and the program's command line"
