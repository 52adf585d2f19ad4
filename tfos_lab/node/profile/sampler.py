"""Samples the Python stacks of this process: what each thread was in, and how often."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

from tfos_lab.node.stacks.frames import Place, own_part

PERIOD_S = 0.01
# More stacks than this are no picture any more: the most frequent ones are kept.
_MAX_STACKS = 5_000
_MAX_FRAMES = 100
# Where a thread waits for something to do.
_IDLE = frozenset({"wait", "wait_for", "select", "poll", "accept", "_wait_for_tstate_lock", "_recv_msg"})

_Stack = tuple[str, ...]


class Sampler:
    """Counts stacks; the thread that samples, and those of tfos_lab, are left out."""

    def __init__(self) -> None:
        self._counts: Counter[_Stack] = Counter()

    def run(self, seconds: float) -> None:
        """Sample for so many seconds."""
        end_s = time.monotonic() + seconds
        while (now_s := time.monotonic()) < end_s:
            self.sample()
            time.sleep(max(0.0, PERIOD_S - (time.monotonic() - now_s)))

    def sample(self) -> None:
        """Look once at all threads; those that wait for work count only if it is the main one."""
        main = threading.main_thread().ident
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        here = threading.get_ident()
        for ident, frame in sys._current_frames().items():  # noqa: SLF001 - the only way to them, and documented
            name = names.get(ident, "thread")
            if ident == main:
                self._counts["\tmain thread", *_frames(frame)] += 1
            elif ident != here and not name.startswith("tfos-") and frame.f_code.co_name not in _IDLE:
                self._counts[f"\t{name}", *_frames(frame)] += 1

    @property
    def samples(self) -> list[tuple[list[str], int]]:
        """Stacks and how often each was found, the most frequent first."""
        return [(list(stack), count) for stack, count in self._counts.most_common(_MAX_STACKS)]


def _frames(frame: FrameType | None) -> list[str]:
    found = []
    while frame is not None:
        code = frame.f_code
        # Lines of one function are one frame: the picture is of functions.
        found.append(Place(code.co_filename, code.co_firstlineno, code.co_name))
        frame = frame.f_back
    return [_frame(place) for place in own_part(found[::-1])[:_MAX_FRAMES]]


def _frame(place: Place) -> str:
    return f"{place.package}\t{place.function} ({Path(place.file).name}:{place.line})"
