"""What the steps of several workers in Keras 3 send to one another: gradients, and the counts of the metrics.

`keras_3` has each step taken as `ReplicaStep`; `workers` asks for `metrics_over_replicas` after it.
"""
# ruff: noqa: SLF001 - what is read is private

from __future__ import annotations

import functools
import math
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfos_lab.node.keras.distribute import is_across_workers

if TYPE_CHECKING:
    import keras
    import tensorflow as tf


# How many steps of models a strategy takes now.
_STEPS = "_tfos_lab_steps"


def metrics_over_replicas(strategy: tf.distribute.Strategy, outputs: Any) -> dict[str, Any] | None:
    """Return the metrics of a step over the rows of all replicas, or None if the outputs are something else.

    The metrics' counts are summed over the replicas, and the results are computed from the sums: a mean of the
    replicas' results would be wrong if they have counted different numbers of rows.
    """
    import tensorflow as tf

    step = running.step
    if step is None or not isinstance(outputs, dict):
        return None
    if step.is_reduced:
        return {name: strategy.experimental_local_results(result)[0] for name, result in outputs.items()}
    if not (variables := _summed_variables(step.model)):
        return None
    vectors = strategy.run(lambda: _vectors(variables))
    sums = [strategy.reduce(tf.distribute.ReduceOp.SUM, vector, axis=None) for vector in vectors]
    results = _results_from(sums, step.model, variables)
    return results if results.keys() == outputs.keys() else None


def _summed_variables(model: keras.Model) -> list[Any]:
    """Return the variables of a model's metrics; none if any of them is not a count that replicas may add up."""
    variables = [variable for metric in model.metrics for variable in metric.variables]
    return variables if all(variable.aggregation == "sum" for variable in variables) else []


def _vectors(variables: list[Any]) -> list[tf.Tensor]:
    """Return the values of variables as one vector for each of their dtypes, in order."""
    import tensorflow as tf

    return [
        tf.concat([tf.reshape(one.value, [-1]) for one in variables if one.dtype == dtype], axis=0)
        for dtype in sorted({variable.dtype for variable in variables})
    ]


def _results_from(vectors: list[tf.Tensor], model: keras.Model, variables: list[Any]) -> dict[str, Any]:
    """Return the results of a model's metrics if their variables had the values in these vectors."""
    import tensorflow as tf

    sizes: dict[str, list[int]] = {}
    for variable in variables:
        sizes.setdefault(variable.dtype, []).append(math.prod(variable.shape))
    parts = {dtype: iter(tf.split(vector, sizes[dtype])) for dtype, vector in zip(sorted(sizes), vectors, strict=True)}
    values = [tf.reshape(next(parts[variable.dtype]), variable.shape) for variable in variables]
    keras = sys.modules["keras"]
    with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
        results: dict[str, Any] = model.get_metrics_result()
    return results


# ---- one all-reduce for each step -----------------------------------------------------------------------------------


class ReplicaStep:
    """A model's step, as each replica takes it. In a train step of Keras' own, metrics travel with the gradients.

    An all-reduce takes longer than all that a small model computes. Keras counts metrics after it has applied the
    gradients, from predictions that it had made before: it may as well apply them last.

    Attributes
    ----------
    model : keras.Model
        The model whose step this is.
    is_reduced : bool
        Whether its last results were those over the rows of all replicas.
    """

    def __init__(self, model: keras.Model, step: Callable[[Any], Any]) -> None:
        self.model = model
        self.is_reduced = False
        self._step = step

    def __call__(self, data: Any) -> Any:
        """Take the step; returns its results."""
        self.is_reduced = False
        strategy = self.model.distribute_strategy
        if not is_across_workers(strategy):
            return self._step(data)
        # Counted for the strategy: it takes parts of a step on threads of their own.
        setattr(strategy, _STEPS, getattr(strategy, _STEPS, 0) + 1)
        try:
            return self._take(data)
        finally:
            setattr(strategy, _STEPS, getattr(strategy, _STEPS) - 1)

    def _take(self, data: Any) -> Any:
        if not self._may_apply_last():
            return self._step(data)
        running.held = held = _HeldGradients(self.model.optimizer)
        try:
            outputs, variables = self._step(data), _summed_variables(self.model)
            sums = held.apply(_vectors(variables))
        finally:
            running.held = None
        self.is_reduced = bool(sums)
        return _results_from(sums, self.model, variables) if sums else outputs

    def _may_apply_last(self) -> bool:
        """Whether what the step does after it has applied gradients is Keras' own, and looks at predictions only."""
        trainer: Any = sys.modules["keras.src.backend.tensorflow.trainer"].TensorFlowTrainer
        optimizer: Any = sys.modules["keras.src.optimizers.base_optimizer"].BaseOptimizer
        model, counted = self.model, self.model._compile_metrics
        return (
            getattr(self._step, "__func__", None) is trainer.train_step
            and has_own(model, trainer, "compute_metrics", "get_metrics_result")
            and (counted is None or (counted.built and all(map(_is_of_keras, counted.metrics))))
            # Others may apply them several times, or not at all, as with a scale of the loss.
            and has_own(model.optimizer, optimizer, "apply_gradients", "apply")
        )


