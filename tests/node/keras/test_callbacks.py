"""``ctx.callbacks()`` under tf_keras, whose batch-level logs differ from those of Keras 3."""

from __future__ import annotations

import pytest

from tests.support.clusters import running_clusters

STEPS, EPOCHS = 6, 2


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))
    defaults = {"local": "processes", "env": {"TF_USE_LEGACY_KERAS": "1"}, "grace_s": 2.0}
    with running_clusters(defaults) as start:
        yield start


def fit_constant_model(args, ctx):
    """Fit a constant model, so that the metrics are the same after every step: three of four answers are right."""
    import numpy as np
    import tensorflow as tf
    import tf_keras as keras

    from tfos_lab.node.keras import callbacks

    callbacks.REPORT_INTERVAL_S = 0.0
    with ctx.strategy().scope():
        model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="zeros", input_shape=(3,))])
        model.compile(keras.optimizers.SGD(0.0), "mse", metrics=["accuracy"])
    rows, answers = np.ones((64, 3), "float32"), np.tile([0.0, 0.0, 1.0, 0.0], 16).astype("float32")
    dataset = tf.data.Dataset.from_tensor_slices((rows, answers)).batch(8).repeat()
    history = model.fit(dataset, epochs=args["epochs"], steps_per_epoch=args["steps"], callbacks=ctx.callbacks())
    return {name: values[-1] for name, values in history.history.items()}


def fit(run, **options):
    cluster = run(fit_constant_model, {"epochs": EPOCHS, "steps": STEPS}, **options)
    return cluster.wait(timeout_s=120), cluster.metrics


def test_metrics_within_an_epoch_are_not_summed_over_workers(run):
    results, metrics = fit(run)
    assert set(results) == {"chief:0", "worker:0"}
    assert results["chief:0"] == pytest.approx({"accuracy": 0.75, "loss": 0.25})
    assert len(metrics) > 2 * EPOCHS
    assert metrics["accuracy"].tolist() == pytest.approx([0.75] * len(metrics))
    assert metrics["loss"].tolist() == pytest.approx([0.25] * len(metrics))


def test_fit_under_parameter_servers_accepts_them_and_reports_each_epoch(run):
    results, metrics = fit(run, cluster_size=3, num_ps=1)
    assert results["chief:0"] == pytest.approx({"accuracy": 0.75, "loss": 0.25})
    assert metrics["step"].tolist() == [STEPS, 2 * STEPS]
    assert metrics["epoch"].tolist() == [1, 2]
    assert metrics["accuracy"].tolist() == pytest.approx([0.75, 0.75])


def resume_from_half_a_backup(args, ctx):
    """Return the epochs of each `fit`: the first one, one from a backup that was cut off, one with no other left."""
    from pathlib import Path

    import keras
    import numpy as np

    from tfos_lab.node.keras.callbacks import make_callbacks

    def fit(epochs):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
        callbacks = make_callbacks(lambda *_, **__: None, event_dir=None, backup_dir=args, is_chief=True)
        callbacks[0].delete_checkpoint = False
        return model.fit(np.ones((8, 2)), np.ones((8, 1)), epochs=epochs, callbacks=callbacks, verbose=0).epoch

    written, folder = [fit(2)], Path(args)
    (folder / "training_metadata.json").write_text("")
    written.append(fit(3))
    (folder / "training_metadata.json").write_text("")
    (folder / "latest.weights.h5.bkp").unlink()
    written.append(fit(2))
    return written


def test_training_resumes_where_the_chief_was_lost_while_it_wrote_its_backup(run, tmp_path):
    results = run(resume_from_half_a_backup, str(tmp_path / "backup"), cluster_size=1, env={}).wait(timeout_s=120)
    assert results["chief:0"] == [[0, 1], [1, 2], [0, 1]]
