"""Makes Keras count each fed row once, so that N nodes report the numbers that one process would.

With the weights of `ctx.dataset`, gradients are right by themselves: ``w = u·R·b/G`` for a row of the user's weight
``u``, R replicas, b rows in this replica's batch and G rows of the step on all replicas. But activity regularizers are
divided by b, and need this factor, too. What Keras reports needs three corrections: its loss is a mean in which each
replica must count by the rows of its batch, weighted metrics must see ``u``, and no metric may see filler rows (whose
weight is -0.0). They are made here for Keras 3 (`keras_3`) and Keras 2
(`tf_keras`).
"""
# ruff: noqa: SLF001 - what has to be patched is private

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfos_lab.node.keras.all_reduce import replicas_within
from tfos_lab.node.keras.distribute import is_across_workers
from tfos_lab.node.keras.presharded import ends_together, presharded_of

if TYPE_CHECKING:
    import tensorflow as tf


@dataclass(frozen=True)
class RowMode:
    """How a step finds the factor ``R·b/G`` that the weights of its rows have been multiplied by.

    With ``asks``, the replicas add up their rows. Otherwise all rows have the same weight, which is the factor. A step
    that was traced for workers that ``end_together`` cannot be used for others: it does not ask whether any worker has
    rows left.
    """

    asks: bool
    end_together: bool


def mode_of(dataset: tf.data.Dataset | None, strategy: tf.distribute.Strategy | None) -> RowMode | None:
    """Return how to count the rows of a dataset; None if Keras counts them correctly by itself."""
    rows = presharded_of(dataset)
    if dataset is None or rows is None or not rows.has_weights or not (rows.padded or is_across_workers(strategy)):
        return None
    return RowMode(asks=rows.weighted or not rows.weights_are_ours, end_together=ends_together(dataset))


@dataclass(frozen=True)
class StepRows:
    """A replica's rows of one step."""

    # Floats ``(rows, ...)``: the rows' weights. Bools ``(rows,)``: which rows are fillers.
    weights: tf.Tensor
    filler: tf.Tensor
    # float32 scalar, like the following ones: the number of rows that are not fillers.
    count: tf.Tensor
    # What the user's weights were multiplied by.
    factor: tf.Tensor
    # What the mean of the losses over the batch was multiplied by, fillers included.
    share: tf.Tensor
    # The fraction of the replicas that have no row of this step, from 0 to 1.
    absent: tf.Tensor
    # The losses of activity regularizers so far.
    activities: list[tf.Tensor] = field(default_factory=list)


class _Current(threading.local):
    """The rows of the step that this thread traces."""

    rows: StepRows | None = None


current = _Current()


def weights_in(data: Any) -> Any:
    """Return the weights of a batch ``(x, y, weights)``; None for any other batch."""
    return data[2] if isinstance(data, tuple) and len(data) == 3 else None


def rows_of(weights: Any, mode: RowMode) -> StepRows | None:
    """Return the rows of a replica's batch, given its weights; None without weights of rows.

    Of weights for each of several outputs or time steps, the first ones tell which rows are fillers.
    """
    import tensorflow as tf

    weights = tf.nest.flatten(weights)[0]
    if not tf.is_tensor(weights) or not weights.shape.rank:
        return None
    if current.rows is not None and current.rows.weights is weights:
        return current.rows
    firsts = weights[(..., *[0] * (weights.shape.rank - 1))]
    filler = tf.equal(tf.bitcast(tf.cast(firsts, tf.float32), tf.int32), tf.int32.min)
    size = tf.cast(tf.size(filler), tf.float32)
    count = size - tf.reduce_sum(tf.cast(filler, tf.float32))
    if mode.asks:
        context = tf.distribute.get_replica_context()
        replicas = context.num_replicas_in_sync
        own = tf.stack([count, tf.cast(count > 0, tf.float32)])
        total, present = tf.unstack(context.all_reduce(tf.distribute.ReduceOp.SUM, own))
        factor = _or_one(tf.math.divide_no_nan(replicas * size, total))
        absent = 1 - present / replicas
    else:
        factor = _or_one(tf.reduce_max(tf.cast(weights, tf.float32)))
        # A step of a feed has fewer rows than there are replicas only if each replica has one row or none.
        absent = tf.nn.relu(1 - size / factor)
    # The mean over the batch is as if each row, fillers included, had this weight.
    share = tf.where(count > 0, factor * count / size, tf.ones_like(factor))
    current.rows = StepRows(weights, filler, count, factor, share, absent)
    return current.rows


def _or_one(factor: tf.Tensor) -> tf.Tensor:
    import tensorflow as tf

    return tf.where(factor > 0, factor, tf.ones_like(factor))


