"""What a fork server imports, and that it is not looked at for garbage, while what comes later is."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CODE = """
import gc
from tfos_lab.node.preload import preload
preload("plain")
print(gc.isenabled(), gc.get_freeze_count() > len(gc.get_objects()))
"""

# Trains in a forked process, and then uses what Keras has for scikit-learn and matplotlib. Prints what is imported.
EXTRAS = """
import json, os, sys
from tfos_lab.node.preload import preload
preload("tensorflow")
def imported():
    return [name for name in ("pandas", "sklearn", "matplotlib") if name in sys.modules]
if os.fork() == 0:
    import keras, numpy as np, pickle, tensorflow as tf
    found = [imported()]
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
    rows = np.ones((4, 2), "float32")
    model.fit(rows, rows[:, :1], verbose=2)
    model.fit(tf.data.Dataset.from_tensor_slices((rows, rows[:, :1])).batch(2), verbose=2)
    model.summary()
    found.append(imported())
    wrapper = keras.wrappers.SKLearnRegressor(model)
    from tensorflow.keras.visualization import plot_image_gallery
    import sklearn.base
    assert isinstance(wrapper, sklearn.base.RegressorMixin)
    assert pickle.loads(pickle.dumps(type(wrapper))) is tf.keras.wrappers.SKLearnRegressor
    print(json.dumps([*found, imported()]), flush=True)
    os._exit(0)
sys.exit(os.wait()[1])
"""


def test_imported_objects_are_exempt_from_garbage_collection_and_later_ones_are_not():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


@pytest.mark.tensorflow
def test_scikit_learn_and_matplotlib_are_imported_when_what_needs_them_is_used_and_not_to_train():
    done = subprocess.run([sys.executable, "-c", EXTRAS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    everything = ["pandas", "sklearn", "matplotlib"]
    assert json.loads(done.stdout.splitlines()[-1]) == [["pandas"], ["pandas"], everything]
