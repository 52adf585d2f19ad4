"""Lets a worker keep the rows that were fed to it, under a strategy that would divide them.

TensorFlow takes every dataset for the whole of the data: under a `MultiWorkerMirroredStrategy` each worker gets a part
of the rows and a part of each batch. What a feed brings to a worker is that worker's part already, in batches of its
own size, and all workers have the same number of batches. `mark_as_presharded` says so of a dataset; the strategy, once
taught by `patch_presharded`, then takes each element as one batch of this worker.

Who talks to it: `keras_workers`, which teaches the strategy, and the dataset of a feed.
"""
# ruff: noqa: SLF001 - TensorFlow offers no public way to ask a dataset for its inputs, or to step without asking

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

logger = logging.getLogger(__name__)

_PRESHARDED = "_tfos_lab_presharded"
_LENGTH = "_tfos_lab_length"
_REFUSAL = "_tfos_lab_refusal"
_TAUGHT = "_tfos_lab_taught"
# Transformations under which workers that end together still do. After any other the workers ask each other.
_KEEPING_STEP = {
    "_MapDataset",
    "_ParallelMapDataset",
    "_OptionsDataset",
    "_PrefetchDataset",
    "_RepeatDataset",
    "_ShuffleDataset",
    "_SkipDataset",
    "_TakeDataset",
}


# After these, weights are still what they were.
_KEEPING_WEIGHTS = _KEEPING_STEP - {"_MapDataset", "_ParallelMapDataset"}


@dataclass(frozen=True)
class Presharded:
    """What is known of a marked dataset.

    Attributes
    ----------
    weighted : bool
        Whether rows have weights of the user's own.
    padded : bool
        Whether batches are filled up.
    weights_are_ours : bool
        Whether nobody has touched the weights since.
    """

    weighted: bool = False
    padded: bool = False
    weights_are_ours: bool = True


_UNKNOWN = Presharded(weighted=True)


def mark_as_presharded(dataset: Any, rows: Presharded | None = None) -> Any:
    """Say that a dataset holds this worker's rows only, batched for this worker.

    Every strategy then takes each element as one batch of this worker; nothing is left out and nothing is split. What
    is derived from the dataset (`map`, `take`, `prefetch`, …) is marked as well. On a node with several GPUs, each
    batch is divided among them.

    Parameters
    ----------
    dataset : tf.data.Dataset
        Batches of this worker; as many as every other worker has, since they train in lock-step.
    rows : Presharded, optional
        What `ctx.dataset` knows of them; its weights then make the numbers of all workers those of one process.

    Returns
    -------
    tf.data.Dataset
        The same elements, marked.
    """
    import tensorflow as tf

    options = tf.data.Options()
    # All rows stay also where the strategy has not been taught, as in a process that tfos_lab did not start.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    marked = dataset.with_options(options)
    setattr(marked, _PRESHARDED, rows or _UNKNOWN)
    return marked


def presharded_of(dataset: Any) -> Presharded | None:
    """Return the mark of a dataset, or of the one that it derives from; None for any other."""
    untouched = True
    for source in _sources(dataset):
        rows = getattr(source, _PRESHARDED, None)
        if rows is not None:
            return None if rows is _UNKNOWN else replace(rows, weights_are_ours=rows.weights_are_ours and untouched)
        untouched = untouched and (type(source).__name__ in _KEEPING_WEIGHTS or _passes_weights(source))
    return None


def _passes_weights(mapped: Any) -> bool:
    """Whether a map over ``(x, y, w)`` gives back the w that it got."""
    function = getattr(getattr(mapped, "_map_func", None), "function", None)
    spec = mapped.element_spec
    if function is None or not (isinstance(spec, tuple) and len(spec) == 3):
        return False
    graph, took = function.graph, getattr(mapped, "_input_dataset", mapped).element_spec
    if not (isinstance(took, tuple) and len(took) == 3):
        return False
    weights = graph.outputs[-1]
    while weights.op.type == "Identity":
        weights = weights.op.inputs[0]
    inputs = len(graph.inputs) - len(graph.captures)
    return weights is graph.inputs[inputs - 1]


def is_presharded(dataset: Any) -> bool:
    """Whether a dataset is marked by `mark_as_presharded`, or derives from one that is."""
    return any(getattr(source, _PRESHARDED, None) is not None for source in _sources(dataset))