@contextmanager
def rows_of_one_step() -> Iterator[None]:
    """Forget a step's rows at its end: their tensors belong to its trace."""
    current.rows = None
    try:
        yield
    finally:
        current.rows = None


def counting_real_rows(
    update: Callable[..., Any], rows: Callable[[], StepRows | None], penalties: Callable[[], Any]
) -> Any:
    """Wrap the update of a mean of losses: count real rows only, and undo their factor.

    ``penalties`` returns the losses that do not depend on rows, such as those of regularizers (and those of activities,
    if any); replicas with rows count them for replicas without.
    """

    def update_state(values: Any, sample_weight: Any = None) -> Any:
        import tensorflow as tf

        step_rows = rows()
        if step_rows is None or sample_weight is None:
            return update(values, sample_weight=sample_weight)
        values = values / tf.cast(step_rows.share, values.dtype)
        of_weights = [*penalties()]
        for penalty in of_weights and [*of_weights, *(-loss for loss in step_rows.activities)]:
            values += tf.cast(step_rows.absent, values.dtype) * tf.cast(tf.reduce_sum(penalty), values.dtype)
        return update(values, sample_weight=step_rows.count)

    return update_state


def times_weights_of_rows(make_map: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap what makes the map for ``class_weight``, so that it multiplies the weights of rows.

    Keras 3 takes only one of both; Keras 2 means to multiply them, and fails for batches of any number of rows.
    """

    @functools.wraps(make_map)
    def make_class_weight_map_fn(class_weight: Any) -> Callable[..., Any]:
        weigh = make_map(class_weight)

        def class_weights_map_fn(*data: Any) -> Any:
            import tensorflow as tf

            if len(data) < 3 or data[2] is None:
                return weigh(*data)
            x, y, of_class = weigh(*data[:2])
            of_rows = tf.reshape(data[2], [-1] + [1] * (of_class.shape.rank - 1))
            return x, y, of_rows * tf.cast(of_class, of_rows.dtype)

        return class_weights_map_fn

    return make_class_weight_map_fn


def of_all_replicas(reduce: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap how Keras 3 reduces weighted losses, so that rows may have several, and all replicas' count alike.

    Keras fails where each row has one weight and several losses, as of pixels and time steps. It divides by the number
    of entries that this replica's masks leave. And a sum does not need the factor that means do, but is divided by the
    number of replicas as they are.
    """

    @functools.wraps(reduce)
    def reduce_weighted_values(values: Any, sample_weight: Any = None, mask: Any = None, **options: Any) -> Any:
        loss = reduce(values, sample_weight=_like(values, sample_weight), mask=mask, **options)
        rows, reduction = current.rows, options.get("reduction")
        if reduction == "sum":
            loss *= replicas_within()
        if rows is None or sample_weight is None:
            return loss
        import tensorflow as tf

        if reduction == "sum":
            loss /= tf.cast(rows.factor, loss.dtype)
        elif mask is not None and reduction in ("sum_over_batch_size", "mean"):
            context = tf.distribute.get_replica_context()
            valid = tf.cast(mask, rows.factor.dtype)
            real = tf.reduce_sum(tf.boolean_mask(valid, tf.logical_not(rows.filler)))
            mean = context.all_reduce(tf.distribute.ReduceOp.SUM, real) / context.num_replicas_in_sync
            loss *= tf.cast(tf.math.divide_no_nan(tf.reduce_sum(valid), rows.factor * mean), loss.dtype)
        return loss

    return reduce_weighted_values


def weighing_rows(reduce: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap how Keras 2 reduces weighted losses: it fails, too, where each row has one weight and several losses."""

    @functools.wraps(reduce)
    def compute_weighted_loss(losses: Any, sample_weight: Any = None, *args: Any, **kwargs: Any) -> Any:
        return reduce(losses, _like(losses, sample_weight), *args, **kwargs)

    return compute_weighted_loss


def with_masks(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap how the metrics of Keras 3 multiply weights and masks, as `of_all_replicas` does for losses."""

    @functools.wraps(apply)
    def apply_mask(sample_weight: Any, mask: Any, *args: Any, **kwargs: Any) -> Any:
        return apply(_like(mask, sample_weight), mask, *args, **kwargs)

    return apply_mask


def _like(values: Any, weights: Any) -> Any:
    """Return weights of rows such that they can be multiplied by values of which each row has several.

    Where no rows are counted, only where Keras would fail: weights may be of columns there.
    """
    import tensorflow as tf

    if values is None or len(getattr(weights, "shape", ())) != 1 or len(values.shape) < 2:
        return weights
    are_of_rows = values.shape[0] is not None and weights.shape[0] == values.shape[0] != values.shape[-1]
    if current.rows is None and not are_of_rows:
        return weights
    return tf.reshape(weights, [-1] + [1] * (len(values.shape) - 1))


@contextmanager
def counting_activities(model: Any, attribute: str, *, of_mean: bool) -> Iterator[None]:
    """Let activity regularizers see real rows only, and penalize as in one process, while a step is traced.

    ``attribute`` is where a layer has its regularizer. With ``of_mean``, Keras divides the penalty by the rows of the
    batch.
    """
    before = {}
    if current.rows is not None:
        for layer in model._flatten_layers():
            regularizer = getattr(layer, attribute, None)
            if regularizer is not None and not isinstance(regularizer, _Penalty):  # another replica's step may wait
                before[layer] = regularizer
                setattr(layer, attribute, _Penalty(regularizer, of_mean=of_mean))
    try:
        yield
    finally:
        for layer, regularizer in before.items():
            setattr(layer, attribute, regularizer)


class _Penalty:
    """Stands in for an activity regularizer while the steps of replicas are traced, each on its thread."""

    def __init__(self, regularizer: Callable[[Any], Any], *, of_mean: bool) -> None:
        self._regularizer = regularizer
        self._of_mean = of_mean

    def __call__(self, output: Any) -> Any:
        rows, penalize = current.rows, self._regularizer
        return penalize(output) if rows is None else _penalty(penalize, rows, output, of_mean=self._of_mean)


def _penalty(regularizer: Callable[[Any], Any], rows: StepRows, output: Any, *, of_mean: bool) -> tf.Tensor:
    import tensorflow as tf

    size = tf.shape(output)[0]

    def of_real() -> tf.Tensor:
        real = tf.repeat(tf.logical_not(rows.filler), size // tf.size(rows.filler))
        return regularizer(tf.boolean_mask(output, real))

    def of_real_if_any() -> tf.Tensor:
        return tf.cond(rows.count > 0, of_real, lambda: tf.zeros((), output.dtype))

    penalty = tf.cond(tf.reduce_any(rows.filler), of_real_if_any, lambda: regularizer(output))
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    penalty *= tf.cast(rows.factor if of_mean else replicas, penalty.dtype)
    rows.activities.append(penalty / tf.cast(size if of_mean else 1, penalty.dtype))
    return penalty


def on_real_rows(update: Callable[..., Any], rows: Callable[[Any], StepRows | None]) -> Callable[..., Any]:
    """Wrap the update of a model's metrics: they see real rows only, with the weights that the user gave them."""

    @functools.wraps(update)
    def update_state(metrics: Any, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        import tensorflow as tf

        step_rows = rows(sample_weight)
        if step_rows is None:
            update(metrics, y_true, y_pred, sample_weight=sample_weight)
            return
        weights = tf.nest.map_structure(
            lambda given: None if given is None else given / tf.cast(step_rows.factor, given.dtype), sample_weight
        )
        _build_metrics(metrics, y_true, y_pred)

        def update_with(y_true: Any, y_pred: Any, weights: Any) -> tf.Tensor:
            update(metrics, y_true, y_pred, sample_weight=weights)
            return tf.constant(0)

        def update_with_real() -> tf.Tensor:
            real = tf.logical_not(step_rows.filler)
            keep = functools.partial(_keep_rows, real)
            return update_with(*tf.nest.map_structure(keep, (y_true, y_pred, weights)))

        def update_unless_empty() -> tf.Tensor:
            # Some metrics fail on a batch without rows.
            return tf.cond(step_rows.count > 0, update_with_real, lambda: tf.constant(0))

        tf.cond(tf.reduce_any(step_rows.filler), update_unless_empty, lambda: update_with(y_true, y_pred, weights))

    return update_state


def _keep_rows(real: tf.Tensor, value: Any) -> Any:
    import tensorflow as tf

    if not tf.is_tensor(value) or not value.shape.rank:
        return value
    kept = tf.boolean_mask(value, real)
    if (mask := getattr(value, "_keras_mask", None)) is not None:
        kept._keras_mask = tf.boolean_mask(mask, real)
    return kept


def _build_metrics(metrics: Any, y_true: Any, y_pred: Any) -> None:
    """Let metrics create their variables now, since they must not do so in a branch of a `tf.cond`."""
    if hasattr(metrics, "_built"):
        if not metrics._built:
            metrics.build(y_pred, metrics._conform_to_outputs(y_pred, y_true))
    elif not metrics.built:
        metrics.build(y_true, y_pred)
