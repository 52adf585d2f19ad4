"""Patches Keras 3, so that N nodes train as one process would, and report the numbers that it would; see `row_counts`.

`workers` calls `count_rows` at the beginning of each `fit` and `evaluate`. The optimizers get the gradients of
all nodes before they do anything else with them, such as clipping or accumulating.
"""
# ruff: noqa: SLF001 - what is patched is private

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tfos_lab.node.activity.fetches import patch_once
from tfos_lab.node.activity.steps import FITS
from tfos_lab.node.keras.all_reduce import (
    ReplicaStep,
    gradients_over_replicas,
    over_nodes,
    running,
    unless_held,
    unless_within,
)
from tfos_lab.node.keras.distribute import is_across_workers, warn_once
from tfos_lab.node.keras.presharded import forget_count_of_rows
from tfos_lab.node.keras.row_counts import (
    RowMode,
    counting_activities,
    counting_real_rows,
    current,
    of_all_replicas,
    on_real_rows,
    rows_of,
    rows_of_one_step,
    times_weights_of_rows,
    weights_in,
    with_masks,
)
from tfos_lab.node.keras.versions import penalizes_mean_activity
from tfos_lab.node.lock_step import STEP_COUNT

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

_OWN_GRADIENTS = (
    "The optimizer gets the gradients of this node alone: have all nodes train one model by taking your step in "
    "ctx.strategy().run(step, args=(...)), or sum the gradients of all nodes first."
)


def patch_keras_3(trainer: ModuleType) -> None:
    """Patch Keras 3, given its module of the TensorFlow trainer; may be called twice."""
    adapter = sys.modules["keras.src.trainers.data_adapters.tf_dataset_adapter"]
    patch_once(adapter, "make_class_weight_map_fn", times_weights_of_rows)
    patch_once(trainer.TensorFlowTrainer, "_make_function", _counting_steps)
    for name in ("train_function", "test_function"):
        patch_once(trainer.TensorFlowTrainer, f"make_{name}", functools.partial(_as_rows_count, name))
    metrics = sys.modules["keras.src.trainers.compile_utils"].CompileMetrics
    patch_once(metrics, "update_state", lambda update: on_real_rows(update, lambda _weights: current.rows))
    losses = sys.modules["keras.src.losses.loss"]
    patch_once(losses, "reduce_weighted_values", of_all_replicas)
    patch_once(losses, "apply_mask", with_masks)
    for name in ("scale_loss_for_distribution", "unscale_loss_for_distribution"):
        patch_once(losses, name, unless_within)
    for name in ("compute_average_loss", "scale_regularization_loss"):
        patch_once(sys.modules["tensorflow"].nn, name, over_nodes)
    optimizer = sys.modules["keras.src.backend.tensorflow.optimizer"].TFOptimizer
    patch_once(optimizer, "_backend_apply_gradients", _on_all_gradients)
    patch_once(optimizer, "_all_reduce_sum_gradients", _unless_summed)
    patch_once(sys.modules["keras.src.optimizers.base_optimizer"].BaseOptimizer, "apply_gradients", unless_held)
    scaling = sys.modules["keras.src.optimizers.loss_scale_optimizer"].LossScaleOptimizer
    patch_once(scaling, "check_finite", _on_all_replicas)


def count_rows(model: keras.Model, mode: RowMode | None) -> None:
    """Set how steps count rows for which a function is made from now on."""
    model._tfos_lab_mode = mode


