"""Lets Keras count each fed row once, so that N nodes show the numbers that one process would.

The weights that `ctx.dataset` gives make gradients right without any help: ``w = u·R·b/G`` for a row of the user's
weight ``u``, R replicas, b rows in this replica's batch and G rows of the step on all replicas. What Keras shows needs
more. Its loss is a mean in which each replica's counts by the rows of its batch, weighted metrics are to see ``u``, and
rows that only fill up (their weight is -0.0) are to be seen by no metric. The three are seen to here, in a way
that serves Keras 3 (`keras_rows`) and Keras 2 (`tf_keras_rows`).
"""
# ruff: noqa: SLF001 - what has to be patched is private

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tfos_lab.node.keras.presharded import ends_together, is_across_workers, presharded_of

PATCHED = "_tfos_lab_rows"


@dataclass(frozen=True)
class RowMode:
    """How a step learns the factor ``R·b/G`` that the weights of its rows have been multiplied by.

    ``asks``: the replicas add up their rows. Otherwise all rows weigh alike, and their weight is the factor. What was
    traced for workers that ``end_together`` is of no use to others: it does not ask whether anyone has rows left.
    """

    asks: bool
    end_together: bool


def mode_of(dataset: Any, strategy: Any) -> RowMode | None:
    """Return how to take the rows of a dataset; None if Keras' own ways are right for them."""
    rows = presharded_of(dataset)
    if rows is None or not (rows.padded or is_across_workers(strategy)):
        return None
    return RowMode(asks=rows.weighted or not rows.weights_are_ours, end_together=ends_together(dataset))


@dataclass(frozen=True)
class StepRows:
    """A replica's rows of one step.

    Attributes
    ----------
    weights, filler : tf.Tensor
        Floats and bools ``(rows,)``: the rows' weights, and which rows only fill up.
    count : tf.Tensor
        float32 scalar, as the following: how many rows do not only fill up.
    factor : tf.Tensor
        What the user's weights were multiplied by.
    share : tf.Tensor
        What the mean of the losses over the batch was multiplied by, rows that only fill up taken into account.
    absent : tf.Tensor
        The part of the replicas that have no row of this step at all, from 0 to 1.
    """

    weights: Any
    filler: Any
    count: Any
    factor: Any
    share: Any
    absent: Any


class _Current(threading.local):
    """What the step that this thread traces is about."""

    rows: StepRows | None = None
    model: Any = None


current = _Current()


def rows_of(weights: Any, mode: RowMode) -> StepRows | None:
    """Look at the weights of a replica's batch; None if they are not one for each row."""
    import tensorflow as tf

    if not tf.is_tensor(weights) or weights.shape.rank != 1:
        return None
    if current.rows is not None and current.rows.weights is weights:
        return current.rows
    filler = tf.equal(tf.bitcast(tf.cast(weights, tf.float32), tf.int32), tf.int32.min)
    size = tf.cast(tf.size(filler), tf.float32)
    count = size - tf.reduce_sum(tf.cast(filler, tf.float32))
    if mode.asks:
        context = tf.distribute.get_replica_context()
        total = context.all_reduce(tf.distribute.ReduceOp.SUM, count)
        factor = tf.math.divide_no_nan(context.num_replicas_in_sync * size, total)
    else:
        factor = tf.reduce_max(tf.cast(weights, tf.float32))
    factor = tf.where(factor > 0, factor, tf.ones_like(factor))
    # The mean over the batch is as if each row had this weight, those included that only fill up.
    share = tf.where(count > 0, factor * count / size, tf.ones_like(factor))
    # A step has fewer rows than there are replicas only where each of them has one or none.
    absent = tf.nn.relu(1 - size / factor)
    current.rows = StepRows(weights, filler, count, factor, share, absent)
    return current.rows


@contextmanager
def forgetting_rows() -> Iterator[None]:
    """Forget a step's rows with its trace: their tensors mean nothing in another one."""
    current.rows = None
    try:
        yield
    finally:
        current.rows = None


def counted(update: Callable[..., Any], rows: Callable[[], StepRows | None], penalties: Callable[[], Any]) -> Any:
    """Let a mean of losses count the rows of a batch that are real, and undo their factor.

    ``penalties`` gives the losses that no row has caused; replicas that have rows count them for those that have none.
    """

    def update_state(values: Any, sample_weight: Any = None) -> Any:
        import tensorflow as tf

        of_step = rows()
        if of_step is None or sample_weight is None:
            return update(values, sample_weight=sample_weight)
        values = values / tf.cast(of_step.share, values.dtype)
        for penalty in penalties():
            values += tf.cast(of_step.absent, values.dtype) * tf.cast(tf.reduce_sum(penalty), values.dtype)
        return update(values, sample_weight=of_step.count)

    return update_state


def seeing_real_rows(update: Callable[..., Any], rows: Callable[[Any], StepRows | None]) -> Callable[..., Any]:
    """Let a model's metrics see the rows that are real, with the weights that their user gave them."""

    @functools.wraps(update)
    def update_state(metrics: Any, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        import tensorflow as tf

        of_step = rows(sample_weight)
        if of_step is None:
            update(metrics, y_true, y_pred, sample_weight=sample_weight)
            return
        weights = None if sample_weight is None else sample_weight / of_step.factor
        _build_metrics(metrics, y_true, y_pred)

        def see(*seen: Any) -> Any:
            update(metrics, seen[0], seen[1], sample_weight=seen[2])
            return tf.constant(0)

        def see_real() -> Any:
            real = tf.logical_not(of_step.filler)
            keep = functools.partial(_keep_rows, real)
            return see(*tf.nest.map_structure(keep, (y_true, y_pred, weights)))

        def see_those_there_are() -> Any:
            # Metrics do not all bear a batch without rows.
            return tf.cond(of_step.count > 0, see_real, lambda: tf.constant(0))

        tf.cond(tf.reduce_any(of_step.filler), see_those_there_are, lambda: see(y_true, y_pred, weights))

    setattr(update_state, PATCHED, True)
    return update_state


def _keep_rows(real: Any, value: Any) -> Any:
    import tensorflow as tf

    return tf.boolean_mask(value, real) if tf.is_tensor(value) and value.shape.rank else value


def _build_metrics(metrics: Any, y_true: Any, y_pred: Any) -> None:
    """Let metrics make their variables: not within a branch of a `tf.cond`."""
    if hasattr(metrics, "_built"):
        if not metrics._built:
            metrics.build(y_pred, y_true)
    elif not metrics.built:
        metrics.build(y_true, y_pred)
