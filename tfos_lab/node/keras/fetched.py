"""Steps of Keras 3 over batches that are fetched one by one before each step begins.

Keras notices the end of an epoch of unknown length when a step fails for want of a batch. By then the parts of the step
that need no batch have run: the metrics are divided by too many rows, and the optimizer has counted a step too many.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import keras
    import tensorflow as tf


class FetchedBatches:
    """An iterator over a dataset's batches, so that no step begins without one."""

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
