"""Makes Keras 3 train on many workers, and lets a worker keep the rows that were fed to it.

Keras 3 cannot `fit` under `tf.distribute.MultiWorkerMirroredStrategy`. Before the first step it averages a whole batch
over the workers, to learn its shapes; after each step it averages the metrics along an axis that scalars do not have.
`mend_keras()` puts two small functions in their place, and the user writes nothing.

It also teaches the strategy about *own rows*. TensorFlow takes every dataset for the whole of the data: it gives each
worker a part of the rows and a part of each batch. What a feed brings to a worker is that worker's part already;
`mark_as_own_rows(dataset)` says so, and then each element is one batch of this worker, whole.

Who talks to it: the nursery (mends once, before it forks), a child that imports for itself, and the feed's dataset.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tfos_lab.errors import FeedError

logger = logging.getLogger(__name__)

# The first version that the mending was tried on, and the first that it was not. `tests/node/test_keras_workers.py`
# fails when a version in between no longer needs it.
KERAS_TO_MEND = ((3, 12), (3, 16))

_MENDED = "_tfos_lab_mended"
_OWN_ROWS = "_tfos_lab_own_rows"
_STEPS = "_tfos_lab_steps"


def mend_keras() -> bool:
    """Make the loaded Keras 3 train on many workers; safe to call twice, and before a fork.

    Nothing runs here: no TensorFlow op, no device, no thread. Call it after the imports of `tensorflow` and `keras`;
    datasets of own rows are understood from then on under tf_keras and in custom loops too.

    Returns
    -------
    bool
        Whether Keras is mended now. False where it needs no mending: with `TF_USE_LEGACY_KERAS`, without Keras 3, with
        another backend than TensorFlow, or with a version outside `KERAS_TO_MEND`.
    """
    _teach_own_rows()
    trainer = _trainer_to_mend()
    if trainer is None:
        return False
    model = trainer.TensorFlowTrainer
    if not hasattr(model._maybe_symbolic_build, _MENDED):
        model._maybe_symbolic_build = _mended(_build_from_specs(model._maybe_symbolic_build))
        trainer.reduce_per_replica = _mended(_reduce_across_workers(trainer.reduce_per_replica))
    return True


def mark_as_own_rows(dataset: Any) -> Any:
    """Say that a dataset holds this worker's rows only, batched for this worker.

    Every strategy then takes each element as one batch of this worker; nothing is left out and nothing is split. What
    is derived from the dataset (`map`, `take`, `prefetch`, …) is marked as well. On a node with several GPUs, each
    batch is divided among them.

    Parameters
    ----------
    dataset : tf.data.Dataset
        Batches of this worker. Workers train in lock-step, so all should have the same number of them.

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
    setattr(marked, _OWN_ROWS, True)
    return marked


def has_own_rows(dataset: Any) -> bool:
    """Whether a dataset is marked by `mark_as_own_rows`, or derives from one that is."""
    return any(getattr(source, _OWN_ROWS, False) for source in _sources(dataset))


# --- own rows -------------------------------------------------------------------------------------------------------


def _teach_own_rows() -> None:
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy
    if not hasattr(strategy.experimental_distribute_dataset, _MENDED):
        strategy.experimental_distribute_dataset = _mended(_or_own_rows(strategy.experimental_distribute_dataset))


