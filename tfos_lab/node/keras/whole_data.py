"""Gives each worker its part of each batch where `fit` or `evaluate` of Keras 3 has all of the data on every worker.

That is so with arrays, and with datasets of what is in memory. TensorFlow cuts such data into pieces and deals them
out: the last step may have no rows on some workers, and a mean of the replicas' losses is not that of the batch. The
workers ask one another before each step whether any of them has rows left, which takes as long as the step of a small
model. And each shuffles arrays in an order of its own, so that an epoch has some rows twice and others not at all.
Here, all take their parts of the same batches, and rows have weights as those of a feed have; see `row_counts`.
"""
# ruff: noqa: SLF001 - what has to be patched is private

from __future__ import annotations

import functools
import re
import secrets
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from tfos_lab.core.threads import on_a_thread
from tfos_lab.node.activity.fetches import patch_once
from tfos_lab.node.keras.all_reduce import has_own
from tfos_lab.node.keras.distribute import gather_from_workers, is_across_workers, part_of_batch, warn_once
from tfos_lab.node.keras.presharded import Presharded, is_presharded, mark, sources_of
from tfos_lab.node.keras.versions import keras_3_trainer

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

_OTHER_ROWS = (
    "The nodes call `fit` or `evaluate` with different data, and each trains on its part of its own only: give all "
    "nodes the same, or, where each is to train on all of its own, ctx.even(dataset)."
)
_OTHER_ORDERS = (
    "Each node shuffles its dataset in an order of its own, so that an epoch has some rows twice and others not at "
    "all: give shuffle a seed, the same on all nodes, as in shuffle(1000, seed=1)."
)

_PART = "_tfos_lab_part"
_GENERATOR = "_tfos_lab_generator"
# What datasets in memory begin with.
_IN_MEMORY = {"_TensorDataset", "_TensorSliceDataset", "_RangeDataset"}


def patch_iterators(trainer: ModuleType) -> None:
    """Leave the data of an iterator over epochs whole until `divide` is called for it; may be called twice."""
    import tensorflow as tf

    patch_once(tf.random, "shuffle", _in_one_order)
    patch_once(trainer.TFEpochIterator, "__init__", _of_whole_data)
    patch_once(trainer.TFEpochIterator, "_get_iterator", _of_divided_data)


def divide(model: keras.Model, iterator: Any) -> tf.data.Dataset | None:
    """Have an iterator over epochs take this worker's part of the data; return that, or None if TensorFlow divides it.

    All workers must call it, as they compare what they have. Keras keeps the iterator over rows that validate
    from epoch to epoch.
    """
    import tensorflow as tf

    if not hasattr(iterator, _PART):
        whole = iterator._distributed_dataset
        part = whole if is_presharded(whole) else _part_of_worker(model, iterator)
        setattr(iterator, _PART, part)
        if isinstance(whole, tf.data.Dataset):
            data = iterator._distributed_dataset if part is None else part
            iterator._distributed_dataset = model.distribute_strategy.experimental_distribute_dataset(data)
    return iterator.__dict__[_PART]


def _part_of_worker(model: keras.Model, iterator: Any) -> tf.data.Dataset | None:
    """Return this worker's part of each batch, if all workers have as many, and rows can have weights."""
    import tensorflow as tf

    pipeline = model.distribute_strategy.extended._make_input_context()
    batches, steps = iterator._distributed_dataset, iterator.data_adapter.num_batches
    takes_weights = has_of_keras(model, "train_step", "test_step", "compute_loss", "compute_metrics")
    is_divisible = takes_weights and steps is not None and _is_whole(iterator)
    seed = _global_seed()
    own = [
        steps if is_divisible else -1,
        _checksum(iterator),
        _order(iterator),
        -1 if seed is None else seed & 0x7FFFFFFF,
        secrets.randbits(31),
    ]
    lengths, sums, orders, seeds, drawn = gather_from_workers(
        model.distribute_strategy, tf.constant(own, tf.int64)
    ).tolist()
    if len(set(sums)) > 1:
        warn_once(_OTHER_ROWS)
    if len(set(orders)) > 1:
        warn_once(_OTHER_ORDERS)
    if getattr(iterator.data_adapter, "_shuffle", False):
        if len(set(seeds)) > 1:
            batches = iterator._distributed_dataset = _shuffled_alike(iterator)
        if (generator := getattr(iterator, _GENERATOR, None)) is not None:
            generator.reset_from_seed(drawn[0])
    if len(set(lengths)) > 1 or not is_divisible:
        return None
    part = functools.partial(_part, pipeline.input_pipeline_id, pipeline.num_input_pipelines)
    parts = batches.map(part).apply(tf.data.experimental.assert_cardinality(steps))
    return mark(parts, Presharded(weighted=len(batches.element_spec) == 3, padded=True))


def _part(rank: int, workers: int, x: Any, y: Any, weights: Any = None) -> Any:
    import tensorflow as tf

    if weights is None:
        weights = tf.ones(tf.shape(tf.nest.flatten(x)[0])[:1])
    weights = tf.nest.map_structure(lambda one: one if one.dtype.is_floating else tf.cast(one, tf.float32), weights)
    return part_of_batch((x, y, weights), rank, workers)


# ---- what can be divided --------------------------------------------------------------------------------------------


def has_of_keras(model: keras.Model, *methods: str) -> bool:
    """Whether these methods of a model are Keras' own, which take weights of rows and heed them."""
    trainer: Any = keras_3_trainer()
    return has_own(model, trainer.TensorFlowTrainer, *methods)


