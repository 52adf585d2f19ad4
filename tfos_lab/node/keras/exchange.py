"""What the steps of several workers in Keras 3 send to one another: gradients, and the counts of the metrics.

`keras_3` has each step taken as `OneExchange`; `workers` asks for `metrics_over_replicas` after it.
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


# ---- one exchange for each step -------------------------------------------------------------------------------------


class OneExchange:
    """A step of Keras' own, in which the counts of the metrics travel with the gradients; any other as it is.

    An exchange takes longer than all that a small model computes. Keras counts metrics after it has applied the
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
        """Run the step, in a replica; returns its results."""
        self.is_reduced = False
        if not self._may_apply_last():
            return self._step(data)
        running.held = held = HeldGradients()
        try:
            outputs, variables = self._step(data), _summed_variables(self.model)
            sums = held.apply(_vectors(variables))
        finally:
            running.held = None
        self.is_reduced = bool(sums)
        return _results_from(sums, self.model, variables) if sums else outputs

    def _may_apply_last(self) -> bool:
        """Whether what the step does after it has applied gradients is Keras' own, and looks at predictions only."""
        model, trainer = self.model, sys.modules["keras.src.backend.tensorflow.trainer"].TensorFlowTrainer
        optimizer = sys.modules["keras.src.optimizers.base_optimizer"].BaseOptimizer
        counted = model._compile_metrics
        return (
            is_across_workers(model.distribute_strategy)
            and getattr(self._step, "__func__", None) is trainer.train_step
            and type(model).compute_metrics is trainer.compute_metrics
            # A metric of the user's own may look at the weights.
            and (counted is None or (counted.built and all(map(_is_of_keras, counted.metrics))))
            and getattr(type(model.optimizer), "apply_gradients", None) is optimizer.apply_gradients
            # It asks the others whether all gradients are finite before it applies any.
            and not hasattr(model.optimizer, "inner_optimizer")
        )


def _is_of_keras(metric: keras.Metric) -> bool:
    return (getattr(metric, "_fn", None) or type(metric)).__module__.startswith("keras.")


class HeldGradients:
    """The gradients that a step has computed, until they are applied with its only exchange.

    ``sent`` are vectors that are sent with them, and ``sums`` what they are over all replicas.
    """

    def __init__(self) -> None:
        self.pending: Callable[[], Any] | None = None
        self.sent: list[tf.Tensor] = []
        self.sums: list[tf.Tensor] = []

    def apply(self, sent: list[tf.Tensor]) -> list[tf.Tensor]:
        """Apply them; returns the sums of what is sent with them, or nothing if there are no gradients."""
        self.sent = sent
        if self.pending is not None:
            self.pending()
        return self.sums


def or_held(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the optimizers' `apply_gradients`: it leaves to a step that holds its gradients when to apply them."""

    @functools.wraps(apply)
    def apply_gradients(optimizer: Any, grads_and_vars: Any) -> Any:
        if running.held is None:
            return apply(optimizer, grads_and_vars)
        running.held.pending = functools.partial(apply, optimizer, list(grads_and_vars))
        return optimizer.iterations

    return apply_gradients


class _Running(threading.local):
    """The step that this thread runs, and the gradients that it holds while it traces it."""

    step: OneExchange | None = None
    held: HeldGradients | None = None


running = _Running()
