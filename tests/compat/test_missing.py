"""Advice on imports and names of older releases: what a traceback ends with."""

from __future__ import annotations

import pytest

from tfos_lab.compat.missing import add_advice


def notes_of(error):
    add_advice(error)
    add_advice(error)  # it is told once
    return getattr(error, "__notes__", [])


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("pkg_resources", "pkg_resources: setuptools has dropped it: importlib.metadata.version('tensorflow') tells"),
        ("tensorflow.contrib", "tensorflow.contrib: it was TensorFlow 1's"),
        (
            "tensorflow.examples.tutorials.mnist",
            "tensorflow.examples: its tutorials are gone: tf.keras.datasets.mnist and tfos_lab",
        ),
        ("tensorflow_estimator", "tensorflow_estimator: tf.estimator left TensorFlow with release 2.16"),
        ("tf_keras", "tf_keras: TF_USE_LEGACY_KERAS=1 asks for Keras 2: pip install tf_keras"),
        ("six.moves", "six: pip install six"),
    ],
)
def test_a_missing_module_is_explained(module, expected):
    [note] = notes_of(ModuleNotFoundError(f"No module named {module!r}", name=module))
    assert note.startswith(expected)


def test_names_that_left_tensorflow_are_explained():
    [note] = notes_of(AttributeError("module 'tensorflow' has no attribute 'estimator'"))
    assert note.startswith("tf.estimator: tf.estimator left TensorFlow")
    [note] = notes_of(AttributeError("module 'tensorflow' has no attribute 'placeholder'"))
    assert (
        note
        == "tf.placeholder: it is TensorFlow 1's: import tensorflow.compat.v1 as tf, and call tf.disable_v2_behavior()"
    )


@pytest.mark.tensorflow
def test_tensorflow_words_it_as_expected():
    import tensorflow as tf

    for name in ("estimator", "contrib", "placeholder"):
        with pytest.raises(AttributeError) as raised:
            getattr(tf, name)
        assert len(notes_of(raised.value)) == 1


@pytest.mark.parametrize(
    "error", [ModuleNotFoundError("No module named 'mine'", name="mine"), AttributeError("no"), ValueError("six")]
)
def test_other_errors_stay_as_they_are(error):
    assert notes_of(error) == []
