"""Lets Keras count each fed row once, so that N nodes show the numbers that one process would.

The weights that `ctx.dataset` gives make gradients right without any help: ``w = u·R·b/G`` for a row of the user's
weight ``u``, R replicas, b rows in this replica's batch and G rows of the step on all replicas. What Keras shows needs
more. Its loss is a mean in which each replica's counts by the rows of its batch, weighted metrics are to see ``u``, and
rows that only fill up (their weight is -0.0) are to be seen by no metric. The three are seen to here, for Keras 3 and
for Keras 2 (tf_keras).

Who talks to it: `keras_workers`, which says of each `fit` and `evaluate` how the rows are to be taken.
"""
# ruff: noqa: SLF001 - what has to be patched is private

from __future__ import annotations

import functools
import math
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tfos_lab.node.keras_drawn import Drawn, StepOnDrawn
from tfos_lab.node.own_rows import forget_count_of_rows, has_own_rows, is_across_workers, own_rows_of

_PATCHED = "_tfos_lab_rows"


@dataclass(frozen=True)
class RowMode:
    """How a step learns the factor ``R·b/G`` that the weights of its rows have been multiplied by.

    ``asks``: the replicas add up their rows. Otherwise all rows weigh alike, and their weight is the factor.
    """

    asks: bool
    strategy: Any


def mode_of(dataset: Any, strategy: Any) -> RowMode | None:
    """Return how to take the rows of a dataset; None if Keras' own ways are right for them."""
    rows = own_rows_of(dataset)
    if rows is None or not (rows.padded or is_across_workers(strategy)):
        return None
    return RowMode(asks=rows.weighted or not rows.weights_are_ours, strategy=strategy)


@dataclass(frozen=True)
class _StepRows:
    """A replica's rows of one step, as tensors.

    ``filler`` tells which rows only fill up, ``count`` how many do not, ``factor`` what weights were multiplied by, and
    ``share`` what the mean over the batch was. ``absent`` is the part of the replicas that have no row at all.
    """

    weights: Any
    filler: Any
    count: Any
    factor: Any
    share: Any
    absent: Any


class _Current(threading.local):
    """What the step that this thread traces is about."""

    rows: _StepRows | None = None
    model: Any = None


_current = _Current()


def rows_of(weights: Any, mode: RowMode) -> _StepRows | None:
    """Look at the weights of a replica's batch; None if they are not one for each row."""
    import tensorflow as tf

    if not tf.is_tensor(weights) or weights.shape.rank != 1:
        return None
    if _current.rows is not None and _current.rows.weights is weights:
        return _current.rows
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
    _current.rows = _StepRows(weights, filler, count, factor, share, absent)
    return _current.rows


@contextmanager
def _no_rows_known() -> Iterator[None]:
    """Forget a step's rows with its trace: their tensors mean nothing in another one."""
    _current.rows = None
    try:
        yield
    finally:
        _current.rows = None


def _counted(update: Callable[..., Any], rows: Callable[[], _StepRows | None], penalties: Callable[[], Any]) -> Any:
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


def _seeing_real_rows(update: Callable[..., Any], rows: Callable[[Any], _StepRows | None]) -> Callable[..., Any]:
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

    setattr(update_state, _PATCHED, True)
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


# --- Keras 3 ---------------------------------------------------------------------------------------------------------


def patch_keras_3(trainer: Any) -> None:
    """Patch Keras 3, given its module of the TensorFlow trainer; may be called twice."""
    model = trainer.TensorFlowTrainer
    if not hasattr(model, "_make_function") or hasattr(model._make_function, _PATCHED):
        return
    model._make_function = _steps_with_rows(model._make_function)
    metrics = sys.modules["keras.src.trainers.compile_utils"].CompileMetrics
    metrics.update_state = _seeing_real_rows(metrics.update_state, lambda _weights: _current.rows)