def has_own(thing: Any, kind: type, *methods: str) -> bool:
    """Whether these methods are those of a class, and neither a subclass nor the user has replaced them."""
    return all(getattr(getattr(thing, name, None), "__func__", None) is getattr(kind, name) for name in methods)


def _is_of_keras(metric: keras.Metric) -> bool:
    """Whether a metric, and the function that it wraps, are Keras' own: those of a user may look at the weights."""
    made_of = (type(metric), getattr(metric, "_fn", None) or type(metric))
    return all(str(getattr(one, "__module__", "")).startswith("keras.") for one in made_of)


class _HeldGradients:
    """The gradients of a step, which are applied after all else, with what is sent together with them."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._apply: Callable[[], Any] | None = None
        self._sent: list[tf.Tensor] = []
        self._sums: list[tf.Tensor] = []

    def hold(self, optimizer: Any, apply: Callable[[], Any]) -> bool:
        """Take what applies them for later, unless it is another optimizer's, or there are some already."""
        if self._apply is not None or optimizer is not self._optimizer:
            return False
        self._apply = apply
        return True

    def apply(self, sent: list[tf.Tensor]) -> list[tf.Tensor]:
        """Apply them; returns the sums over all replicas of what is sent with them, or nothing without gradients."""
        self._sent = sent
        if self._apply is not None:
            self._apply()
        return self._sums

    def sums_of(self, gradients: list[tf.Tensor], context: tf.distribute.ReplicaContext) -> list[tf.Tensor]:
        """Add up gradients over all replicas, and what is sent with them."""
        sums = sums_over_replicas([*gradients, *self._sent], context)
        self._sums = sums[len(gradients) :]
        return sums[: len(gradients)]


def sums_over_replicas(values: list[tf.Tensor], context: tf.distribute.ReplicaContext) -> list[tf.Tensor]:
    """Add up values over all replicas, in one all-reduce for each of their dtypes: TensorFlow joins what it sends."""
    places: dict[tf.DType, list[int]] = {}
    for place, value in enumerate(values):
        places.setdefault(value.dtype, []).append(place)
    sums: dict[int, tf.Tensor] = {}
    for alike in places.values():
        sums.update(zip(alike, context.all_reduce("SUM", [values[place] for place in alike]), strict=True))
    return [sums[place] for place in range(len(values))]


def gradients_over_replicas(gradients: list[tf.Tensor], context: tf.distribute.ReplicaContext) -> list[tf.Tensor]:
    """Join a step's gradients over all replicas: their mean in a step of a model, whose losses are those of a node."""
    if (replicas := replicas_within()) > 1:
        gradients = [_divided(one, replicas) for one in gradients]
    if running.held is None:
        return sums_over_replicas(gradients, context)
    return running.held.sums_of(gradients, context)


def _divided(gradient: Any, replicas: int) -> Any:
    import tensorflow as tf

    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values / replicas, gradient.indices, gradient.dense_shape)
    return gradient / replicas


def replicas_within() -> int:
    """Return the number of replicas that a model's step is taken on together; 1 outside of one."""
    import tensorflow as tf

    strategy = tf.distribute.get_strategy()
    return strategy.num_replicas_in_sync if getattr(strategy, _STEPS, 0) else 1


def over_nodes(average: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap what divides losses for all replicas, as `tf.nn.compute_average_loss`: in a model's step, gradients are."""

    @functools.wraps(average)
    def average_loss(*args: Any, **kwargs: Any) -> Any:
        return average(*args, **kwargs) * replicas_within()

    return average_loss


def unless_within(scale: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap how Keras scales a loss by the number of replicas, and back, so that it does not within a model's step.

    Keras divides the losses that it has computed, not those that a step or a `compute_loss` of the user's computes, and
    a step that counts the divided ones reports a part of the loss. Here, no loss is divided, but the gradients are.
    """

    @functools.wraps(scale)
    def scale_loss(value: Any) -> Any:
        return value if replicas_within() > 1 else scale(value)

    return scale_loss


def unless_held(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the optimizers' `apply_gradients`, so that a step can apply them last."""

    @functools.wraps(apply)
    def apply_gradients(optimizer: Any, grads_and_vars: Any) -> Any:
        apply_now = functools.partial(apply, optimizer, list(grads_and_vars))
        is_held = running.held is not None and running.held.hold(optimizer, apply_now)
        return optimizer.iterations if is_held else apply_now()

    return apply_gradients


class _Running(threading.local):
    """The step that this thread has begun last, and the gradients that a replica holds while this thread traces it."""

    step: ReplicaStep | None = None
    held: _HeldGradients | None = None


running = _Running()
