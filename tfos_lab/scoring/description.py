"""A model's source, inputs and outputs, as values that the driver and the executors exchange."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

# What Keras writes a model to; anything else is a SavedModel's folder.
KERAS_SUFFIXES = (".keras", ".h5")


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """Where a model comes from.

    Parameters
    ----------
    path : str
        A ``.keras`` or ``.h5`` file, or the folder of a SavedModel.
    data : bytes
        The content of a ``.keras`` file, if it is sent to the executors.
    package : str
        ``keras`` or ``tf_keras``.
    signature : str
        Which signature of a SavedModel to call; if empty, ``serving_default`` or the only one.
    tags : str
        The tags of a SavedModel's graph, separated by commas; if empty, its only graph.
    is_trusted : bool
        Whether the model is an object of the notebook, so that the code in it is the user's own.
    option : str
        The user's name for the path, for errors.
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
    """An input or output of a model.

    Parameters
    ----------
    name : str
        The model's name for it.
    dtype : str
        TensorFlow's name for its dtype.
    shape : tuple of (int or None), or None
        That of a row. None in it is a length that the model leaves open; None for all of it, the number of dimensions.
    alias : str
        Another name that it is known by.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None
    alias: str = ""

    @property
    def size(self) -> int | None:
        """Number of values in a row, or None if the model leaves a length open."""
        return None if self.shape is None or None in self.shape else prod(size or 0 for size in self.shape)


@dataclass(frozen=True)
class Description:
    """Inputs and outputs of a model; both are empty where it does not declare them (a subclassed model)."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @classmethod
    def from_json(cls, text: str) -> Description:
        """Decode what `to_json` encoded."""
        sides = json.loads(text)
        inputs, outputs = (tuple(_decoded(*fields) for fields in sides[side]) for side in ("inputs", "outputs"))
        return cls(inputs, outputs)

    def to_json(self) -> str:
        """Encode the description as JSON."""
        sides = {"inputs": self.inputs, "outputs": self.outputs}
        return json.dumps(
            {side: [[t.name, t.dtype, t.shape, t.alias] for t in tensors] for side, tensors in sides.items()}
        )


def _decoded(name: str, dtype: str, shape: list[int | None] | None, alias: str) -> Tensor:
    return Tensor(name, dtype, None if shape is None else tuple(shape), alias)


def describe(model: Any) -> Description:
    """Describe a live Keras model, or the signature of a SavedModel."""
    if hasattr(model, "structured_outputs"):
        given = model.structured_input_signature[1]
        return Description(
            tuple(_tensor(name, spec.dtype.name, spec.shape) for name, spec in given.items()),
            tuple(_tensor(name, spec.dtype.name, spec.shape) for name, spec in model.structured_outputs.items()),
        )
    try:
        inputs, outputs = list(model.inputs or ()), named_outputs(model, _outputs(model))
    except (AttributeError, ValueError):  # a model that has not been built
        return Description((), ())
    return Description(
        tuple(_tensor(x.name.partition(":")[0], x.dtype, x.shape) for x in inputs),
        tuple(
            _tensor(name, y.dtype, y.shape, _alias(model, i, outputs)) for i, (name, y) in enumerate(outputs.items())
        ),
    )


def _alias(model: Any, position: int, outputs: Mapping[str, Any]) -> str:
    """Return an output's other name: its number, or the layer that computes it where its name is its number."""
    numbered = f"output_{position}"
    layers = getattr(model, "layers", None)
    return numbered if numbered not in outputs else layers[-1].name if layers and len(outputs) == 1 else ""


def _outputs(model: Any) -> Any:
    """Return a Keras model's outputs, by name where it returns a dict: its list of outputs has another order."""
    with contextlib.suppress(AttributeError, ValueError):  # a subclassed model has none
        whole = model.output
        if isinstance(whole, Mapping) and all(hasattr(value, "shape") for value in whole.values()):
            return whole
    return model.outputs or ()


def _tensor(name: str, dtype: Any, shape: Iterable[int | None], alias: str = "") -> Tensor:
    text = dtype if isinstance(dtype, str) else str(getattr(dtype, "name", dtype))
    if getattr(shape, "rank", 0) is None:
        return Tensor(name, text, None, alias)
    return Tensor(name, text, tuple(None if size is None else int(size) for size in tuple(shape)[1:]), alias)


def named_outputs(model: Any, outputs: Any) -> dict[str, Any]:
    """Name a Keras model's outputs: by the keys of its dict, by the layers that compute them, or by number."""
    if isinstance(outputs, Mapping):
        return dict(outputs)
    values = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
    names = list(getattr(model, "output_names", None) or ())
    if len(names) != len(values):
        names = [f"output_{i}" for i in range(len(values))]
    return dict(zip(names, values, strict=True))
