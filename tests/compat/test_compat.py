"""`compat`: what differs between releases of TensorFlow and Keras, under one name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfos_lab.compat import compat

pytestmark = pytest.mark.tensorflow


def model_of(keras):
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])


def module():
    import tensorflow as tf

    class Double(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 2])])
        def __call__(self, x):
            return 2 * x

    return Double()


@pytest.mark.parametrize("kind", ["keras", "tf_keras", "module"])
def test_the_chiefs_model_becomes_a_saved_model(kind, tmp_path, monkeypatch):
    import tensorflow as tf

    monkeypatch.setenv("TFOS_LAB_SCRATCH", str(tmp_path / "scratch"))
    model = module() if kind == "module" else model_of(pytest.importorskip(kind))
    compat.export_saved_model(model, f"file://{tmp_path}/chiefs", True)
    compat.export_saved_model(model, f"file://{tmp_path}/workers")
    loaded = tf.saved_model.load(str(tmp_path / "chiefs"))
    if kind != "module":
        (result,) = loaded.signatures["serving_default"](tf.constant([[1.0, 2.0]])).values()
        assert result.numpy().tolist() == [[3.0]]
    assert not (tmp_path / "workers").exists()
    assert (tmp_path / "scratch" / "worker_model" / "saved_model.pb").exists()


def test_without_a_nodes_folder_the_copy_of_a_worker_is_a_temporary_one(tmp_path, monkeypatch):
    monkeypatch.delenv("TFOS_LAB_SCRATCH", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    compat.export_saved_model(module(), "not-used")
    assert [path.name for path in tmp_path.glob("*/*")] == ["worker_model"]
    assert not Path("not-used").exists()


def test_auto_sharding_is_turned_off():
    import tensorflow as tf

    options = tf.data.Options()
    compat.disable_auto_shard(options)
    assert options.experimental_distribute.auto_shard_policy is tf.data.experimental.AutoShardPolicy.OFF


def test_a_gpu_is_available_where_tensorflow_sees_one(monkeypatch):
    import tensorflow as tf

    for devices in ([], ["GPU:0"]):
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind, found=devices: found)
        assert compat.is_gpu_available() is bool(devices)
