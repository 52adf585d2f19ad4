"""The frames of other threads of this process, to be looked at while nothing collects garbage.

Python 3.11 may collect garbage while it makes the object of a frame. What that runs lets the thread go on whose frames
are looked at, and these are gone then: a segmentation fault, which a loop meets within seconds, and a node that is
sampled now and then. From 3.12 on, garbage is collected between two instructions only.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Iterator
from types import FrameType

_looking = threading.Lock()


@contextlib.contextmanager
def frames_of_threads() -> Iterator[dict[int, FrameType]]:
    """Give the innermost frame of each other thread, by its identifier; they are looked at within the block only."""
    with _looking:
        collects = gc.isenabled()
        gc.disable()
        try:
            frames = sys._current_frames()  # noqa: SLF001 - the only way to them, and documented
            del frames[threading.get_ident()]
            yield frames
        finally:
            if collects:
                gc.enable()


def outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame, and those that it was called from, the outermost last."""
    while frame is not None:
        yield frame
        frame = frame.f_back