def take_rows(model: Any, mode: RowMode | None) -> None:
    """Say how the rows of the `fit` or `evaluate` that begins are to be taken; drop functions made for others."""
    model._tfos_lab_mode = mode
    for name in ("train_function", "test_function"):
        made = getattr(model, name, None)
        if made is not None and getattr(made, "tfos_lab_mode", None) != mode:
            setattr(model, name, None)


def _steps_with_rows(make_function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make_function)
    def _make_function(model: Any, step_function: Callable[..., Any]) -> Any:
        mode = getattr(model, "_tfos_lab_mode", None)

        @functools.wraps(step_function)
        def step(data: Any) -> Any:
            with _no_rows_known():
                if mode is not None:
                    # Keras weighs some means by the static number of rows: it is to see none, as it does alone.
                    data = forget_count_of_rows(data)
                    rows_of(_weights_in(data), mode)
                return step_function(data)

        tracker = model._loss_tracker
        if mode is not None and tracker is not None and not hasattr(tracker.update_state, _PATCHED):
            update = _counted(tracker.update_state, lambda: _current.rows, lambda: model.losses)
            setattr(update, _PATCHED, True)
            tracker.update_state = update
        function = make_function(model, step)
        on_drawn = None if model.run_eagerly else StepOnDrawn(model, step)

        @functools.wraps(function)
        def run(iterator: Any) -> Any:
            _current.model = model
            if on_drawn is not None and isinstance(iterator, Drawn):
                return on_drawn(next(iterator))
            return function(iterator)

        run.tfos_lab_mode = mode  # type: ignore[attr-defined]
        return run

    setattr(_make_function, _PATCHED, True)
    return _make_function


def _weights_in(data: Any) -> Any:
    return data[2] if isinstance(data, tuple) and len(data) == 3 else None


def results_on_all(strategy: Any, outputs: Any) -> Any:
    """Return the metrics of a step over the rows of all replicas, or None if the outputs are something else.

    What replicas have counted is added up, and the results are made of the sums: a mean of their results would be
    wrong wherever they have counted different numbers of rows.
    """
    import tensorflow as tf

    model = _current.model
    if model is None or not isinstance(outputs, dict):
        return None
    variables = [variable for metric in model.metrics for variable in metric.variables]
    if not variables or any(variable.aggregation != "sum" for variable in variables):
        return None
    dtypes = sorted({variable.dtype for variable in variables})

    def local() -> list[Any]:
        return [
            tf.concat([tf.reshape(variable.value, [-1]) for variable in variables if variable.dtype == dtype], axis=0)
            for dtype in dtypes
        ]

    sums = {
        dtype: strategy.reduce(tf.distribute.ReduceOp.SUM, vector, axis=None)
        for dtype, vector in zip(dtypes, strategy.run(local), strict=True)
    }
    ends = dict.fromkeys(dtypes, 0)
    values = []
    for variable in variables:
        start = ends[variable.dtype]
        ends[variable.dtype] += math.prod(variable.shape)
        values.append(tf.reshape(sums[variable.dtype][start : ends[variable.dtype]], variable.shape))
    keras = sys.modules["keras"]
    with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
        results = model.get_metrics_result()
    return results if results.keys() == outputs.keys() else None


# --- Keras 2 ---------------------------------------------------------------------------------------------------------

_mode: list[RowMode | None] = [None]


def patch_tf_keras() -> None:
    """Patch Keras 2, if it is loaded; may be called twice."""
    training = sys.modules.get("tf_keras.src.engine.training")
    utils = sys.modules.get("tf_keras.src.engine.compile_utils")
    if training is None or utils is None or hasattr(utils.MetricsContainer.update_state, _PATCHED):
        return
    model, losses, metrics = training.Model, utils.LossesContainer, utils.MetricsContainer
    metrics.update_state = _seeing_real_rows(metrics.update_state, _rows_of_tf_keras)
    losses.__call__ = _losses_of_real_rows(losses.__call__)
    handler = sys.modules["tf_keras.src.engine.data_adapter"].DataHandler
    handler.enumerate_epochs = _begun_with_its_epoch(handler.enumerate_epochs)
    model.fit = _with_mode(model.fit, training)
    model.evaluate = _with_mode(model.evaluate, training)
    for name in ("train_step", "test_step"):
        setattr(model, name, _forgetting(getattr(model, name)))