def _is_whole(iterator: Any) -> bool:
    """Whether the data are batches of arrays, or of a dataset in memory, whose rows can have weights."""
    import tensorflow as tf

    whole, kind = iterator._distributed_dataset, type(iterator.data_adapter).__name__
    if not isinstance(whole, tf.data.Dataset) or not _takes_weights_of_rows(whole.element_spec):
        return False
    return kind == "ArrayDataAdapter" or (kind == "TFDatasetAdapter" and _is_in_memory(whole))


def _takes_weights_of_rows(spec: Any) -> bool:
    """Whether these are batches ``(x, y)`` or ``(x, y, w)`` of dense tensors."""
    import tensorflow as tf

    return (
        type(spec) is tuple  # of a subclass, a map would get the whole
        and len(spec) in (2, 3)
        and all(isinstance(part, tf.TensorSpec) and part.shape.rank for part in tf.nest.flatten(spec))
    )


def _is_in_memory(dataset: tf.data.Dataset) -> bool:
    """Whether TensorFlow would divide the rows of a dataset, and not the files that it reads."""
    import tensorflow as tf

    policies = tf.data.experimental.AutoShardPolicy
    if dataset.options().experimental_distribute.auto_shard_policy not in (policies.AUTO, policies.DATA):
        return False
    sources = list(sources_of(dataset))
    # What makes datasets of elements may read files, too.
    reads = any(hasattr(one, "_filenames") or re.search("FlatMap|Interleave", type(one).__name__) for one in sources)
    return not reads and all(one._inputs() or type(one).__name__ in _IN_MEMORY for one in sources)


# ---- whether all workers have the same ------------------------------------------------------------------------------


def _checksum(iterator: Any) -> int:
    """Return a checksum of the data's shapes, first and last rows, and shards."""
    import tensorflow as tf

    found = 0
    for array in tf.nest.flatten(getattr(iterator.data_adapter, "_inputs", ())):
        for end in (slice(None, 1), slice(-1, None)):
            with suppress(Exception):  # the user's arrays may be of any kind
                rows = np.asarray(array[end])
                content = repr(rows.tolist()).encode() if rows.dtype == object else rows.tobytes()
                found = zlib.crc32(content, zlib.crc32(repr((tuple(array.shape), rows.dtype)).encode(), found))
    shards = [int(one._index) for one in sources_of(iterator._distributed_dataset) if hasattr(one, "_num_shards")]
    return zlib.crc32(repr(shards).encode(), found) if shards else found


def _order(iterator: Any) -> int:
    """Return a checksum of the seeds with which a dataset is shuffled; 0 for one that is not shuffled."""
    shuffles = [one for one in sources_of(iterator._distributed_dataset) if type(one).__name__ == "_ShuffleDataset"]
    seeds = [(int(one._seed), int(one._seed2)) for one in shuffles]
    if (0, 0) in seeds:
        return secrets.randbits(31)
    return zlib.crc32(repr(seeds).encode()) if seeds else 0


def _global_seed() -> int | None:
    """Return what `tf.random.set_seed` was given last."""
    seed: int | None = sys.modules["tensorflow.python.eager.context"].global_seed()
    return seed


# ---- what Keras makes ----------------------------------------------------------------------------------------------


class _Whole:
    """Stands in for a strategy while an iterator over epochs is made: it divides nothing."""

    def experimental_distribute_dataset(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset


class _Shuffling(threading.local):
    """The iterator over epochs that this thread makes, if its rows are to be shuffled alike on all workers."""

    iterator: Any = None


_shuffling = _Shuffling()


def _of_whole_data(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def __init__(iterator: Any, distribute_strategy: Any = None, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if not is_across_workers(distribute_strategy):
            init(iterator, distribute_strategy, *args, **kwargs)
            return
        with _shuffling_alike(iterator if _global_seed() is None else None):  # in the order of one process if seeded
            init(iterator, _Whole(), *args, **kwargs)
        iterator._distribute_strategy = distribute_strategy

    return __init__


def _of_divided_data(get: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(get)
    def _get_iterator(iterator: Any) -> Any:
        import tensorflow as tf

        strategy, data = iterator._distribute_strategy, iterator._distributed_dataset
        if isinstance(data, tf.data.Dataset) and is_across_workers(strategy):  # as in `predict`
            iterator._distributed_dataset = strategy.experimental_distribute_dataset(data)
        return get(iterator)

    return _get_iterator


@contextmanager
def _shuffling_alike(iterator: Any) -> Iterator[None]:
    _shuffling.iterator = iterator
    try:
        yield
    finally:
        _shuffling.iterator = None


def _shuffled_alike(iterator: Any) -> tf.data.Dataset:
    """Return the dataset of arrays anew, where the nodes have seeds of their own."""
    with _shuffling_alike(iterator):
        dataset: tf.data.Dataset = iterator.data_adapter.get_tf_dataset()
    return dataset


def _in_one_order(shuffle: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `tf.random.shuffle`, by which Keras shuffles arrays: by numbers that all workers draw from one seed."""

    @functools.wraps(shuffle)
    def shuffled(value: Any, seed: int | None = None, name: str | None = None) -> Any:
        import tensorflow as tf

        iterator = _shuffling.iterator
        if iterator is None:
            return shuffle(value, seed=seed, name=name)
        if not hasattr(iterator, _GENERATOR):
            setattr(iterator, _GENERATOR, on_a_thread(_make_generator, name="tfos-shuffle").result())
        return tf.random.experimental.stateless_shuffle(value, getattr(iterator, _GENERATOR).make_seeds(1)[:, 0])

    return shuffled


def _make_generator() -> tf.random.Generator:
    """Make it in a thread of its own: there is no strategy, which would have the workers agree on its state."""
    import tensorflow as tf

    with tf.device("CPU:0"):
        return tf.random.Generator.from_seed(0)