def patch_presharded() -> None:
    """Teach `MultiWorkerMirroredStrategy` to take marked datasets as they are; may be called twice."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy
    if not hasattr(strategy.experimental_distribute_dataset, _TAUGHT):
        strategy.experimental_distribute_dataset = _or_presharded(strategy.experimental_distribute_dataset)


def is_across_workers(strategy: Any) -> bool:
    """Whether a strategy trains together with other processes."""
    import tensorflow as tf

    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return False
    return bool(strategy.num_replicas_in_sync > len(strategy.extended.worker_devices))


def is_statically_shaped(dataset: Any) -> bool:
    """Whether all elements of a dataset, distributed or not, have the same known shapes."""
    import tensorflow as tf

    specs = [getattr(spec, "_value_specs", (spec,))[0] for spec in tf.nest.flatten(dataset.element_spec)]
    return all(isinstance(spec, tf.TensorSpec) and spec.shape.rank and spec.shape.is_fully_defined() for spec in specs)


def ends_together(dataset: Any) -> bool:
    """Whether workers take their last step over a dataset together, as those of a feed do, and need not ask."""
    return presharded_of(dataset) is not None and _keeps_step(dataset)


def length_of_epoch(distributed: Any) -> int | None:
    """Return how many batches of own rows each worker has, where any of them knows."""
    length: int | None = getattr(distributed, _LENGTH, None)
    return length


def why_fit_would_hang(distributed: Any) -> str | None:
    """Say why Keras could not end an epoch of own rows, or None if it can."""
    refusal: str | None = getattr(distributed, _REFUSAL, None)
    return refusal


# --- distributing ---------------------------------------------------------------------------------------------------


def _or_presharded(distribute: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(distribute)
    def experimental_distribute_dataset(strategy: Any, dataset: Any, options: Any = None) -> Any:
        if not is_presharded(dataset):
            return distribute(strategy, dataset, options)
        return _distribute_presharded(strategy, dataset, options)

    setattr(experimental_distribute_dataset, _TAUGHT, True)
    return experimental_distribute_dataset


def _distribute_presharded(strategy: Any, dataset: Any, options: Any) -> Any:
    import tensorflow as tf

    replicas_here = len(strategy.extended.worker_devices)
    batches = dataset if replicas_here == 1 else _divide_batches(dataset, replicas_here)
    pipelines = []

    def presharded(pipeline: Any) -> Any:
        pipelines.append(pipeline)
        return batches

    distributed = strategy.distribute_datasets_from_function(presharded, options)
    if not is_across_workers(strategy) or not tf.executing_eagerly():
        return distributed
    mine = tf.stack([dataset.cardinality(), int(_keeps_step(dataset)), int(is_statically_shaped(batches))])
    steps, keep_step, static = _ask_all_workers(strategy, mine, pipelines[0])
    together = _end_together(steps, promised=all(keep_step))
    if together and (all(static) or presharded_of(dataset) is not None):
        # Otherwise the workers ask each other before every step whether anyone has rows left, which takes as long as
        # the step of a small model, and the batches lose their static shape.
        distributed._enable_get_next_as_optional = False
    else:
        # A tf.function compares shapes only: with static ones it would go on with a step traced without asking.
        batches = batches.map(forget_count_of_rows)
        distributed = strategy.distribute_datasets_from_function(presharded, options)
    _record_lengths(distributed, steps, together=together)
    return distributed


def _record_lengths(distributed: Any, steps: list[int], *, together: bool) -> None:
    longest = max(steps)
    if together:
        setattr(distributed, _LENGTH, longest if longest >= 0 else None)
    elif len(set(steps)) > 1:
        refusal = _different_steps(steps)
        setattr(distributed, _REFUSAL, refusal)
        logger.warning(refusal)


def _ask_all_workers(strategy: Any, mine: Any, pipeline: Any) -> Any:
    """The numbers of all workers: a list for each of mine, in the order of the workers' rank. All must ask together."""
    import tensorflow as tf

    ranks = tf.one_hot(pipeline.input_pipeline_id, pipeline.num_input_pipelines, dtype=mine.dtype)
    return strategy.reduce("SUM", mine[:, tf.newaxis] * ranks, axis=None).numpy().tolist()


