"""Makes Keras 3 train on many workers.

Keras 3 cannot `fit` under `tf.distribute.MultiWorkerMirroredStrategy`. Before the first step it averages a whole batch
over the workers, to learn its shapes; after each step it averages the metrics along an axis that scalars do not have.
`patch_keras()` puts two small functions in their place, and the user writes nothing.

The first of them also sees to the end of an epoch of fed rows whose number is not known yet: the batch is drawn before
the step (`keras_drawn`). What N nodes show is made what one process would show by
`keras_rows` and `tf_keras_rows`.

Who talks to it: the fork server, which mends once, before it forks; and a child that imports for itself.
"""
# ruff: noqa: SLF001 - what has to be mended is private

from __future__ import annotations

import functools
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tfos_lab.errors import ConfigError, FeedError
from tfos_lab.node.keras.drawn import Drawn
from tfos_lab.node.keras.keras_3 import patch_keras_3, results_on_all, take_rows
from tfos_lab.node.keras.presharded import (
    Presharded,
    is_across_workers,
    is_presharded,
    is_statically_shaped,
    length_of_epoch,
    mark_as_presharded,
    patch_presharded,
    presharded_of,
    why_fit_would_hang,
)
from tfos_lab.node.keras.row_counts import mode_of
from tfos_lab.node.keras.tf_keras import patch_tf_keras

__all__ = ["KERAS_TO_PATCH", "Presharded", "mark_as_presharded", "patch_keras"]

logger = logging.getLogger(__name__)

# The first version that needs the patch, and the first that it has not been tried on. A test fails when the version
# that is installed no longer needs it.
KERAS_TO_PATCH = ((3, 12), (3, 16))

_PATCHED = "_tfos_lab_patched"


def patch_keras() -> bool:
    """Make the loaded Keras 3 train on many workers; safe to call twice, and before a fork.

    Nothing runs here: no TensorFlow op, no device, no thread. Call it after the imports of `tensorflow` and `keras`.
    It also teaches the strategy about the rows of a feed (`mark_as_presharded`), for every Keras and for custom loops.

    Returns
    -------
    bool
        Whether Keras is mended now. False where it needs no patch: with `TF_USE_LEGACY_KERAS`, without Keras 3, with
        another backend than TensorFlow, or with a version outside `KERAS_TO_PATCH`.
    """
    patch_presharded()
    patch_tf_keras()
    trainer = _trainer_to_patch()
    if trainer is None:
        return False
    model = trainer.TensorFlowTrainer
    if not hasattr(model._maybe_symbolic_build, _PATCHED):
        model._maybe_symbolic_build = _build_from_specs(model._maybe_symbolic_build)
        trainer.reduce_per_replica = _reduce_across_workers(trainer.reduce_per_replica)
        patch_keras_3(trainer)
    return True


def _trainer_to_patch() -> Any:
    """Return the module of Keras 3 that holds what must be mended, or None."""
    if os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true"):
        return None
    trainer = sys.modules.get("keras.src.backend.tensorflow.trainer")
    if trainer is None:
        return None
    first, last = KERAS_TO_PATCH
    return trainer if first <= _version(sys.modules["keras"].__version__) < last else None


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


# --- before the first step ------------------------------------------------------------------------------------------


def _build_from_specs(build: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(build)
    def _maybe_symbolic_build(model: Any, iterator: Any = None, data_batch: Any = None) -> Any:
        strategy = model._distribute_strategy
        _refuse_parameter_servers(strategy)
        across = is_across_workers(strategy)
        if iterator is not None and across:
            _take_single_steps(model, iterator)
        dataset = None if iterator is None else getattr(iterator.data_adapter, "_dataset", None)
        has_own = dataset is not None and is_presharded(dataset)
        if iterator is not None:
            take_rows(model, mode_of(dataset, strategy) if has_own else None)
        if has_own:
            _settle_length(iterator)
            _throughput(iterator)
        if strategy is None or iterator is None or not (has_own or across):
            return build(model, iterator=iterator, data_batch=data_batch)
        return build(model, data_batch=_example_of(iterator, strategy))

    setattr(_maybe_symbolic_build, _PATCHED, True)
    return _maybe_symbolic_build


def _refuse_parameter_servers(strategy: Any) -> None:
    import tensorflow as tf

    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        raise ConfigError(
            [
                (
                    "Keras 3 has no `fit` with parameter servers. Use Keras 2 (env={'TF_USE_LEGACY_KERAS': '1'}), "
                    "write the loop yourself with tf.distribute.coordinator.ClusterCoordinator, or ask for num_ps=0"
                )
            ]
        )


def _settle_length(iterator: Any) -> None:
    """Let all workers take the same number of steps, and let the end of a feed be no accident."""
    import tensorflow as tf

    if iterator.steps_per_epoch:
        return
    refusal = why_fit_would_hang(iterator._distributed_dataset)
    if refusal:
        raise FeedError(reason=refusal)
    length = length_of_epoch(iterator._distributed_dataset)
    if length is not None and iterator.data_adapter.num_batches is None:
        # Another worker was told already; all see the same progress.
        known = tf.data.experimental.assert_cardinality(length)
        iterator.data_adapter._dataset = iterator.data_adapter._dataset.apply(known)
    iterator._interrupted_warning = lambda: None


def _take_single_steps(model: Any, iterator: Any) -> None:
    if model.steps_per_execution > 1:
        logger.warning(
            "steps_per_execution=%d is taken as 1: TensorFlow cannot loop over steps of several workers in Keras 3.",
            model.steps_per_execution,
        )
        model.steps_per_execution = iterator.steps_per_execution = 1


def _example_of(iterator: Any, strategy: Any) -> Any:
    """Return what one replica's batch looks like.

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


# --- the end of an epoch --------------------------------------------------------------------------------------------


def _throughput(iterator: Any) -> None:
    if iterator.steps_per_execution == 1 and iterator.data_adapter.num_batches is None:
        dataset = iterator._distributed_dataset
        if is_statically_shaped(dataset) or presharded_of(iterator.data_adapter._dataset) is not None:
            iterator._get_iterator = lambda: Drawn(dataset)


# --- after each step ------------------------------------------------------------------------------------------------


def _reduce_across_workers(reduce: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(reduce)
    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        across = {"auto": "MEAN", "mean": "MEAN", "sum": "SUM"}.get(reduction)
        if across is None or not is_across_workers(strategy):
            return reduce(values, strategy, reduction)
        if reduction == "auto" and (results := results_on_all(strategy, values)) is not None:
            return results
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

    return bool(tf.is_tensor(value) and value.dtype == tf.float32 and value.shape.rank == 0)


def _on_first_replica(strategy: Any, value: Any) -> Any:
    return strategy.experimental_local_results(value)[0]
