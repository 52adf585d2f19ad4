"""Tells a thread that waits for ever from one that is slow: neither takes processor time. For Linux.

What counts is where the system has the thread wait. A disk or a shared folder may be slow, and what the system does not
tell says nothing. A wait for a lock ends as long as any other thread of the process works; where none does, nobody is
there to end it. One for another process is idle, too: who may wait for long for processes has to say so.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from pathlib import Path

_TASKS = Path("/proc/self/task")
# Functions of the system that wait for a lock; and for other processes, connections or a clock, but not for files.
_LOCK = re.compile(r"\w*futex")
_OTHERS = re.compile(r"do_wait$|\w*(poll|pipe|nanosleep|unix_stream|skb_wait|sk_wait|sigtimedwait|pause)")
# One that wakes now and then, and waits on, takes less in half a second.
_NOTHING_S = 0.002


class IdleWait:
    """Watches the thread that makes it, for another thread that asks every now and then."""

    def __init__(self) -> None:
        self._id = threading.get_native_id()
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self._looked_at = time.monotonic()
        self._since: float | None = None
        self._others_s = self._used_s = 0.0

    @property
    def clock_s(self) -> float:
        """The processor time that the thread has taken."""
        return time.clock_gettime(self._clock)

    def look(self) -> float:
        """Return for how many seconds the thread has waited idly, as far as this and the last looks have seen."""
        now, looked_at, used_s, others_s = time.monotonic(), self._looked_at, self.clock_s, self._used_by_others_s()
        rests = used_s - self._used_s < _NOTHING_S
        others_rest = others_s - self._others_s < _NOTHING_S
        self._looked_at, self._used_s, self._others_s = now, used_s, others_s
        where = self._waits_in() if rests else ""
        if not (_OTHERS.match(where) or (_LOCK.match(where) and others_rest and self._others_sleep())):
            self._since = None
            return 0.0
        self._since = self._since if self._since is not None else looked_at
        return now - self._since

    def _used_by_others_s(self) -> float:
        """Return the processor time of all threads but that one and the one that asks."""
        return time.process_time() - self.clock_s - time.thread_time()

    def _waits_in(self) -> str:
        """Return the function of the system in which the thread sleeps; "" if it does not, or nobody knows."""
        with contextlib.suppress(OSError):
            if _sleeps(_TASKS / str(self._id)):
                return (_TASKS / str(self._id) / "wchan").read_text()
        return ""

    def _others_sleep(self) -> bool:
        known = (str(self._id), str(threading.get_native_id()))
        return all(_sleeps(task) for task in _TASKS.iterdir() if task.name not in known)


def _sleeps(task: Path) -> bool:
    """Whether a thread waits, and not for a disk."""
    with contextlib.suppress(OSError, IndexError):
        return (task / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"S"
    return True  # it has ended