def _as_rows_count(name: str, make: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap what makes a step function at the beginning of `fit` and its kin: one that counts otherwise is made anew.

    A `fit` goes on with its own where a callback evaluates.
    """

    @functools.wraps(make)
    def make_function(model: keras.Model, force: bool = False) -> Any:  # noqa: FBT001, FBT002 - it is that method
        mode = getattr(model, "_tfos_lab_mode", None)
        made = getattr(model, name, None)
        return make(model, force or (made is not None and getattr(made, "tfos_lab_mode", None) != mode))

    return make_function


def _counting_steps(make_function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make_function)
    def _make_function(model: keras.Model, step_function: Callable[..., Any]) -> Any:
        mode = getattr(model, "_tfos_lab_mode", None)
        take = ReplicaStep(model, step_function)

        @functools.wraps(step_function)
        def step(data: Any) -> Any:
            with rows_of_one_step():
                if mode is not None:
                    # Keras weighs some means by the static number of rows, which one process would not have.
                    data = forget_count_of_rows(data)
                    rows_of(weights_in(data), mode)
                with counting_activities(model, "activity_regularizer", of_mean=penalizes_mean_activity()):
                    return take(data)

        if mode is not None:
            of_real_rows = functools.partial(
                counting_real_rows, rows=lambda: current.rows, penalties=lambda: model.losses
            )
            patch_once(model._loss_tracker, "update_state", of_real_rows)
        function = make_function(model, step)
        on_fetched = None if model.run_eagerly else StepOnFetched(model, step)

        @functools.wraps(function)
        def run(iterator: Any) -> Any:
            running.step = take
            if on_fetched is not None and isinstance(iterator, FetchedBatches):
                return on_fetched(next(iterator))
            outputs = function(iterator)
            STEP_COUNT.take(iterator)
            return outputs

        run.tfos_lab_mode = mode  # type: ignore[attr-defined]
        return run

    return _make_function


# ---- gradients ------------------------------------------------------------------------------------------------------


def _replica_across_workers() -> tf.distribute.ReplicaContext | None:
    """Return the context of this replica, where it trains together with other processes."""
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return context if context is not None and is_across_workers(context.strategy) else None


def _on_all_gradients(apply: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(apply)
    def _backend_apply_gradients(optimizer: Any, grads: Any, trainable_variables: Any) -> None:
        import tensorflow as tf

        context = _replica_across_workers()
        own = (variable if isinstance(variable, tf.Variable) else variable.value for variable in trainable_variables)
        strategy = getattr(next(own, None), "distribute_strategy", None)
        across = is_across_workers(strategy)
        if context is None and across:
            warn_once(_OWN_GRADIENTS)
        # Noted here for loops of the user's own, too.
        FITS.is_alone = not (across or isinstance(strategy, tf.distribute.ParameterServerStrategy))
        if context is None:
            apply(optimizer, grads, trainable_variables)
            return
        gradients = gradients_over_replicas(list(grads), context)
        # From here on, all replicas compute the same. Without a meeting at each update, updates may be conditional.
        extended = context.strategy.extended
        extended._use_merge_call = lambda: False
        try:
            apply(optimizer, gradients, trainable_variables)
        finally:
            del extended._use_merge_call

    return _backend_apply_gradients


def _unless_summed(reduce: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(reduce)
    def _all_reduce_sum_gradients(optimizer: Any, grads_and_vars: Any) -> Any:
        return reduce(optimizer, grads_and_vars) if _replica_across_workers() is None else grads_and_vars

    return _all_reduce_sum_gradients


def _on_all_replicas(check: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(check)
    def check_finite(optimizer: Any, grads: Any) -> Any:
        import tensorflow as tf

        finite, context = check(optimizer, grads), _replica_across_workers()
        # A replica that left out a step on its own would keep the others waiting for its gradients.
        return finite if context is None else context.all_reduce("SUM", tf.cast(~finite, tf.float32)) == 0

    return check_finite


# ---- steps on batches that are fetched before ------------------------------------------------------------------------


class FetchedBatches:
    """An iterator over a dataset's batches, so that no step begins without one.

    Keras notices the end of an epoch of unknown length when a step finds no batch. By then the parts of the
    step that need no batch have run: the metrics are divided by too many rows, and the optimizer has counted a step too
    many.
    """

    def __init__(self, dataset: tf.data.Dataset) -> None:
        self._batches = iter(dataset)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        import tensorflow as tf

        try:
            return next(self._batches)
        except StopIteration:
            # Keras takes this as the end; its step function would turn a StopIteration into a missing result.
            raise tf.errors.OutOfRangeError(None, None, "the epoch has ended") from None


class StepOnFetched:
    """Runs a model's own step on a fetched batch; traced once for batches of any number of rows."""

    def __init__(self, model: keras.Model, step: Callable[[Any], Any]) -> None:
        self._model = model
        self._step = step
        self._function: Callable[[Any], Any] | None = None

    def __call__(self, data: Any) -> Any:
        """Run the step; returns its result, reduced over all replicas."""
        if self._function is None:
            self._function = self._trace(data)
        return self._function(data)

    def _trace(self, data: Any) -> Callable[[Any], Any]:
        import tensorflow as tf

        def step_on_data(data: Any) -> Any:
            strategy = self._model.distribute_strategy
            outputs = strategy.run(self._step, args=(data,))
            trainer = sys.modules["keras.src.backend.tensorflow.trainer"]
            return trainer.reduce_per_replica(outputs, strategy, reduction="auto")

        jit_compile = self._model.jit_compile
        function: Callable[[Any], Any]
        if all(map(tf.is_tensor, tf.nest.flatten(data))) and not jit_compile:
            signature = [tf.nest.map_structure(_spec_of_rows, data)]
            function = tf.function(step_on_data, input_signature=signature, autograph=False)
        else:
            function = tf.function(step_on_data, reduce_retracing=True, jit_compile=jit_compile, autograph=False)
        return function


def _spec_of_rows(rows: tf.Tensor) -> tf.TensorSpec:
    import tensorflow as tf

    return tf.TensorSpec([None, *rows.shape[1:]] if rows.shape.rank else rows.shape, rows.dtype)
