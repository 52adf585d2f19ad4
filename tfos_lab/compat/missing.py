"""Advice for imports and names that programs of TensorFlowOnSpark's time use, and that are gone or not installed."""

from __future__ import annotations

import re

_ESTIMATOR = (
    "tf.estimator left TensorFlow with release 2.16: train a Keras model instead (docs/from-tensorflowonspark.md)"
)
_TF1 = "it is TensorFlow 1's: import tensorflow.compat.v1 as tf, and call tf.disable_v2_behavior()"
# The longest name that fits counts.
_MODULES = {
    "absl": "pip install absl-py",
    "distutils": "Python 3.12 has dropped it: packaging.version has what LooseVersion was for",
    "imp": "Python 3.12 has dropped it: use importlib",
    "keras.backend.tensorflow_backend": "it was Keras 2.2's: use tf.keras.backend",
    "packaging": "pip install packaging",
    "pkg_resources": (
        "setuptools has dropped it: importlib.metadata.version('tensorflow') tells a version; "
        "or pip install 'setuptools<81'"
    ),
    "six": "pip install six",
    "tensorflow.contrib": "it was TensorFlow 1's: most of it is in tf.keras, tf.data and tf.compat.v1 today",
    "tensorflow.examples": "its tutorials are gone: tf.keras.datasets.mnist and tfos_lab.data.mnist() have MNIST",
    "tensorflow.python.estimator": _ESTIMATOR,
    "tensorflow_addons": "it has ended: most of it is in Keras today",
    "tensorflow_datasets": "pip install tensorflow-datasets, here and on the executors",
    "tensorflow_estimator": _ESTIMATOR,
    "tensorflow_hub": "pip install tensorflow-hub, here and on the executors",
    "tf_keras": "TF_USE_LEGACY_KERAS=1 asks for Keras 2: pip install tf_keras, here and on the executors",
}
_TF1_NAMES = (
    *("ConfigProto", "FixedLenFeature", "FixedLenSequenceFeature", "InteractiveSession", "Session", "VarLenFeature"),
    *("app", "assign", "gfile", "get_variable", "global_variables_initializer", "logging", "parse_single_example"),
    *("placeholder", "random_normal", "read_file", "reset_default_graph", "trainable_variables", "truncated_normal"),
    *("variable_scope",),
)
_NAMES = {"contrib": _MODULES["tensorflow.contrib"], "estimator": _ESTIMATOR} | dict.fromkeys(_TF1_NAMES, _TF1)
_NO_ATTRIBUTE = re.compile(r"module '(?:tensorflow|tensorflow\.\w+)' has no attribute '(\w+)'")


def add_advice(error: BaseException) -> None:
    """Add a line to the traceback of an error that a missing module or name has caused, if there is something to do."""
    advice = _advice_for(error)
    if advice and advice not in getattr(error, "__notes__", ()):
        error.add_note(advice)


def _advice_for(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        parts = (error.name or "").split(".")
        names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
        return next((f"{name}: {_MODULES[name]}" for name in names if name in _MODULES), "")
    found = _NO_ATTRIBUTE.search(str(error)) if isinstance(error, AttributeError) else None
    return f"tf.{found[1]}: {_NAMES[found[1]]}" if found and found[1] in _NAMES else ""
