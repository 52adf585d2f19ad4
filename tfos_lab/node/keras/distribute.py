"""Patches `MultiWorkerMirroredStrategy`, so that it takes presharded datasets as they are; see `presharded`.

And the iterators of datasets, so that errors can show how far a node has come.
"""
# ruff: noqa: SLF001 - TensorFlow has no public way to step without asking the other workers

from __future__ import annotations

import functools
import logging
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfos_lab.node.activity.fetches import patch_fetches, patch_once
from tfos_lab.node.activity.steps import FITS
from tfos_lab.node.keras.presharded import (
    forget_count_of_rows,
    is_presharded,
    is_statically_shaped,
    keeps_steps,
    presharded_of,
    sources_of,
)
from tfos_lab.node.lock_step import STEP_COUNT

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

logger = logging.getLogger(__name__)

_LENGTH = "_tfos_lab_length"
_REFUSAL = "_tfos_lab_refusal"
# Whose elements are counted.
_ITERATORS = (
    ("tensorflow.python.data.ops.iterator_ops", "OwnedIterator"),
    ("tensorflow.python.distribute.input_lib", "DistributedIterator"),
)
_OWN_STATISTICS = (
    "BatchNormalization takes mean and variance over each node's part of a batch, and each node has moving "
    "statistics of its own; with synchronized=True it is that of one process, over the whole batch."
)

# What to do with parameter servers where Keras cannot `fit`.
LOOP_OR_NO_SERVERS = "write the loop yourself with tf.distribute.coordinator.ClusterCoordinator, or ask for num_ps=0"


def patch_strategy() -> None:
    """Make `MultiWorkerMirroredStrategy` take marked datasets as they are; may be called twice."""
    import tensorflow as tf

    patch_fetches()
    for module, name in _ITERATORS:  # TensorFlow has loaded them
        patch_once(getattr(sys.modules.get(module), name, None), "__next__", _counted)
    device_iterators = sys.modules.get("tensorflow.python.data.ops.multi_device_iterator_ops")
    patch_once(device_iterators, "_create_device_dataset", _without_tuner)
    patch_once(tf.distribute.MultiWorkerMirroredStrategy, "experimental_distribute_dataset", _or_presharded)
    strategies = sys.modules.get("tensorflow.python.distribute.collective_all_reduce_strategy")
    extended = getattr(strategies, "CollectiveAllReduceExtended", None)
    for name in ("_experimental_distribute_dataset", "_distribute_datasets_from_function"):
        patch_once(extended, name, _in_place_on_a_cpu)
    patch_once(extended, "_initialize_multi_worker", _noting_strategy)
    datasets = sys.modules.get("tensorflow.python.data.ops.dataset_ops")
    patch_once(getattr(datasets, "DatasetV2", None), "cache", _noting_kept_rows)


def _noting_kept_rows(cache: Callable[..., tf.data.Dataset]) -> Callable[..., tf.data.Dataset]:
    @functools.wraps(cache)
    def cached(dataset: tf.data.Dataset, *args: Any, **kwargs: Any) -> tf.data.Dataset:
        rows = presharded_of(dataset)
        FITS.keeps_rows = FITS.keeps_rows or (rows is not None and rows.to_train)
        return cache(dataset, *args, **kwargs)

    return cached


# The last strategy that connects to other processes: a weak reference, or what returns None.
_connected: Callable[[], Any] = type(None)


def strategy_across_workers() -> tf.distribute.Strategy | None:
    """Return the strategy by which this process trains with others, if it has one; it need not be in its scope."""
    strategy = _connected()
    return strategy if is_across_workers(strategy) else None


def _noting_strategy(initialize: Callable[..., None]) -> Callable[..., None]:
    """Note the strategy, and have SIGTERM do what it did: TensorFlow takes it, only notes it, and nodes end by it."""

    @functools.wraps(initialize)
    def _initialize_multi_worker(extended: Any, *args: Any, **kwargs: Any) -> None:
        global _connected  # noqa: PLW0603 - a process connects once
        initialize(extended, *args, **kwargs)
        _connected = weakref.ref(extended._container_strategy())
        handler = signal.getsignal(signal.SIGTERM)
        # Python sets no signals elsewhere, and no handlers of others.
        if threading.current_thread() is threading.main_thread() and handler is not None:
            signal.signal(signal.SIGTERM, handler)

    return _initialize_multi_worker


