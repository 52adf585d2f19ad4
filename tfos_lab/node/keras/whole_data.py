"""Gives each worker its part of each batch where `fit` or `evaluate` of Keras 3 has all of the data on every worker.

That is so with arrays, and with datasets of what is in memory. TensorFlow cuts such data into pieces and deals them
out: the last step may have no rows on some workers, and a mean of the replicas' losses is not that of the batch. The
workers ask one another before each step whether any of them has rows left, which takes as long as the step of a small
model. And each shuffles arrays in an order of its own, so that an epoch has some rows twice and others not at all.
Here, all take their parts of the same batches, and rows have weights as those of a feed have; see `row_counts`.
"""
# ruff: noqa: SLF001 - what has to be patched is private

from __future__ import annotations

import contextlib
import functools
import logging
import secrets
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tfos_lab.node.activity.fetches import patch_once
from tfos_lab.node.keras.distribute import gather_from_workers, part_of_batch
from tfos_lab.node.keras.presharded import Presharded, mark_as_presharded, sources_of
from tfos_lab.node.keras.versions import keras_3_trainer

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

logger = logging.getLogger(__name__)

# What datasets in memory begin with.
_IN_MEMORY = {"_TensorDataset", "_TensorSliceDataset", "_RangeDataset"}
_NO_BATCHES = _NO_SEED = -1


def patch_shuffle() -> None:
    """Let workers shuffle arrays alike; may be called twice."""
    import tensorflow as tf

    patch_once(tf.random, "shuffle", _in_one_order)


def part_of_worker(model: keras.Model, iterator: Any) -> tf.data.Dataset | None:
    """Return this worker's part of the batches of an iterator over epochs; None where TensorFlow divides the data.

    All workers must call it: they tell one another what they have.
    """
    adapter, extended = iterator.data_adapter, model.distribute_strategy.extended
    pipeline = extended._make_input_context()
    batches = None if takes_own_steps(model) else _batches_of(adapter)
    seed = sys.modules["tensorflow.python.eager.context"].global_seed()
    own = [
        _NO_BATCHES if batches is None else adapter.num_batches,
        _checksum(getattr(adapter, "_inputs", None)),
        _order_of(batches),
        _NO_SEED if seed is None else seed & 0x7FFFFFFF,
        secrets.randbits(31),
    ]
    import tensorflow as tf

    lengths, sums, orders, seeds, random = gather_from_workers(
        model.distribute_strategy, tf.constant(own, tf.int64), pipeline
    )
    if len(set(sums)) > 1:
        _tell_of_other_rows()
    if len(set(orders)) > 1:
        _tell_of_other_orders()
    if batches is None or len(set(lengths)) > 1 or lengths[0] < 0:
        return None
    if getattr(adapter, "_shuffle", False) and (len(set(seeds)) > 1 or seeds[0] == _NO_SEED):
        with _one_order(random[0]):
            batches = adapter.get_tf_dataset()
    is_weighted = len(batches.element_spec) == 3
    part = functools.partial(_part, pipeline.input_pipeline_id, pipeline.num_input_pipelines)
    parts = batches.map(part).apply(tf.data.experimental.assert_cardinality(lengths[0]))
    return mark_as_presharded(parts, Presharded(weighted=is_weighted, padded=True))


def takes_own_steps(model: keras.Model) -> bool:
    """Whether a step of a model is the user's, which takes batches as it likes. Keras' own takes weights, too."""
    trainer: Any = keras_3_trainer()
    return any(
        getattr(getattr(model, step), "__func__", None) is not getattr(trainer.TensorFlowTrainer, step)
        for step in ("train_step", "test_step")
    )


def _batches_of(adapter: Any) -> tf.data.Dataset | None:
    """Return the batches of arrays, or of a dataset in memory, whose rows can have weights; None of others."""
    import tensorflow as tf

    kind = type(adapter).__name__
    if kind not in ("ArrayDataAdapter", "TFDatasetAdapter") or adapter.num_batches is None:
        return None
    dataset = adapter.get_tf_dataset()
    is_divided = isinstance(dataset, tf.distribute.DistributedDataset)
    if is_divided or not _takes_weights_of_rows(dataset.element_spec):
        return None
    return dataset if kind == "ArrayDataAdapter" or _is_in_memory(dataset) else None


