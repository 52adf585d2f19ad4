"""Other names of a Keras model's inputs and outputs, so that mappings for Keras 2's names fit what Keras 3 exports.

Keras 2 named a SavedModel's inputs and outputs after layers (``dense_input``, ``dense``), Keras 3 numbers them. Both
are known where the names lie beside the SavedModel, in a file for extra assets.
"""

from __future__ import annotations

import json
from typing import Any

_FOLDER = "assets.extra"
_FILE = "keras_names.json"
# How the names begin that Keras 3 makes up.
_MADE_UP = ("keras_tensor", "input_layer")

# An input's or output's name → its other names.
Names = dict[str, list[str]]


def input_names(model: Any) -> Names:
    """Return Keras 2's names of a live model's inputs, where they are not the user's own."""
    first = [f"{model.layers[0].name}_input"] if _is_sequential(model) and model.layers else []
    names = [tensor.name.partition(":")[0] for tensor in getattr(model, "inputs", None) or ()]
    return {name: [*first, f"input_{i + 1}"] for i, name in enumerate(names) if name.startswith(_MADE_UP)}


def output_names(model: Any) -> list[str]:
    """Return the names of the layers that compute a live model's outputs, in order; empty if they are not known."""
    names = getattr(model, "output_names", None)
    return list(names) if names else [model.layers[-1].name] if _is_sequential(model) and model.layers else []


def _is_sequential(model: Any) -> bool:
    return any(kind.__name__ == "Sequential" for kind in type(model).__mro__)


def write_names(model: Any, folder: str) -> None:
    """Write the other names of a live Keras model beside what Keras 3 has exported of it."""
    import tensorflow as tf

    outputs = {f"output_{i}": [name] for i, name in enumerate(output_names(model))}
    tf.io.gfile.makedirs(f"{folder}/{_FOLDER}")
    with tf.io.gfile.GFile(f"{folder}/{_FOLDER}/{_FILE}", "w") as file:
        file.write(json.dumps(input_names(model) | outputs))


def read_names(folder: str) -> Names:
    """Return the other names of a SavedModel's inputs and outputs; empty if none were written."""
    import tensorflow as tf

    path = f"{folder}/{_FOLDER}/{_FILE}"
    if not tf.io.gfile.exists(path):
        return {}
    with tf.io.gfile.GFile(path) as file:
        found: Names = json.loads(file.read())
    return found