class _BegunWithItsEpoch:
    """A dataset whose first iterator is none: tf_keras begins one before the first epoch, and throws it away there.

    It would have drawn rows by then, of a small feed perhaps all of an epoch.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._has_begun = False

    def __iter__(self) -> Iterator[Any]:
        if self._has_begun:
            return iter(self._dataset)
        self._has_begun = True
        return iter(())


def _begun_with_its_epoch(enumerate_epochs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(enumerate_epochs)
    def enumerate_with_rows(handler: Any) -> Iterator[Any]:
        adapter, dataset = handler._adapter, handler._dataset
        if not has_own_rows(getattr(adapter, "_dataset", None)) or not adapter.should_recreate_iterator():
            yield from enumerate_epochs(handler)
            return
        handler._dataset = _BegunWithItsEpoch(dataset)
        try:
            yield from enumerate_epochs(handler)
        finally:
            handler._dataset = dataset

    return enumerate_with_rows


def _rows_of_tf_keras(weights: Any) -> _StepRows | None:
    return None if _mode[0] is None else rows_of(weights, _mode[0])


def _take_results_as_they_are(model: Any, training: Any) -> None:
    """Undo that metrics are summed over workers between two ends of an epoch: each has the result over all of them.

    What a step of the user's own returns may differ between workers, and stays the sum that its author was promised.
    """
    if type(model).train_step is training.Model.train_step and type(model).test_step is training.Model.test_step:
        model.distribute_reduction_method = "first"


def _with_mode(run: Callable[..., Any], training: Any) -> Callable[..., Any]:
    @functools.wraps(run)
    def run_with_mode(model: Any, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        before = _mode[0]
        _mode[0] = mode_of(x, model.distribute_strategy)
        if is_across_workers(model.distribute_strategy) and model.distribute_reduction_method == "auto":
            _take_results_as_they_are(model, training)
        name = f"{run.__name__.replace('fit', 'train').replace('evaluate', 'test')}_function"
        if getattr(model, "_tfos_lab_mode", {}).get(name) != _mode[0]:
            setattr(model, name, None)
            model.__dict__["_tfos_lab_mode"] = {**getattr(model, "_tfos_lab_mode", {}), name: _mode[0]}
        try:
            return run(model, x, *args, **kwargs)
        finally:
            _mode[0] = before

    return run_with_mode


def _forgetting(step: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(step)
    def forgetting(model: Any, data: Any) -> Any:
        with _no_rows_known():
            return step(model, data)

    return forgetting


class _CountedMean:
    """Stands in for a container's mean of losses while a step is traced."""

    def __init__(self, mean: Any, rows: _StepRows, penalties: Any) -> None:
        self.update_state = _counted(mean.update_state, lambda: rows, lambda: penalties)


def _losses_of_real_rows(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def __call__(  # noqa: N807 - it is that method
        losses: Any, y_true: Any, y_pred: Any, sample_weight: Any = None, regularization_losses: Any = None
    ) -> Any:
        rows = _rows_of_tf_keras(sample_weight)
        if rows is None:
            return call(losses, y_true, y_pred, sample_weight, regularization_losses)
        if not losses.built:
            losses.build(y_pred)
        total, per_output = losses._total_loss_mean, losses._per_output_metrics
        losses._total_loss_mean = _CountedMean(total, rows, regularization_losses or [])
        losses._per_output_metrics = [mean and _CountedMean(mean, rows, []) for mean in per_output]
        try:
            return call(losses, y_true, y_pred, sample_weight, regularization_losses)
        finally:
            losses._total_loss_mean, losses._per_output_metrics = total, per_output

    return __call__