def _takes_weights_of_rows(spec: Any) -> bool:
    """Whether these are batches ``(x, y)`` or ``(x, y, w)`` of dense tensors."""
    import tensorflow as tf

    return (
        isinstance(spec, tuple)
        and len(spec) in (2, 3)
        and all(isinstance(part, tf.TensorSpec) and part.shape.rank for part in tf.nest.flatten(spec))
    )


def _is_in_memory(dataset: tf.data.Dataset) -> bool:
    """Whether TensorFlow would divide the rows of a dataset, and not the files that it reads."""
    import tensorflow as tf

    policies = tf.data.experimental.AutoShardPolicy
    if dataset.options().experimental_distribute.auto_shard_policy not in (policies.AUTO, policies.DATA):
        return False
    kinds = [(type(source).__name__, bool(source._inputs())) for source in sources_of(dataset)]
    return all(has_source or kind in _IN_MEMORY for kind, has_source in kinds) and not any(
        "FlatMap" in kind or "Interleave" in kind
        for kind, _ in kinds  # they may read files
    )


def _part(rank: int, workers: int, x: Any, y: Any, weights: Any = None) -> Any:
    import tensorflow as tf

    if weights is None:
        weights = tf.ones(tf.shape(tf.nest.flatten(x)[0])[:1])
    weights = tf.nest.map_structure(lambda one: one if one.dtype.is_floating else tf.cast(one, tf.float32), weights)
    return part_of_batch((x, y, weights), rank, workers)


# ---- whether all workers have the same ------------------------------------------------------------------------------


def _checksum(arrays: Any) -> int:
    """Return a number that tells arrays of other shapes, or with another first or last row, apart; 0 of none."""
    import tensorflow as tf

    found = 0
    for array in tf.nest.flatten(arrays) if arrays is not None else ():
        for end in (slice(None, 1), slice(-1, None)):
            with contextlib.suppress(Exception):  # the user's arrays may be of any kind
                rows = np.asarray(array[end])
                found = zlib.crc32(repr((tuple(array.shape), rows.dtype, rows.tolist())).encode(), found)
    return found


def _order_of(dataset: tf.data.Dataset | None) -> int:
    """Return a number that tells the orders of a dataset's rows apart, by the seeds of what shuffles it; 0 of none."""
    shuffles = [one for one in sources_of(dataset) if type(one).__name__ == "_ShuffleDataset"] if dataset else []
    seeds = [(int(one._seed), int(one._seed2)) for one in shuffles]
    if (0, 0) in seeds:
        return secrets.randbits(31)
    return zlib.crc32(repr(seeds).encode()) if seeds else 0


@functools.cache
def _tell_of_other_rows() -> None:
    logger.warning(
        "The nodes call `fit` or `evaluate` with different arrays, and each trains on its part of its own ones only: "
        "give all nodes the same arrays, or, where each is to train on all of its own, ctx.even(dataset)."
    )


@functools.cache
def _tell_of_other_orders() -> None:
    logger.warning(
        "Each node shuffles its dataset in an order of its own, so that an epoch has some rows twice and others not at "
        "all: give shuffle a seed, the same on all nodes, as in shuffle(1000, seed=1)."
    )


# ---- one order of rows ----------------------------------------------------------------------------------------------


class _Order(threading.local):
    """What this thread shuffles by while it makes the dataset of arrays."""

    generator: tf.random.Generator | None = None


_order = _Order()


@contextlib.contextmanager
def _one_order(seed: int) -> Iterator[None]:
    """Shuffle anew in each epoch, by numbers that all workers draw from the same seed."""
    import tensorflow as tf

    with tf.device("CPU:0"):
        _order.generator = tf.random.Generator.from_seed(seed)
    try:
        yield
    finally:
        _order.generator = None


def _in_one_order(shuffle: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(shuffle)
    def shuffled(value: Any, seed: int | None = None, name: str | None = None) -> Any:
        import tensorflow as tf

        if _order.generator is None:
            return shuffle(value, seed=seed, name=name)
        return tf.random.experimental.stateless_shuffle(value, _order.generator.make_seeds(1)[:, 0])

    return shuffled
