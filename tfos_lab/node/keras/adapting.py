"""Has Keras' preprocessing layers learn from the rows of all workers, where each worker has a part of them.

`adapt` reads its dataset in each process alone. Of rows that are dealt out it would find other means, and other numbers
for the same words, on each worker. Layers of a model that differ all the same are named in the log.
"""
# ruff: noqa: SLF001 - what has to be asked is private

from __future__ import annotations

import functools
import logging
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tfos_lab.node.activity.fetches import patch_once
from tfos_lab.node.activity.steps import STEPS
from tfos_lab.node.generator_dataset import generator_dataset
from tfos_lab.node.keras.distribute import gather_from_workers, is_across_workers, strategy_across_workers, warn_once
from tfos_lab.node.keras.presharded import is_presharded, presharded_of

if TYPE_CHECKING:
    import tensorflow as tf

logger = logging.getLogger(__name__)

# The other preprocessing layers derive from these, or call them.
_LAYERS = {
    "keras.src.layers.preprocessing.discretization": "Discretization",
    "keras.src.layers.preprocessing.index_lookup": "IndexLookup",
    "keras.src.layers.preprocessing.normalization": "Normalization",
    "keras.src.layers.preprocessing.text_vectorization": "TextVectorization",
    "tf_keras.src.engine.base_preprocessing_layer": "PreprocessingLayer",
}
# So much of a worker's rows goes to the others at once.
_BATCHES, _BYTES = 64, 1 << 20
_COMPARED = "_tfos_lab_compared"
_FILLERS = (
    "adapt learns from the filler rows of this dataset, too: call it before ctx.even, and without remainder='pad'."
)
# So many values of each weight are compared.
_FIRST = 1 << 16
_DIFFERENT = (
    "Layers of the model differ from node to node before it is trained, as in a vocabulary, a mean or loaded weights: "
    "%s. Give all nodes the same, or adapt to rows of ctx.dataset, which takes those of all nodes."
)


def patch_adapt() -> None:
    """Have the layers of a Keras that is loaded adapt to the rows of all workers; may be called twice."""
    for module, name in _LAYERS.items():
        patch_once(getattr(sys.modules.get(module), name, None), "adapt", _to_all_rows)


def _to_all_rows(adapt: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(adapt)
    def adapt_to_all(layer: Any, data: Any, *args: Any, **kwargs: Any) -> None:
        import tensorflow as tf

        is_part = isinstance(data, tf.data.Dataset) and is_presharded(data)
        strategy = strategy_across_workers() if is_part else None
        if strategy is None:
            adapt(layer, data, *args, **kwargs)
            return
        if (rows := presharded_of(data)) is not None and rows.padded:
            warn_once(_FILLERS)
        if (steps := kwargs.pop("steps", None)) is not None:
            data = data.take(steps)
        STEPS.evaluate(begins=True)  # its batches are no steps of training
        try:
            adapt(layer, _rows_of_all(strategy, data), *args, **kwargs)
        finally:
            STEPS.evaluate(begins=False)

    return adapt_to_all


# ---- rows of all workers --------------------------------------------------------------------------------------------


def _rows_of_all(strategy: tf.distribute.Strategy, data: tf.data.Dataset) -> tf.data.Dataset:
    """Return the batches of all workers, in the same order on each of them. All workers must read it."""
    import tensorflow as tf

    spec = data.element_spec
    parts = tf.nest.flatten(spec, expand_composites=True)

    def batches() -> Iterator[Any]:
        own = _messages(data)
        while messages := _gather_messages(strategy, next(own, None)):
            for message in messages:
                for batch in msgspec.msgpack.decode(message, type=list[list[bytes]]):
                    yield [
                        tf.io.parse_tensor(tensor, part.dtype).numpy()
                        for tensor, part in zip(batch, parts, strict=True)
                    ]

    return generator_dataset(batches, tuple(parts)).map(
        lambda *tensors: tf.nest.pack_sequence_as(spec, tensors, expand_composites=True)
    )


def _messages(data: tf.data.Dataset) -> Iterator[bytes]:
    """Yield this worker's batches, some at a time, as lists of serialized tensors."""
    import tensorflow as tf

    batches: list[list[bytes]] = []
    size = 0
    for batch in data:
        tensors = tf.nest.flatten(batch, expand_composites=True)
        batches.append([tf.io.serialize_tensor(tensor).numpy() for tensor in tensors])
        size += sum(map(len, batches[-1]))
        if len(batches) == _BATCHES or size >= _BYTES:
            yield msgspec.msgpack.encode(batches)
            batches, size = [], 0
    if batches:
        yield msgspec.msgpack.encode(batches)


def _gather_messages(strategy: tf.distribute.Strategy, own: bytes | None) -> list[bytes]:
    """Return the messages of all workers that have one."""
    import tensorflow as tf

    (sizes,) = gather_from_workers(strategy, tf.constant([len(own or b"")], tf.int64))
    if not sizes.any():
        return []
    # Collectives take no bytes.
    words = np.zeros(-(-max(sizes) // 8), np.int64)
    words.view(np.uint8)[: len(own or b"")] = np.frombuffer(own or b"", np.uint8)
    gathered = np.ascontiguousarray(gather_from_workers(strategy, tf.constant(words)).T).view(np.uint8)
    return [message[:size].tobytes() for message, size in zip(gathered, sizes, strict=True) if size]


# ---- layers that differ ---------------------------------------------------------------------------------------------


def warn_of_different_layers(model: Any) -> None:
    """Log, once for a model, which layers have learned other things on other workers. All workers must call it."""
    import tensorflow as tf

    strategy = model.distribute_strategy
    if not is_across_workers(strategy) or hasattr(model, _COMPARED):
        return
    setattr(model, _COMPARED, True)
    own = [(layer.name, _learned(layer)) for layer in model._flatten_layers()]
    sums = [learned for _, learned in own]
    counts, totals = gather_from_workers(
        strategy, tf.constant([len(own), zlib.crc32(repr(sums).encode())], tf.int64)
    ).tolist()
    if len(set(totals)) == 1:
        return
    different = [model.name]
    if len(set(counts)) == 1:
        by_layer = gather_from_workers(strategy, tf.constant(sums, tf.int64)).tolist()
        different = [name for (name, _), found in zip(own, by_layer, strict=True) if len(set(found)) > 1]
    logger.warning(_DIFFERENT, ", ".join(different))


def _learned(layer: Any) -> int:
    """Return a checksum of what a layer itself has, but for its sublayers, as it is before training; 0 for nothing."""
    import tensorflow as tf

    kinds = {kind.__name__ for kind in type(layer).__mro__}
    if "BatchNormalization" in kinds:  # see `distribute.tell_of_own_statistics`
        return 0
    weights = getattr(layer, "_non_trainable_variables", None) or getattr(layer, "_non_trainable_weights", [])
    learned = [weight.numpy().tobytes() for weight in weights]
    # Strategies give all workers the same to begin with, but what a function then loads is its own affair.
    trained = getattr(layer, "_trainable_variables", None) or getattr(layer, "_trainable_weights", [])
    learned += [tf.reshape(weight, [-1])[:_FIRST].numpy().tobytes() for weight in trained]
    if kinds & {"IndexLookup", "TextVectorization"}:
        learned.append(repr(list(map(str, layer.get_vocabulary()))).encode())
    if "Discretization" in kinds:
        learned.append(repr(list(map(float, layer.bin_boundaries or ()))).encode())
    return zlib.crc32(b"".join(learned))
