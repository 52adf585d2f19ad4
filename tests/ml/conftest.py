"""Small models that the tests of this folder share, and functions that train without TensorFlow."""

from types import SimpleNamespace

import pytest

import tfos_lab
from tests.support.tensorflow_process import in_tensorflow

MAKE = """
import keras
import numpy as np

folder = arguments[0]

def line(factor):
    inputs = keras.Input((2,), name="x")
    model = keras.Model(inputs, keras.layers.Dense(1, name="line")(inputs))
    model.set_weights([np.full((2, 1), factor, "f"), np.zeros(1, "f")])
    return model

line(1.0).save(f"{folder}/one.keras")
line(3.0).save(f"{folder}/three.keras")
line(3.0).export(f"{folder}/exported", verbose=False)

inputs = keras.Input((2,), name="x")
softmax = keras.Model(inputs, keras.layers.Softmax()(inputs))
softmax.save(f"{folder}/classes.keras")

a, b = keras.Input((1,), name="a"), keras.Input((2,), name="b")
two = keras.Model([a, b], {"sum": keras.layers.Add()([a, b]), "first": keras.layers.Identity()(a)})
two.save(f"{folder}/two.keras")
answer = None
"""


@pytest.fixture(autouse=True)
def _runs_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Paths of models: ``one`` and ``three`` (times the sum of ``x``), ``exported``, ``classes``, ``two``."""
    folder = tmp_path_factory.mktemp("models")
    in_tensorflow(MAKE, str(folder))
    return SimpleNamespace(
        one=str(folder / "one.keras"),
        three=str(folder / "three.keras"),
        exported=str(folder / "exported"),
        classes=str(folder / "classes.keras"),
        two=str(folder / "two.keras"),
    )


@pytest.fixture
def rows(spark):
    """Six rows of vectors, whose label is three times their sum."""
    from pyspark.ml.linalg import Vectors

    values = [(Vectors.dense(i, 1.0), 3.0 * (i + 1.0), float(i)) for i in range(6)]
    return spark.createDataFrame(values, ["features", "label", "number"]).coalesce(1)


@pytest.fixture
def no_clusters():
    """A function that tells whether all clusters have ended that a test has started."""
    before = set(tfos_lab.clusters())
    return lambda: all(cluster.ended for cluster in set(tfos_lab.clusters()) - before)
