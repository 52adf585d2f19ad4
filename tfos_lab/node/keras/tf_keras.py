"""Patches Keras 2 (tf_keras), so that N nodes report the numbers that one process would; see `row_counts`."""
# ruff: noqa: SLF001 - what is patched is private

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tfos_lab.errors import ConfigError, FeedError
from tfos_lab.node.activity.fetches import patch_once
from tfos_lab.node.keras.adapting import warn_of_different_layers
from tfos_lab.node.keras.distribute import (
    LOOP_OR_NO_SERVERS,
    is_across_workers,
    length_of_epoch,
    tell_of_own_statistics,
    why_fit_would_hang,
    without_jit,
)
from tfos_lab.node.keras.presharded import is_presharded
from tfos_lab.node.keras.row_counts import (
    RowMode,
    StepRows,
    counting_activities,
    counting_real_rows,
    mode_of,
    on_real_rows,
    rows_of,
    rows_of_one_step,
    times_weights_of_rows,
    weighing_rows,
    weights_in,
)
from tfos_lab.node.keras.versions import misfit

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras

_mode: list[RowMode | None] = [None]
# TensorFlow's error for fed rows with parameter servers, whose workers get a dataset as its graph.
_NOT_SENT = "GeneratorDatasetOp::Dataset does not support serialization"


def patch_tf_keras() -> None:
    """Patch Keras 2, if it is loaded; may be called twice."""
    training = sys.modules.get("tf_keras.src.engine.training")
    utils = sys.modules.get("tf_keras.src.engine.compile_utils")
    if training is None or utils is None or misfit("tf_keras"):
        return
    patch_once(utils.MetricsContainer, "update_state", lambda update: on_real_rows(update, _rows_of_tf_keras))
    patch_once(utils.LossesContainer, "__call__", _losses_of_real_rows)
    patch_once(sys.modules["tf_keras.src.utils.losses_utils"], "compute_weighted_loss", weighing_rows)
    adapter: Any = sys.modules["tf_keras.src.engine.data_adapter"]
    patch_once(adapter, "_make_class_weight_map_fn", times_weights_of_rows)
    patch_once(adapter.DataHandler, "enumerate_epochs", _starting_with_its_epoch)
    for name in ("fit", "evaluate"):
        patch_once(training.Model, name, lambda run: _with_mode(run, training))
    patch_once(training.Model, "compile", without_jit)
    _patch_steps(training.Model)


def _patch_steps(model: type) -> None:
    """Patch the steps of a class of models, which may be a user's own; may be called twice."""
    for name in ("train_step", "test_step"):
        patch_once(model, name, _in_one_step)


class _StartedWithItsEpoch:
    """A dataset whose first iterator is empty: tf_keras creates one before the first epoch and discards it.

    A real one would have fetched rows by then, of a small feed perhaps a whole epoch.
    """

    def __init__(self, dataset: tf.data.Dataset) -> None:
        self._dataset = dataset
        self._has_started = False

    def __iter__(self) -> Iterator[Any]:
        if self._has_started:
            return iter(self._dataset)
        self._has_started = True
        return iter(())


def _starting_with_its_epoch(enumerate_epochs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(enumerate_epochs)
    def enumerate_with_rows(handler: Any) -> Iterator[Any]:
        adapter, dataset = handler._adapter, handler._dataset
        refusal = why_fit_would_hang(dataset) if handler._steps_per_epoch in (None, -1) else None
        if refusal:
            raise FeedError(reason=refusal)
        if handler._inferred_steps is None:
            # Another worker may know it: one that finds the end by a step without a batch counts as having sent more.
            handler._inferred_steps = length_of_epoch(dataset)
        if not is_presharded(getattr(adapter, "_dataset", None)) or not adapter.should_recreate_iterator():
            yield from enumerate_epochs(handler)
            return
        handler._dataset = _StartedWithItsEpoch(dataset)
        try:
            yield from enumerate_epochs(handler)
        finally:
            handler._dataset = dataset

    return enumerate_with_rows


def _rows_of_tf_keras(weights: Any) -> StepRows | None:
    return None if _mode[0] is None else rows_of(weights, _mode[0])


def _with_mode(run: Callable[..., Any], training: ModuleType) -> Callable[..., Any]:
    signature = inspect.signature(run)

    @functools.wraps(run)
    def run_with_mode(model: tf_keras.Model, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        _patch_steps(type(model))
        before = _mode[0]
        _mode[0] = mode_of(x, model.distribute_strategy)
        if _mode[0] is not None and signature.bind_partial(model, x, *args, **kwargs).arguments.get("class_weight"):
            _mode[0] = replace(_mode[0], asks=True)
        if is_across_workers(model.distribute_strategy) and model.distribute_reduction_method == "auto":
            # tf_keras sums metrics over workers within an epoch, though each has the result over all of them. Results
            # of a user's own step may differ between workers; they stay the sum that tf_keras documents.
            plain, own = training.Model, type(model)
            if own.train_step is plain.train_step and own.test_step is plain.test_step:
                model.distribute_reduction_method = "first"
        if run.__name__ == "fit":
            tell_of_own_statistics(model)
            warn_of_different_layers(model)
        name = f"{run.__name__.replace('fit', 'train').replace('evaluate', 'test')}_function"
        if getattr(model, "_tfos_lab_mode", {}).get(name) != _mode[0]:
            setattr(model, name, None)
            model.__dict__["_tfos_lab_mode"] = {**getattr(model, "_tfos_lab_mode", {}), name: _mode[0]}
        try:
            return run(model, x, *args, **kwargs)
        except Exception as error:
            if _NOT_SENT in str(error) and is_presharded(x):
                problem = f"Keras 2 has no `{run.__name__}` of fed rows with parameter servers: {LOOP_OR_NO_SERVERS}"
                raise ConfigError([problem]) from None
            raise
        finally:
            _mode[0] = before

    return run_with_mode


def _in_one_step(step: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(step)
    def in_one_step(model: tf_keras.Model, data: Any) -> Any:
        import tensorflow as tf

        batch = [rows for rows in tf.nest.flatten(data, expand_composites=True) if tf.is_tensor(rows)]
        # A step begins, and finds no batch, where an epoch ends whose length is not known. What needs no batch, such as
        # the count of iterations and weight decay, waits for it all the same.
        with rows_of_one_step(), tf.control_dependencies(batch):
            _rows_of_tf_keras(weights_in(data))
            with counting_activities(model, "_activity_regularizer", of_mean=True):
                return step(model, data)

    return in_one_step


class _CountedMean:
    """Stands in for a container's mean of losses while a step is traced."""

    def __init__(self, mean: Any, rows: StepRows, penalties: Any) -> None:
        self.update_state = counting_real_rows(mean.update_state, lambda: rows, lambda: penalties)


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
