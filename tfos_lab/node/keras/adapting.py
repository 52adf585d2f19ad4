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
_ALIKE = "_tfos_lab_alike"
_OTHER_BEFORE = (
    "Before it was trained, this model has learned other things on other nodes, such as a vocabulary or a mean, in %s: "
    "give all nodes the same, or adapt to rows of ctx.dataset, which takes those of all nodes."
)
_OTHER_IN_STEPS = (
    "This model has state of each node's own in %s: what a layer assigns in a step comes from rows of its node, and no "
    "strategy averages it. The chief's is saved."
)


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


# ---- what layers have learned ---------------------------------------------------------------------------------------


def tell_of_other_states(model: Any, *, is_trained: bool) -> None:
    """Log, once for a model, which layers have learned other things on other workers. All workers must call it.

    Called before a model is trained, and after it: layers may have learned from rows before, or in each step.
    """
    if getattr(model, _ALIKE, not is_trained):
        other = _other_on_some_workers(model)
        setattr(model, _ALIKE, not other and not is_trained)
        if other:
            logger.warning(_OTHER_IN_STEPS if is_trained else _OTHER_BEFORE, ", ".join(other))


def _other_on_some_workers(model: Any) -> list[str]:
    """Return the names of the layers whose state is not the same on all workers."""
    import tensorflow as tf

    strategy, own = model.distribute_strategy, _learned(model)
    total = [len(own), zlib.crc32(repr(own).encode())]
    counts, totals = gather_from_workers(strategy, tf.constant(total, tf.int64)).tolist()
    if len(set(totals)) == 1:
        return []
    if len(set(counts)) > 1:
        return list(own) or [model.name]
    by_layer = gather_from_workers(strategy, tf.constant(list(own.values()), tf.int64)).tolist()
    return [name for name, found in zip(own, by_layer, strict=True) if len(set(found)) > 1] or [model.name]


def _learned(model: Any) -> dict[str, int]:
    """Return a checksum of what each layer of a model has learned without being trained."""
    learned: dict[str, int] = {}
    seen: set[int] = set()
    for layer in reversed(list(model._flatten_layers())):  # those within a layer come before it
        own = [weight for weight in layer.non_trainable_weights if id(weight) not in seen]
        seen.update(map(id, own))
        words = list(map(str, layer.get_vocabulary())) if hasattr(layer, "get_vocabulary") else []
        values = [] if has_own_statistics(layer) else [weight.numpy().tobytes() for weight in own]
        if words or values:
            learned[layer.name] = zlib.crc32(b"".join([repr(words).encode(), *values]))
    return learned
