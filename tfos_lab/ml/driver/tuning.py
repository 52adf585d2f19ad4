"""Notices that Spark's tuning, on whose threads a fit runs, is over before that fit is.

`CrossValidator` and `TrainValidationSplit` fit on threads of a pool. When the user interrupts them, or one fit fails,
they return at once, and the others would train on, unseen. So each fit looks whether the call that it belongs to is
still on the stack of the thread that made it. Where Spark's code is not as expected, the fit is not watched.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import FrameType

from tfos_lab.jupyter.display.base import Display

_MODULE = "pyspark.ml.tuning"
# The method in which tuning waits for its fits, and the local name by which it and its tasks know the maps of params.
_METHOD, _MAPS = "_fit", "epm"


class Tuning(Display):
    """A call of Spark's tuning, watched by one of its fits; as a display, it shows nothing.

    Parameters
    ----------
    thread_id : int
        The thread that made the call.
    frame : frame
        That of the call.
    """

    def __init__(self, thread_id: int, frame: FrameType) -> None:
        self._thread_id = thread_id
        self._frame = frame

    @property
    def is_over(self) -> bool:
        """Whether the call has returned or raised."""
        return all(frame is not self._frame for frame in _stack_of(self._thread_id))

    def poll(self) -> None:
        """Interrupt the fit, as its user would, if nobody waits for it any more."""
        if self.is_over:
            raise KeyboardInterrupt

    def close(self) -> None:
        """Do nothing: nothing is shown."""


class Silent(Display):
    """Shows nothing."""

    def close(self) -> None:
        """Do nothing."""


def tuning_of_this_thread() -> Tuning | None:
    """Return the call of Spark's tuning for which this thread fits, or None if there is none."""
    here = threading.get_ident()
    task = next((frame for frame in _stack_of(here) if _is_tuning(frame)), None)
    if task is None or task.f_code.co_name == _METHOD:
        return None
    maps = task.f_locals[_MAPS]
    for thread_id in list(sys._current_frames()):  # noqa: SLF001 - the only way to the stacks of other threads
        for frame in _stack_of(thread_id) if thread_id != here else ():
            if _is_tuning(frame) and frame.f_code.co_name == _METHOD and frame.f_locals[_MAPS] is maps:
                return Tuning(thread_id, frame)
    return None


def _is_tuning(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") == _MODULE and _MAPS in frame.f_locals


def _stack_of(thread_id: int) -> Iterator[FrameType]:
    """Yield the frames of a thread, the innermost first."""
    frame = sys._current_frames().get(thread_id)  # noqa: SLF001
    while frame is not None:
        yield frame
        frame = frame.f_back
