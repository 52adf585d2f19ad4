"""Runs on the nodes: trains the Keras model that a `TFEstimator` was given, on the rows that it feeds."""

from __future__ import annotations

import inspect
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_lab.data.model_files import MODEL_FILE, load_keras, package_of
from tfos_lab.errors import ConfigError
from tfos_lab.texts import format_count

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from tfos_lab.ml.param_values import TrainArgs
    from tfos_lab.node.context.context import NodeContext


@dataclass(frozen=True)
class ModelFile:
    """A compiled Keras model as the content of a ``.keras`` file, and the package that wrote it."""

    data: bytes = field(repr=False)
    package: str = "keras"


@dataclass(frozen=True, kw_only=True)
class Training:
    """What a node trains, and on which columns.

    The model may be made by a function of no parameters, or of one, the arguments. ``inputs`` is column to the model's
    input; None where their names and their order decide.
    """

    model: ModelFile | Callable[..., Any]
    inputs: Mapping[str, str | None]
    args: TrainArgs
    custom_objects: Mapping[str, Any] = field(default_factory=dict)


def train(training: Training, ctx: NodeContext) -> dict[str, list[float]]:
    """Train a model with Keras' ``fit``, save it on the chief, and return its history."""
    import tensorflow as tf

    args = training.args
    with ctx.strategy().scope():
        model = _make(training)
    rows = ctx.dataset(
        args.batchSize,
        features=list(training.inputs),
        label=args.labelCol,
        weight=args.weightCol,
        shuffle=args.shuffle,
        seed=args.seed,
    )
    arrange = _arranger(model, training.inputs)
    fitted = model.fit(
        rows.map(tf.autograph.experimental.do_not_convert(lambda x, y, w: (arrange(x), y, w))),
        epochs=ctx.epochs,
        callbacks=ctx.callbacks(),
        verbose=2 if ctx.is_chief else 0,
    )
    ctx.save_model(model)
    return {name: [float(value) for value in values] for name, values in fitted.history.items()}


def _make(training: Training) -> keras.Model:
    made = training.model
    if isinstance(made, ModelFile):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / MODEL_FILE
            path.write_bytes(made.data)
            # It comes from the user's own process, and may hold the user's own code.
            model = load_keras(path, made.package, custom_objects=training.custom_objects, safe_mode=False)
    else:
        given = bound(made, training.args)
        model = made(*given.args, **given.kwargs)
    if package_of(model) is None:
        raise ConfigError([f"model=: the function returned a {type(model).__name__}; a Keras model is needed"])
    if not is_compiled(model):
        raise ConfigError(["model=: the model is not compiled; call model.compile(optimizer=..., loss=...) first"])
    return model


def is_compiled(model: keras.Model) -> bool:
    """Whether a Keras model has been given an optimizer and a loss."""
    return bool(getattr(model, "compiled", False) or getattr(model, "_is_compiled", False))


def bound(function: Callable[..., Any], args: TrainArgs | None) -> inspect.BoundArguments:
    """Return how a function that makes a model is called; TypeError for one of other parameters."""
    signature = inspect.signature(function)
    return signature.bind(args) if signature.parameters else signature.bind()


# ---- columns --------------------------------------------------------------------------------------------------------


def _arranger(model: keras.Model, inputs: Mapping[str, str | None]) -> Callable[[Any], Any]:
    """Return the function that makes what the model takes of a batch's columns."""
    try:
        tensors = list(model.inputs or ())
    except (AttributeError, ValueError):  # a model that is built by its first batch
        tensors = []
    columns = list(inputs)
    if len(tensors) == 1 and len(columns) > 1:
        return lambda x: _joined([x[column] for column in columns], tensors[0])
    pairs = paired(inputs, [name_of(tensor) for tensor in tensors])
    by_name = {name_of(tensor): tensor for tensor in tensors}
    if len(columns) == 1:
        return lambda x: _fitted(x, by_name.get(next(iter(pairs.values()))))
    return lambda x: {name: _fitted(x[column], by_name.get(name)) for column, name in pairs.items()}


def name_of(tensor: Any) -> str:
    """Return the name of a model's input."""
    return str(tensor.name).partition(":")[0]


def paired(inputs: Mapping[str, str | None], names: Sequence[str]) -> dict[str, str]:
    """Return which column is which input: as the user maps them, by the same names, or by their order."""
    said = [name for name in inputs.values() if name is not None]
    if not names:  # the model does not name its inputs
        return {column: name or column for column, name in inputs.items()}
    has = f"the model has {', '.join(names)}"
    unknown = [name for name in said if name not in names]
    if unknown:
        raise ConfigError([f"inputMapping: the model has no input '{unknown[0]}'; {has}"])
    if len(inputs) != len(names) or len(set(said)) != len(said):
        columns = f"{format_count(len(inputs), 'column')} ({', '.join(inputs)})"
        raise ConfigError([f"{columns} for {format_count(len(names), 'input')}: {has}"])
    if said:
        return {column: name for column, name in inputs.items() if name is not None}
    in_order = list(inputs) if set(inputs) == set(names) else names
    return dict(zip(inputs, in_order, strict=True))


def _fitted(values: tf.Tensor, tensor: Any) -> tf.Tensor:
    """Give a column the dtype and shape of the model's input: Spark's arrays are flat, and its numbers doubles."""
    import tensorflow as tf

    if tensor is None:
        return values
    if (values.dtype == tf.string) != (tensor.dtype == "string"):
        held = "text" if values.dtype == tf.string else "numbers"
        raise ConfigError([f"the model's input '{name_of(tensor)}' is {tensor.dtype}, and the column has {held}"])
    if values.dtype != tf.string:
        values = tf.cast(values, tensor.dtype)
    wanted, given = tuple(tensor.shape)[1:], values.shape[1:]
    if None in wanted:
        return values
    if given.is_fully_defined() and given.num_elements() != math.prod(wanted):
        per_row = format_count(given.num_elements(), "value")
        raise ConfigError(
            [f"the model's input '{name_of(tensor)}' takes rows of shape {wanted}, and a row has {per_row}"]
        )
    return tf.reshape(values, (tf.shape(values)[0], *wanted))


def _joined(columns: Sequence[tf.Tensor], tensor: Any) -> tf.Tensor:
    """Put columns of numbers side by side, as the values of one input."""
    import tensorflow as tf

    if any(column.shape.rank != 1 for column in columns):
        problem = (
            f"inputCols: several columns for the model's only input '{name_of(tensor)}', and one of them is an array"
        )
        raise ConfigError([f"{problem}; put them together, as with Spark's VectorAssembler"])
    return _fitted(tf.stack([tf.cast(column, tensor.dtype) for column in columns], axis=1), tensor)