def _or_own_rows(distribute: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(distribute)
    def experimental_distribute_dataset(strategy: Any, dataset: Any, options: Any = None) -> Any:
        if not has_own_rows(dataset):
            return distribute(strategy, dataset, options)
        return _distribute_own_rows(strategy, dataset, options)

    return experimental_distribute_dataset


def _distribute_own_rows(strategy: Any, dataset: Any, options: Any) -> Any:
    import tensorflow as tf

    replicas_here = len(strategy.extended.worker_devices)
    batches = dataset if replicas_here == 1 else _divide_batches(dataset, replicas_here)
    pipelines = []

    def own_rows(pipeline: Any) -> Any:
        pipelines.append(pipeline)
        return batches

    distributed = strategy.distribute_datasets_from_function(own_rows, options)
    if _is_across_workers(strategy) and tf.executing_eagerly():
        mine = tf.stack([dataset.cardinality(), int(_is_statically_shaped(batches))])
        steps, static = _ask_all_workers(strategy, mine, pipelines[0])
        setattr(distributed, _STEPS, steps)
        if len(set(steps)) > 1:
            logger.warning(_different_steps(steps))
        if _end_together(steps, all(static)):
            _step_without_asking(distributed)
    return distributed


def _step_without_asking(distributed: Any) -> None:
    """Spare the workers to ask each other before every step whether anyone has rows left.

    Asking takes as long as the step of a small model, and takes the static shape from the batches.
    """
    distributed._enable_get_next_as_optional = False
    # A tf.function tells iterators apart by their options, not by the flag: with options of its own this one is not
    # taken for one that asks, nor one that asks for this one.
    distributed._options = distributed._options or _options_of_lockstep()


@functools.cache
def _options_of_lockstep() -> Any:
    import tensorflow as tf

    return tf.distribute.InputOptions()


def _ask_all_workers(strategy: Any, mine: Any, pipeline: Any) -> Any:
    """The numbers of all workers: a list for each of mine, in the order of the workers' rank."""
    import tensorflow as tf

    seats = tf.one_hot(pipeline.input_pipeline_id, pipeline.num_input_pipelines, dtype=mine.dtype)
    return strategy.reduce("SUM", mine[:, tf.newaxis] * seats, axis=None).numpy().tolist()


def _end_together(steps: list[int], is_static: bool) -> bool:
    import tensorflow as tf

    if len(set(steps)) > 1 or steps[0] == tf.data.UNKNOWN_CARDINALITY:
        return False
    return is_static or steps[0] == tf.data.INFINITE_CARDINALITY


def _different_steps(steps: list[int]) -> str:
    """Say that the workers' datasets differ in length, where -1 is endless and -2 unknown, as in TensorFlow."""
    numbers = ", ".join({-1: "endless", -2: "unknown"}.get(count, str(count)) for count in steps)
    shortest = min((count for count in steps if count >= 0), default=None)
    advice = "" if shortest is None else f", as with take({shortest}) or steps_per_epoch={shortest}"
    return (
        f"the workers have different numbers of batches ({numbers}, in the order of their rank), and `fit` would wait "
        f"forever for a worker that ends before the others. Give all the same number{advice}"
    )


def _divide_batches(dataset: Any, parts: int) -> Any:
    """Divide each batch among the GPUs of this node: an element for each."""
    import tensorflow as tf

    rows = _batch_size(dataset)
    if rows is not None and rows % parts == 0 and _is_statically_shaped(dataset):
        divided = dataset.rebatch(rows // parts, drop_remainder=True)  # each batch is full: there is no remainder
    else:
        divided = dataset.flat_map(functools.partial(_parts_of_batch, dataset.element_spec, parts))
    batches = int(dataset.cardinality())
    return divided.apply(tf.data.experimental.assert_cardinality(batches * parts)) if batches >= 0 else divided


def _parts_of_batch(spec: Any, parts: int, *batch: Any) -> Any:
    import tensorflow as tf

    batch = tf.nest.pack_sequence_as(spec, tf.nest.flatten(batch))
    count = tf.shape(tf.nest.flatten(batch)[0], out_type=tf.int64)[0]

    def part(i: Any) -> Any:
        return tf.nest.map_structure(lambda rows: rows[count * i // parts : count * (i + 1) // parts], batch)

    return tf.data.Dataset.range(parts).map(part)


def _sources(dataset: Any) -> Iterator[Any]:
    """The dataset and all that it derives from."""
    pending = [dataset]
    while pending:
        source = pending.pop()
        yield source
        # A dataset that is distributed already, or that has travelled through a tf.function, names no inputs.
        pending.extend(getattr(source, "_inputs", list)())


def _batch_size(dataset: Any) -> int | None:
    import tensorflow as tf

    shape = tf.nest.flatten(dataset.element_spec)[0].shape
    return shape[0] if shape.rank else None


def _is_statically_shaped(dataset: Any) -> bool:
    import tensorflow as tf

    specs = tf.nest.flatten(dataset.element_spec)
    return all(isinstance(spec, tf.TensorSpec) and spec.shape.is_fully_defined() for spec in specs)


def _is_across_workers(strategy: Any) -> bool:
    """Whether the strategy trains together with other processes."""
    import tensorflow as tf

    return (
        isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        and strategy.num_replicas_in_sync > len(strategy.extended.worker_devices)
    )


# --- Keras 3 --------------------------------------------------------------------------------------------------------


def _trainer_to_mend() -> Any:
    """The module of Keras 3 that holds what must be mended, or None."""
    if os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true"):
        return None
    trainer = sys.modules.get("keras.src.backend.tensorflow.trainer")
    if trainer is None:
        return None
    first, last = KERAS_TO_MEND
    return trainer if first <= _version(sys.modules["keras"].__version__) < last else None


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def _build_from_specs(build: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(build)
    def _maybe_symbolic_build(model: Any, iterator: Any = None, data_batch: Any = None) -> Any:
        strategy = model._distribute_strategy
        if strategy is None or iterator is None:
            return build(model, iterator=iterator, data_batch=data_batch)
        if not _is_across_workers(strategy) and not has_own_rows(getattr(iterator.data_adapter, "_dataset", None)):
            return build(model, iterator=iterator)
        _refuse_different_steps(iterator)
        return build(model, data_batch=_example_of(iterator, strategy))

    return _maybe_symbolic_build


def _refuse_different_steps(iterator: Any) -> None:
    steps = getattr(iterator._distributed_dataset, _STEPS, [])
    if len(set(steps)) > 1 and not iterator.steps_per_epoch:
        raise FeedError(reason=_different_steps(steps))


def _example_of(iterator: Any, strategy: Any) -> Any:
    """What one replica's batch looks like.

    Shapes and dtypes are all that Keras needs. Where the dataset declares them, no batch is drawn: a batch drawn here
    would be lost for the training, and it costs a start of the whole pipeline.
    """
    import tensorflow as tf

    specs = tf.nest.map_structure(_spec_of_one_replica, iterator._distributed_dataset.element_spec)
    if all(spec is None or _describes_rows(spec) for spec in tf.nest.flatten(specs)):
        return specs
    _, _, batches = next(iter(iterator))
    return tf.nest.map_structure(lambda value: _on_first_replica(strategy, value), next(batches))


def _spec_of_one_replica(spec: Any) -> Any:
    import tensorflow as tf

    spec = getattr(spec, "_value_specs", (spec,))[0]
    return None if isinstance(spec, tf.NoneTensorSpec) else spec


def _describes_rows(spec: Any) -> bool:
    """Whether all is known but the number of rows."""
    rank = spec.shape.rank
    return rank is not None and (rank == 0 or spec.shape[1:].is_fully_defined())


def _reduce_across_workers(reduce: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(reduce)
    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        across = {"auto": "MEAN", "mean": "MEAN", "sum": "SUM"}.get(reduction)
        if across is None or not _is_across_workers(strategy):
            return reduce(values, strategy, reduction)
        return _reduce_together(values, strategy, across)

    return reduce_per_replica


def _reduce_together(values: Any, strategy: Any, how: str) -> Any:
    """Reduce a structure over all replicas; its scalars, which are the metrics, travel as one vector."""
    import tensorflow as tf

    flat = tf.nest.flatten(values)
    is_metric = [_is_metric(_on_first_replica(strategy, value)) for value in flat]
    metrics = [value for value, is_one in zip(flat, is_metric, strict=True) if is_one]
    reduced: Iterator[Any] = iter(())
    if metrics:
        vector = strategy.run(lambda *scalars: tf.stack(scalars), args=metrics)
        reduced = iter(tf.unstack(strategy.reduce(how, vector, axis=None), num=len(metrics)))
    flat = [
        next(reduced) if is_one else strategy.reduce(how, value, axis=None)
        for value, is_one in zip(flat, is_metric, strict=True)
    ]
    return tf.nest.pack_sequence_as(values, flat)


def _is_metric(value: Any) -> bool:
    import tensorflow as tf

    return tf.is_tensor(value) and value.dtype == tf.float32 and value.shape.rank == 0


def _on_first_replica(strategy: Any, value: Any) -> Any:
    return strategy.experimental_local_results(value)[0]


def _mended(function: Callable[..., Any]) -> Callable[..., Any]:
    setattr(function, _MENDED, True)
    return function
