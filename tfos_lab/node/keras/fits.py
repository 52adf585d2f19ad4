"""Notes of each `fit` of Keras which of its steps train, whether its model trains alone, and whether it was stopped."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from tfos_lab.node.activity.steps import FITS, STEPS
from tfos_lab.node.keras.distribute import is_across_workers

_PATCHED = "_tfos_lab_noted"
_MODULES = ("keras.src.callbacks.callback_list", "tf_keras.src.callbacks")


def patch_fits() -> None:
    """Patch the callbacks of every `fit`; may be called twice."""
    for module in _MODULES:
        callbacks = getattr(sys.modules.get(module), "CallbackList", None)
        if callbacks is not None and not hasattr(callbacks.on_train_begin, _PATCHED):
            _patch(callbacks, "on_train_begin", _note_begin)
            _patch(callbacks, "on_train_end", _note_end)
            _patch(callbacks, "on_epoch_begin", lambda _callbacks: STEPS.begin_epoch())
            for what in ("test", "predict"):
                _patch(callbacks, f"on_{what}_begin", lambda _callbacks: STEPS.evaluate(begins=True))
                _patch(callbacks, f"on_{what}_end", lambda _callbacks: STEPS.evaluate(begins=False))


def _patch(kind: Any, name: str, note: Callable[[Any], None]) -> None:
    call = getattr(kind, name)

    @functools.wraps(call)
    def noted(callbacks: Any, *args: Any, **kwargs: Any) -> None:
        call(callbacks, *args, **kwargs)
        note(callbacks)

    setattr(noted, _PATCHED, True)
    setattr(kind, name, noted)


def _note_begin(callbacks: Any) -> None:
    import tensorflow as tf

    strategy = getattr(callbacks.model, "distribute_strategy", None)
    is_served = isinstance(strategy, tf.distribute.ParameterServerStrategy)
    FITS.is_alone = not (is_served or is_across_workers(strategy))
    FITS.stopped_after = 0


def _note_end(callbacks: Any) -> None:
    done = next((one.epoch[-1] + 1 for one in callbacks.callbacks if getattr(one, "epoch", None)), 0)
    is_early = callbacks.model.stop_training and done < callbacks.params.get("epochs", 0)
    FITS.stopped_after = done if is_early else 0
    STEPS.end_fit()
