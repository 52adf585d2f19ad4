"""Whether a step that runs in TensorFlow still waits for its batch.

Keras and ``tf.function`` ask for the next batch within the graph, where Python sees nothing. Two counters stand in the
graph, one before and one after the batch: while they differ, the step waits. They are TensorFlow variables, as a call
of Python in each step would cost more than a small step.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any

from tfos_lab.core.threads import on_a_thread

_PATCHED = "_tfos_lab_patched"
_CREATION_TIMEOUT_S = 10.0
# Each of a strategy's iterators asks one of these for each of its devices.
_ITERATOR = ("tensorflow.python.data.ops.iterator_ops", "OwnedIterator")
_METHODS = ("_next_internal", "get_next_as_optional")


class Fetches:
    """The counters of this process: the batches ``taken``, and whether one was ``in_flight``, at the last `look`."""

    def __init__(self) -> None:
        self.start(enabled=False)

    def start(self, *, enabled: bool) -> None:
        """Say whether functions that are traced from now on are to count; counters of other ones stay unread."""
        self._enabled = enabled
        self._counters: tuple[Any, Any] | None = None
        self._left = self.taken = 0
        self._counts = self._counts_before = (0, 0)
        self.in_flight = False

    def counters(self) -> tuple[Any, Any] | None:
        """Return the counters, for a function that is traced now; None where nothing is to be counted."""
        if self._enabled and self._counters is None:
            self._counters = _make_counters()
            self._enabled = self._counters is not None
        return self._counters if self._enabled else None

    def look(self) -> None:
        """Read the counters."""
        if self._counters is None:
            return
        try:
            begun, ended = (int(counter.numpy()) for counter in self._counters)
        except Exception:  # noqa: BLE001 - TensorFlow's state may be gone at any time
            self.start(enabled=False)
            return
        self._counts, self._counts_before = (begun, ended), self._counts
        self.taken, self.in_flight = ended, begun - ended > self._left

    def settle(self) -> None:
        """Note that no step runs now: what has begun and not ended has failed, as at the end of a dataset.

        Of short steps, one may have run when the counters were read; therefore they must not have changed since then.
        """
        self.in_flight = False
        if self._counts == self._counts_before:
            self._left = self._counts[0] - self._counts[1]


FETCHES = Fetches()


def patch_fetches() -> None:
    """Have iterators count within graphs; may be called twice. TensorFlow has loaded them."""
    module, name = _ITERATOR
    for method in _METHODS:
        patch_once(getattr(sys.modules.get(module), name, None), method, _counted)


def patch_once(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    """Replace a function of TensorFlow's or Keras' by ``wrap(function)``, unless it is missing or replaced already."""
    function = getattr(owner, name, None)
    if function is not None and not hasattr(function, _PATCHED):
        wrapped = wrap(function)
        setattr(wrapped, _PATCHED, True)
        setattr(owner, name, wrapped)


def _counted(take: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(take)
    def fetch(iterator: Any, *args: Any, **kwargs: Any) -> Any:
        counters = FETCHES.counters() if _is_tracing() else None
        if counters is None:
            return take(iterator, *args, **kwargs)
        import tensorflow as tf

        begun, ended = counters
        with tf.control_dependencies([begun.assign_add(1, read_value=False)]):
            element = take(iterator, *args, **kwargs)
        tensors = [part for part in tf.nest.flatten(element, expand_composites=True) if tf.is_tensor(part)]
        with tf.control_dependencies(tensors):
            ended.assign_add(1, read_value=False)
        return element

    return fetch


def _is_tracing() -> bool:
    """Whether a ``tf.function`` is being traced; graphs of TensorFlow 1 are left alone."""
    import tensorflow as tf

    return tf.compat.v1.executing_eagerly_outside_functions() and not tf.executing_eagerly()


def _make_counters() -> tuple[Any, Any] | None:
    """Make them in a thread of their own: there is no strategy, which would make a variable for each replica."""

    def make() -> tuple[Any, Any]:
        import tensorflow as tf

        with tf.device("CPU:0"):
            begun, ended = (tf.Variable(0, dtype=tf.int64, trainable=False, name=name) for name in ("begun", "ended"))
            return begun, ended

    with contextlib.suppress(Exception):  # it takes too long, or TensorFlow refuses: nothing is counted then
        return on_a_thread(make, name="tfos-fetches").result(_CREATION_TIMEOUT_S)
    return None
