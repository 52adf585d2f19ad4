"""A model's source, inputs and outputs, as values that the driver and the executors exchange."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from math import prod
from typing import Any

# What Keras writes a model to; anything else is a SavedModel's folder.
KERAS_SUFFIXES = (".keras", ".h5")
# Where a SavedModel's other names lie, in a folder for extra assets.
_NAMES_FILE = "assets.extra/keras_names.json"
# How the names begin that Keras 3 makes up.
_MADE_UP = ("keras_tensor", "input_layer")

# An input's or output's name → its other names.
Names = dict[str, list[str]]


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """Where a model comes from: a ``.keras`` or ``.h5`` file, or the folder of a SavedModel.

    ``data`` is the content of a ``.keras`` file that is sent to the executors, and ``package`` what wrote it: ``keras``
    or ``tf_keras``. An empty ``signature`` means ``serving_default`` or the only one, empty ``tags`` the only graph. A
    model ``is_trusted`` that is an object of the notebook, so that the code in it is the user's own. ``option`` is the
    user's name for the path, for errors.
    """

    path: str = ""
    data: bytes = b""
    package: str = "keras"
    signature: str = "serving_default"
    tags: str = ""
    is_trusted: bool = False
    option: str = "model"


@dataclass(frozen=True)
class Tensor:
    """An input or output of a model, by the model's name for it, and others that it is known by.

    The shape is that of a row. None in it is a length that the model leaves open; None for all of it, the number of
    dimensions.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None
    aliases: tuple[str, ...] = ()

    @property
    def size(self) -> int | None:
        """Number of values in a row, or None if the model leaves a length open."""
        return None if self.shape is None or None in self.shape else prod(size or 0 for size in self.shape)


def by_name(tensors: Iterable[Tensor]) -> dict[str, Tensor]:
    """Return inputs or outputs by all of their names; a tensor's own name counts more than another's alias."""
    given = list(tensors)
    return {alias: tensor for tensor in given for alias in tensor.aliases} | {tensor.name: tensor for tensor in given}


def names_of(tensors: Iterable[Tensor]) -> str:
    """Return the names of inputs or outputs, for a sentence."""
    return ", ".join(tensor.name for tensor in tensors)


@dataclass(frozen=True)
class Description:
    """Inputs and outputs of a model; both are empty where it does not declare them (a subclassed model)."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @classmethod
    def from_json(cls, text: str) -> Description:
        """Decode what `to_json` encoded."""
        return cls(*(tuple(_decoded(*fields) for fields in side) for side in json.loads(text)))

    def to_json(self) -> str:
        """Encode the description as JSON."""
        return json.dumps([[astuple(tensor) for tensor in side] for side in (self.inputs, self.outputs)])


def _decoded(name: str, dtype: str, shape: list[int | None] | None, aliases: list[str]) -> Tensor:
    return Tensor(name, dtype, None if shape is None else tuple(shape), tuple(aliases))


def describe(model: Any) -> Description:
    """Describe a live Keras model, or the signature of a SavedModel."""
    if hasattr(model, "structured_outputs"):
        others = getattr(model, "other_names", {})
        sides = model.structured_input_signature[1], model.structured_outputs
        inputs, outputs = (
            tuple(_tensor(name, spec.dtype.name, spec.shape, others.get(name, ())) for name, spec in side.items())
            for side in sides
        )
        return Description(inputs, outputs)
    try:
        given, found = list(model.inputs or ()), named_outputs(model, _outputs(model))
    except (AttributeError, ValueError):  # a model that has not been built
        return Description((), ())
    others = _input_names(model)
    layers = _output_names(model)
    names = [x.name.partition(":")[0] for x in given]
    numbered = zip(range(len(found)), layers if len(layers) == len(found) else found, strict=True)
    aliases = [(f"output_{i}", layer) for i, layer in numbered]
    return Description(
        tuple(_tensor(name, x.dtype, x.shape, others.get(name, ())) for name, x in zip(names, given, strict=True)),
        tuple(_tensor(name, y.dtype, y.shape, alias) for (name, y), alias in zip(found.items(), aliases, strict=True)),
    )


def _outputs(model: Any) -> Any:
    """Return a Keras model's outputs, by name where it returns a dict: its list of outputs has another order."""
    with contextlib.suppress(AttributeError, ValueError):  # a subclassed model has none
        whole = model.output
        if isinstance(whole, Mapping) and all(hasattr(value, "shape") for value in whole.values()):
            return whole
    return model.outputs or ()


def _tensor(name: str, dtype: Any, shape: Iterable[int | None], names: Iterable[str]) -> Tensor:
    text = dtype if isinstance(dtype, str) else str(getattr(dtype, "name", dtype))
    aliases = tuple(other for other in dict.fromkeys(names) if other != name)
    if getattr(shape, "rank", 0) is None:
        return Tensor(name, text, None, aliases)
    return Tensor(name, text, tuple(None if size is None else int(size) for size in tuple(shape)[1:]), aliases)


def named_outputs(model: Any, outputs: Any) -> dict[str, Any]:
    """Name a Keras model's outputs: by the keys of its dict, by the layers that compute them, or by number."""
    if isinstance(outputs, Mapping):
        return dict(outputs)
    values = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
    names = list(getattr(model, "output_names", None) or ())
    if len(names) != len(values):
        names = [f"output_{i}" for i in range(len(values))]
    return dict(zip(names, values, strict=True))


# ---- other names ----------------------------------------------------------------------------------------------------

# Keras 2 named a SavedModel's inputs and outputs after layers (``dense_input``, ``dense``), Keras 3 numbers them. Both
# are known where the names lie beside the SavedModel, so that mappings for Keras 2's names fit what Keras 3 exports.


def _input_names(model: Any) -> Names:
    """Return Keras 2's names of a live model's inputs, where they are not the user's own."""
    first = [f"{model.layers[0].name}_input"] if _is_sequential(model) and model.layers else []
    names = [tensor.name.partition(":")[0] for tensor in getattr(model, "inputs", None) or ()]
    return {name: [*first, f"input_{i + 1}"] for i, name in enumerate(names) if name.startswith(_MADE_UP)}


def _output_names(model: Any) -> list[str]:
    """Return the names of the layers that compute a live model's outputs, in order; empty if they are not known."""
    names = getattr(model, "output_names", None)
    return list(names) if names else [model.layers[-1].name] if _is_sequential(model) and model.layers else []


def _is_sequential(model: Any) -> bool:
    return any(kind.__name__ == "Sequential" for kind in type(model).__mro__)


def write_names(model: Any, folder: str) -> None:
    """Write the other names of a live Keras model beside what Keras 3 has exported of it."""
    import tensorflow as tf

    outputs = {f"output_{i}": [name] for i, name in enumerate(_output_names(model))}
    path = f"{folder}/{_NAMES_FILE}"
    tf.io.gfile.makedirs(path.rpartition("/")[0])
    with tf.io.gfile.GFile(path, "w") as file:
        file.write(json.dumps(_input_names(model) | outputs))


def read_names(folder: str) -> Names:
    """Return the other names of a SavedModel's inputs and outputs; empty if none were written."""
    import tensorflow as tf

    path = f"{folder}/{_NAMES_FILE}"
    if not tf.io.gfile.exists(path):
        return {}
    with tf.io.gfile.GFile(path) as file:
        found: Names = json.loads(file.read())
    return found
