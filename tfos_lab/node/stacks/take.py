"""Takes the stacks of all threads of this process, without stopping them; called by the child's ``tfos-session``."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import FrameType

from tfos_lab import messages as m
from tfos_lab.node.stacks.frames import Place, call_of, condition_of, place_of
from tfos_lab.node.stacks.text import MAIN, render

_MAX_THREADS = 100


def take_stacks(rank: int, request: int) -> m.Stacks:
    """Return the answer to a `StacksWanted`; the calling thread is left out."""
    stacks = [(name, places(frame)) for name, frame in _frames()]
    main = dict(stacks).get(MAIN, [])
    condition, shown = condition_of(main, [stack for name, stack in stacks if name != MAIN])
    return m.Stacks(rank, request, condition, render(stacks), place=place_of(shown), call=call_of(shown))


def _frames() -> Iterator[tuple[str, FrameType]]:
    """Yield the threads' names and innermost frames: the main thread first, our own last."""
    threads = {thread.ident: thread for thread in threading.enumerate()}
    here, main = threading.get_ident(), threading.main_thread().ident
    frames = sys._current_frames()  # noqa: SLF001 - the only way to them, and documented
    # Threads that are not Python's own, such as those of `tf.data`, may have no entry.
    names = {ident: threads[ident].name if ident in threads else "thread" for ident in frames}
    order = sorted(frames, key=lambda ident: (ident != main, names[ident].startswith("tfos-")))
    for ident in order[:_MAX_THREADS]:
        if ident != here:
            yield MAIN if ident == main else f"{names[ident]} ({ident})", frames[ident]


def places(frame: FrameType | None) -> list[Place]:
    """Return the stack that ends with a frame, outermost first."""
    found = []
    while frame is not None:
        found.append(Place(frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name))
        frame = frame.f_back
    return found[::-1]