def _end_together(steps: list[int], *, promised: bool) -> bool:
    """Whether all workers take their last step together; a feed may tell one worker its length before another."""
    import tensorflow as tf

    unknown = tf.data.UNKNOWN_CARDINALITY
    if promised:
        return len(set(steps) - {unknown}) <= 1
    return len(set(steps)) == 1 and steps[0] != unknown


def _different_steps(steps: list[int]) -> str:
    """Say that the workers' datasets differ in length, where -1 is endless and -2 unknown, as in TensorFlow."""
    numbers = ", ".join({-1: "endless", -2: "unknown"}.get(count, str(count)) for count in steps)
    shortest = min((count for count in steps if count >= 0), default=None)
    advice = "" if shortest is None else f", as with take({shortest}) or steps_per_epoch={shortest}"
    return (
        f"the workers have different numbers of batches ({numbers}, in the order of their rank), and `fit` would wait "
        f"forever for a worker that ends before the others. Give all the same number{advice}"
    )


# --- several GPUs on a node -----------------------------------------------------------------------------------------


def _divide_batches(dataset: Any, parts: int) -> Any:
    """Divide each batch among the GPUs of this node: an element for each."""
    import tensorflow as tf

    rows = tf.nest.flatten(dataset.element_spec)[0].shape[0]
    if is_statically_shaped(dataset) and rows % parts == 0:
        divided = dataset.rebatch(rows // parts, drop_remainder=True)  # each batch is full: there is no remainder
    else:
        divided = dataset.flat_map(functools.partial(_parts_of_batch, dataset.element_spec, parts))
    batches = int(dataset.cardinality())
    return divided.apply(tf.data.experimental.assert_cardinality(batches * parts)) if batches >= 0 else divided


def _parts_of_batch(spec: Any, parts: int, *batch: Any) -> Any:
    import tensorflow as tf

    batch = tf.nest.pack_sequence_as(spec, tf.nest.flatten(batch))
    count = tf.shape(tf.nest.flatten(batch)[0], out_type=tf.int64)[0]
    is_weighted = isinstance(batch, tuple) and len(batch) == 3 and batch[2].dtype.is_floating

    def part(i: Any) -> Any:
        start, stop = count * i // parts, count * (i + 1) // parts
        if not is_weighted:
            return tf.nest.map_structure(lambda rows: rows[start:stop], batch)
        # Not all layers bear a part without rows: it has a copy of one, which only fills up.
        first = tf.minimum(start, count - 1)
        x, y, weights = tf.nest.map_structure(lambda rows: rows[first : tf.maximum(stop, first + 1)], batch)
        # The mean over the GPUs is to be the mean over the batch, though their parts may differ in size.
        share = tf.cast(parts * (stop - start), tf.float64) / tf.cast(count, tf.float64)
        return x, y, tf.where(stop > start, weights * tf.cast(share, weights.dtype), -tf.zeros_like(weights))

    return tf.data.Dataset.range(parts).map(part)


# --- looking at datasets --------------------------------------------------------------------------------------------


def _sources(dataset: Any) -> Iterator[Any]:
    """The dataset and all that it derives from."""
    pending = [dataset]
    while pending:
        source = pending.pop()
        yield source
        # A dataset that is distributed already, or that has travelled through a tf.function, names no inputs.
        pending.extend(getattr(source, "_inputs", list)())


def _keeps_step(dataset: Any) -> bool:
    """Whether nothing was done to the marked dataset after which workers might no longer end together."""
    for source in _sources(dataset):
        if getattr(source, _PRESHARDED, None) is not None:
            return True
        if type(source).__name__ not in _KEEPING_STEP:
            return False
    return False


def forget_count_of_rows(*batch: Any) -> Any:
    """Return a batch whose tensors do not know statically how many rows they have."""
    import tensorflow as tf

    def forget(rows: Any) -> Any:
        if not tf.is_tensor(rows) or not rows.shape.rank:
            return rows
        return tf.compat.v1.placeholder_with_default(rows, [None, *rows.shape[1:]])

    batch = tf.nest.map_structure(forget, batch)
    return batch if len(batch) > 1 else batch[0]