def _counted(take: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(take)
    def __next__(iterator: Any) -> Any:  # noqa: N807 - it is that method
        try:
            element = take(iterator)
        except StopIteration:
            STEP_COUNT.end(iterator)
            raise
        STEP_COUNT.take(iterator)
        return element

    return __next__


def _without_tuner(create: Callable[..., tf.data.Dataset]) -> Callable[..., tf.data.Dataset]:
    """Have nothing tune what brings batches to a device: a strategy makes an iterator of its own for that, each epoch.

    There is nothing to tune, and where such an iterator ends, Python waits for the tuner's thread to wake: for as long
    as the epoch has taken, up to a minute (seen on TensorFlow 2.21: 7 to 20 s after epochs of 10 s).
    """
    import tensorflow as tf

    @functools.wraps(create)
    def _create_device_dataset(*args: Any, **kwargs: Any) -> tf.data.Dataset:
        options = tf.data.Options()
        options.autotune.enabled = False
        return create(*args, **kwargs).with_options(options)

    return _create_device_dataset


def _in_place_on_a_cpu(distribute: Callable[..., Any]) -> Callable[..., Any]:
    """Have a worker whose one device is its CPU take batches from the dataset's own iterator, as far ahead as before.

    TensorFlow makes functions that bring batches to the device, and traces them for each epoch anew: that takes longer
    than all steps of a small one. All datasets of a strategy are alike in this, whoever distributes them, since a
    ``tf.function`` that was traced for one kind of iterator is used for the other, too, and fails.
    """

    @functools.wraps(distribute)
    def distribute_in_place(extended: Any, *args: Any, **kwargs: Any) -> Any:
        import tensorflow as tf

        distributed = distribute(extended, *args, **kwargs)
        kinds = [tf.DeviceSpec.from_string(device).device_type for device in extended.worker_devices]
        if kinds == ["CPU"] and tf.compat.v1.executing_eagerly_outside_functions():
            wanted = distributed._options or tf.distribute.InputOptions()
            distributed._options = _options_in_place()  # a strategy across workers refuses them from outside
            parts = "_datasets" if hasattr(distributed, "_datasets") else "_cloned_datasets"
            ahead = functools.partial(_ahead, batches=wanted.experimental_per_replica_buffer_size)
            setattr(distributed, parts, list(map(ahead, getattr(distributed, parts))))
        return distributed

    return distribute_in_place


def _ahead(dataset: tf.data.Dataset, batches: int) -> tf.data.Dataset:
    rows = presharded_of(dataset)
    return dataset if not batches or (rows is not None and rows.is_stream) else dataset.prefetch(batches)


@functools.cache
def _options_in_place() -> tf.distribute.InputOptions:
    import tensorflow as tf

    per_replica = tf.distribute.InputReplicationMode.PER_REPLICA
    return tf.distribute.InputOptions(experimental_fetch_to_device=False, experimental_replication_mode=per_replica)


def is_across_workers(strategy: tf.distribute.Strategy | None) -> bool:
    """Whether a strategy trains together with other processes."""
    import tensorflow as tf

    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return False
    return bool(strategy.num_replicas_in_sync > len(strategy.extended.worker_devices))


def without_jit(compile_model: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `Model.compile` of any Keras: models that train together with other processes have no ``jit_compile``."""

    @functools.wraps(compile_model)
    def compile(model: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A001 - it is that method
        compiled = compile_model(model, *args, **kwargs)
        if model.jit_compile and is_across_workers(model.distribute_strategy):
            logger.warning("jit_compile=True is taken as False: XLA does not compile what several workers do together.")
            model.jit_compile = False
        return compiled

    return compile


def length_of_epoch(distributed: tf.distribute.DistributedDataset) -> int | None:
    """Return how many batches each worker has in a presharded dataset, if any of them knows."""
    length: int | None = getattr(distributed, _LENGTH, None)
    return length


def why_fit_would_hang(distributed: tf.distribute.DistributedDataset) -> str | None:
    """Return why Keras could not end an epoch of a presharded dataset, or None if it can."""
    refusal: str | None = getattr(distributed, _REFUSAL, None)
    return refusal


def _or_presharded(distribute: Callable[..., Any]) -> Callable[..., Any]:
    import tensorflow as tf

    @functools.wraps(distribute)
    def experimental_distribute_dataset(
        strategy: tf.distribute.Strategy, dataset: tf.data.Dataset, options: tf.distribute.InputOptions | None = None
    ) -> tf.distribute.DistributedDataset:
        if is_presharded(dataset):
            return _distribute_presharded(strategy, dataset, options)
        if is_across_workers(strategy) and any("FlatMap" in type(source).__name__ for source in sources_of(dataset)):
            dataset = _copied(dataset)
        distributed = distribute(strategy, dataset, options)
        policy = dataset.options().experimental_distribute.auto_shard_policy
        is_own = policy == tf.data.experimental.AutoShardPolicy.OFF  # each worker has its own
        if is_own and is_across_workers(strategy) and tf.executing_eagerly():
            own = tf.expand_dims(dataset.cardinality(), 0)
            (steps,) = gather_from_workers(strategy, own).tolist()
            _record_length(distributed, steps, together=len(set(steps)) == 1)
        return distributed

    return experimental_distribute_dataset


def _copied(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Have each batch own its memory, as that of a generator does not.

    TensorFlow takes the memory of the array that is yielded, and cuts it; steps then write into what they have of it,
    and the user's rows change from epoch to epoch (seen on TensorFlow 2.21).
    """
    import tensorflow as tf

    def copy(*batch: Any) -> Any:
        own = batch if type(dataset.element_spec) is tuple else batch[0]
        return tf.nest.map_structure(
            lambda one: tf.raw_ops.DeepCopy(x=one) if tf.is_tensor(one) else one, own, expand_composites=True
        )

    return dataset.map(copy)


def _distribute_presharded(
    strategy: tf.distribute.Strategy, dataset: tf.data.Dataset, options: tf.distribute.InputOptions | None
) -> tf.distribute.DistributedDataset:
    import tensorflow as tf

    replicas_here = len(strategy.extended.worker_devices)
    batches = dataset if replicas_here == 1 else _divide_batches(dataset, replicas_here)
    distributed = strategy.distribute_datasets_from_function(lambda _pipeline: batches, options)
    if not is_across_workers(strategy) or not tf.executing_eagerly():
        return distributed
    own = tf.stack([dataset.cardinality(), int(keeps_steps(dataset)), int(is_statically_shaped(batches))])
    steps, keep_steps, static = gather_from_workers(strategy, own).tolist()
    lengths, unknown = set(steps), tf.data.UNKNOWN_CARDINALITY
    # Of a feed, some workers may know their length before others do.
    together = len(lengths - {unknown}) <= 1 if all(keep_steps) else len(lengths) == 1 and unknown not in lengths
    if together and (all(static) or presharded_of(dataset) is not None):
        # Otherwise the workers ask each other before every step whether any of them has rows left, which takes as long
        # as the step of a small model, and the batches lose their static shape.
        distributed._enable_get_next_as_optional = False
    else:
        # A tf.function compares shapes only: with static ones it would reuse a step that was traced without asking.
        batches = batches.map(forget_count_of_rows)
        distributed = strategy.distribute_datasets_from_function(lambda _pipeline: batches, options)
    _record_length(distributed, steps, together=together)
    return distributed


def _record_length(distributed: tf.distribute.DistributedDataset, steps: list[int], *, together: bool) -> None:
    """Record each worker's number of batches; as in TensorFlow, -1 is endless and -2 unknown."""
    if together:
        longest = max(steps)
        setattr(distributed, _LENGTH, longest if longest >= 0 else None)
    elif len(set(steps)) > 1:
        numbers = ", ".join({-1: "endless", -2: "unknown"}.get(count, str(count)) for count in steps)
        shortest = min((count for count in steps if count >= 0), default=None)
        advice = " with ctx.even(dataset)"
        if shortest is not None:
            advice += f", take({shortest}) or steps_per_epoch={shortest}"
        refusal = (
            f"the workers have different numbers of batches ({numbers}, in the order of their rank), and `fit` would "
            f"wait forever for a worker that ends before the others. Give all the same number{advice}"
        )
        setattr(distributed, _REFUSAL, refusal)
        logger.warning(refusal)


def gather_from_workers(strategy: tf.distribute.Strategy, own: tf.Tensor) -> np.ndarray:
    """Return, for each of this worker's numbers, the numbers of all workers by rank. All workers must call it."""
    import tensorflow as tf

    pipeline = strategy.extended._make_input_context()
    ranks = tf.one_hot(pipeline.input_pipeline_id, pipeline.num_input_pipelines, dtype=own.dtype)
    gathered: np.ndarray = strategy.reduce("SUM", own[:, tf.newaxis] * ranks, axis=None).numpy()
    return gathered


# ---- what workers do not share --------------------------------------------------------------------------------------


def tell_of_own_statistics(model: Any) -> None:
    """Log on the chief, once in a process, that a model's batch normalization is not that of one process."""
    strategy = model.distribute_strategy
    is_told_here = is_across_workers(strategy) and strategy.extended.should_checkpoint
    if is_told_here and any(map(_has_own_statistics, model._flatten_layers())):
        warn_once(_OWN_STATISTICS)


def _has_own_statistics(layer: Any) -> bool:
    kinds = {kind.__name__ for kind in type(layer).__mro__}
    is_plain = "BatchNormalization" in kinds and not getattr(layer, "synchronized", False)
    return is_plain and layer.trainable and "SyncBatchNormalization" not in kinds


@functools.cache
def warn_once(text: str) -> None:
    """Log a warning, once in a process."""
    logger.warning(text)


# ---- several GPUs on a node -----------------------------------------------------------------------------------------


def _divide_batches(dataset: tf.data.Dataset, parts: int) -> tf.data.Dataset:
    """Divide each batch among the GPUs of this node: one element for each."""
    import tensorflow as tf

    rows = tf.nest.flatten(dataset.element_spec)[0].shape[0]
    if is_statically_shaped(dataset) and rows % parts == 0:
        divided = dataset.rebatch(rows // parts, drop_remainder=True)  # every batch is full: there is no remainder
    else:
        divided = dataset.flat_map(functools.partial(_parts_of_batch, dataset.element_spec, parts))
    batches = int(dataset.cardinality())
    return divided.apply(tf.data.experimental.assert_cardinality(batches * parts)) if batches >= 0 else divided


def _parts_of_batch(spec: Any, parts: int, *batch: Any) -> tf.data.Dataset:
    import tensorflow as tf

    batch = tf.nest.pack_sequence_as(spec, tf.nest.flatten(batch))
    is_weighted = isinstance(batch, tuple) and len(batch) == 3 and batch[2].dtype.is_floating

    def part(i: tf.Tensor) -> Any:
        if is_weighted:
            return part_of_batch(batch, i, parts)
        start, stop, _ = _range_of_part(batch, i, parts)
        return tf.nest.map_structure(lambda rows: rows[start:stop], batch)

    return tf.data.Dataset.range(parts).map(part)


def part_of_batch(batch: tuple[Any, Any, Any], i: Any, parts: int) -> tuple[Any, Any, Any]:
    """Return the i-th part of a batch ``(x, y, weights)``, such that their mean is that of the batch.

    A part without rows has a copy of one, as a filler, since some layers fail without: its weight is -0.0.
    """
    import tensorflow as tf

    start, stop, count = _range_of_part(batch, i, parts)
    first = tf.minimum(start, count - 1)
    x, y, weights = tf.nest.map_structure(lambda rows: rows[first : tf.maximum(stop, first + 1)], batch)
    # Parts may differ in size.
    share = tf.cast(parts * (stop - start), tf.float64) / tf.cast(count, tf.float64)

    def shared(weights: tf.Tensor) -> tf.Tensor:
        return tf.where(stop > start, weights * tf.cast(share, weights.dtype), -tf.zeros_like(weights))

    return x, y, tf.nest.map_structure(shared, weights)


def _range_of_part(batch: Any, i: Any, parts: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return where a part of a batch begins and ends, and how many rows the batch has, as int64 scalars."""
    import tensorflow as tf

    count = tf.shape(tf.nest.flatten(batch)[0], out_type=tf.int64)[0]
    return count * i // parts, count * (i + 1) // parts, count
