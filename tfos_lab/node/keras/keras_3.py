"""Patches Keras 3, so that N nodes show the numbers that one process would; see `row_counts`.

Who talks to it: `keras_workers`, which says of each `fit` and `evaluate` how the rows are to be taken.
"""
# ruff: noqa: SLF001 - what has to be patched is private

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any

from tfos_lab.node.keras.drawn import Drawn, StepOnDrawn
from tfos_lab.node.keras.presharded import forget_count_of_rows
from tfos_lab.node.keras.row_counts import (
    PATCHED,
    RowMode,
    counted,
    current,
    forgetting_rows,
    rows_of,
    seeing_real_rows,
)


def patch_keras_3(trainer: Any) -> None:
    """Patch Keras 3, given its module of the TensorFlow trainer; may be called twice."""
    model = trainer.TensorFlowTrainer
    if not hasattr(model, "_make_function") or hasattr(model._make_function, PATCHED):
        return
    model._make_function = _steps_with_rows(model._make_function)
    metrics = sys.modules["keras.src.trainers.compile_utils"].CompileMetrics
    metrics.update_state = seeing_real_rows(metrics.update_state, lambda _weights: current.rows)


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
            with forgetting_rows():
                if mode is not None:
                    # Keras weighs some means by the static number of rows: it is to see none, as it does alone.
                    data = forget_count_of_rows(data)
                    rows_of(_weights_in(data), mode)
                return step_function(data)

        tracker = model._loss_tracker
        if mode is not None and tracker is not None and not hasattr(tracker.update_state, PATCHED):
            update = counted(tracker.update_state, lambda: current.rows, lambda: model.losses)
            setattr(update, PATCHED, True)
            tracker.update_state = update
        function = make_function(model, step)
        on_drawn = None if model.run_eagerly else StepOnDrawn(model, step)

        @functools.wraps(function)
        def run(iterator: Any) -> Any:
            current.model = model
            if on_drawn is not None and isinstance(iterator, Drawn):
                return on_drawn(next(iterator))
            return function(iterator)

        run.tfos_lab_mode = mode  # type: ignore[attr-defined]
        return run

    setattr(_make_function, PATCHED, True)
    return _make_function


def _weights_in(data: Any) -> Any:
    return data[2] if isinstance(data, tuple) and len(data) == 3 else None


def results_on_all(strategy: Any, outputs: Any) -> Any:
    """Return the metrics of a step over the rows of all replicas, or None if the outputs are something else.

    What replicas have counted is added up, and the results are made of the sums: a mean of their results would be
    wrong wherever they have counted different numbers of rows.
    """
    import tensorflow as tf

    model = current.model
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
