"""Keras' ``fit`` on fed rows validates on data of the user's own between its epochs, and goes on."""

from __future__ import annotations

import numpy as np
import pytest

import tfos_lab

ROWS = 12


def fit(args, ctx):
    import keras

    with ctx.strategy().scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    arrays = np.ones((4, 1)), np.ones((4, 1))
    return model.fit(ctx.dataset(4, label="y"), epochs=ctx.epochs, validation_data=arrays, verbose=0).history


@pytest.mark.tensorflow
def test_two_nodes_validate_on_arrays_after_each_epoch(spark):
    rows = {"x": np.zeros((ROWS, 1), np.float32), "y": np.zeros(ROWS, np.float32)}
    with tfos_lab.run(fit, cluster_size=2, spark=spark, name="validating") as cluster:
        cluster.train(rows, epochs=2)
        results = cluster.wait(timeout_s=120)
    assert len(results["chief:0"]["val_loss"]) == len(results["chief:0"]["loss"]) == 2
    assert results["chief:0"] == results["worker:0"]
