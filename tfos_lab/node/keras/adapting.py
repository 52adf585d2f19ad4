"""Has Keras' preprocessing layers learn from the rows of all workers, where each worker has a part of them.

`adapt` reads its dataset in each process alone. Of rows that are dealt out it would find other means, and other numbers
for the same words, on each worker, and nobody would be told.
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
from tfos_lab.node.keras.distribute import gather_from_workers, has_own_statistics, strategy_across_workers
from tfos_lab.node.keras.presharded import is_presharded

if TYPE_CHECKING:
    import tensorflow as tf

logger = logging.getLogger(__name__)

# Other layers of theirs derive from these, or call them.
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


def patch_adapt() -> None:
    """Have the layers of a Keras that is loaded adapt to the rows of all workers; may be called twice."""
    for module, name in _LAYERS.items():
        patch_once(getattr(sys.modules.get(module), name, None), "adapt", _to_all_rows)


def _to_all_rows(adapt: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(adapt)
    def adapt_to_all(layer: Any, data: Any, *args: Any, **kwargs: Any) -> None:
        import tensorflow as tf

        strategy = strategy_across_workers()
        if strategy is None or not isinstance(data, tf.data.Dataset) or not is_presharded(data):
            adapt(layer, data, *args, **kwargs)
            return
        if (steps := kwargs.pop("steps", None)) is not None:
            data = data.take(steps)
        STEPS.evaluate(begins=True)  # its batches are no steps of training
        adapt(layer, _rows_of_all(strategy, data), *args, **kwargs)
        STEPS.evaluate(begins=False)

    return adapt_to_all


# ---- rows of all workers --------------------------------------------------------------------------------------------


def _rows_of_all(strategy: tf.distribute.Strategy, data: tf.data.Dataset) -> tf.data.Dataset:
    """Return the batches of all workers, in the same order on each of them. All workers must read it."""
    import tensorflow as tf

    parts = tf.nest.flatten(data.element_spec)

    def batches() -> Iterator[Any]:
        own = _messages(data)
        while messages := _gather_messages(strategy, next(own, None)):
            for message in messages:
                for batch in msgspec.msgpack.decode(message, type=list[list[bytes]]):
                    yield [
                        tf.io.parse_tensor(part, spec.dtype).numpy() for part, spec in zip(batch, parts, strict=True)
                    ]

    return generator_dataset(batches, data.element_spec)


def _messages(data: tf.data.Dataset) -> Iterator[bytes]:
    """Yield this worker's batches, some at a time, as lists of serialized tensors."""
    import tensorflow as tf

    batches: list[list[bytes]] = []
    size = 0
    for batch in data:
        batches.append([tf.io.serialize_tensor(part).numpy() for part in tf.nest.flatten(batch)])
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


# ---- what layers have learned ---------------------------------------------------------------------------------------


def tell_of_other_states(model: Any) -> None:
    """Log, once for a model, that its layers have learned other things on other workers. All workers must call it."""
    import tensorflow as tf

    if hasattr(model, _COMPARED):
        return
    setattr(model, _COMPARED, True)
    own = 0
    for layer in model._flatten_layers():
        if hasattr(layer, "get_vocabulary"):
            own = zlib.crc32(repr(list(map(str, layer.get_vocabulary()))).encode(), own)
        if not has_own_statistics(layer):
            for weight in layer.non_trainable_weights:
                own = zlib.crc32(weight.numpy().tobytes(), own)
    (sums,) = gather_from_workers(model.distribute_strategy, tf.constant([own], tf.int64))
    if len(set(sums)) > 1:
        _log_other_states()


@functools.cache
def _log_other_states() -> None:
    logger.warning(
        "The nodes train one model whose layers have learned different things before, such as a vocabulary or a mean: "
        "give all nodes the same, or adapt each layer to rows of ctx.dataset, which takes those of all nodes."
    )
