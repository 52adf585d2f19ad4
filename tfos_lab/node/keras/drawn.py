"""Steps of Keras 3 over batches that are drawn before the step begins, one by one.

Keras learns of the end of an epoch whose length is not known by a step that fails for want of a batch; but what needs
no batch has run by then: the metrics are divided by too many rows, and the optimizer has counted a step too many.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any


class Drawn:
    """Draws each batch before its step begins, so that no step begins without one."""

    def __init__(self, dataset: Any) -> None:
        self._batches = iter(dataset)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        import tensorflow as tf

        try:
            return next(self._batches)
        except StopIteration:
            # Keras knows this as the end; of a StopIteration its step function would make a missing result.
            raise tf.errors.OutOfRangeError(None, None, "the epoch has ended") from None


class StepOnDrawn:
    """Runs a step on a batch that was drawn; traced once for batches of any number of rows.

    Parameters
    ----------
    model : keras.Model
        Whose step it is.
    step : callable
        ``train_step`` or ``test_step``.
    """

    def __init__(self, model: Any, step: Callable[[Any], Any]) -> None:
        self._model = model
        self._step = step
        self._function: Any = None

    def __call__(self, data: Any) -> Any:
        """Run the step; returns what it returns, over all replicas."""
        if self._function is None:
            self._function = self._traced_for(data)
        return self._function(data)

    def _traced_for(self, data: Any) -> Any:
        import tensorflow as tf

        def step_on_data(data: Any) -> Any:
            strategy = self._model.distribute_strategy
            outputs = strategy.run(self._step, args=(data,))
            trainer = sys.modules["keras.src.backend.tensorflow.trainer"]
            return trainer.reduce_per_replica(outputs, strategy, reduction="auto")

        jit_compile = self._model.jit_compile
        if all(map(tf.is_tensor, tf.nest.flatten(data))) and not jit_compile:
            signature = [tf.nest.map_structure(_spec_of_rows, data)]
            return tf.function(step_on_data, input_signature=signature, autograph=False)
        return tf.function(step_on_data, reduce_retracing=True, jit_compile=jit_compile, autograph=False)


def _spec_of_rows(rows: Any) -> Any:
    import tensorflow as tf

    return tf.TensorSpec([None, *rows.shape[1:]] if rows.shape.rank else rows.shape, rows.dtype)
