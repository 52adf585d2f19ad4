"""Heartbeats of an agent whose loop is busy: on a slow disk, or while it waits for a fork server on a loaded machine.

The loop sends them itself, and each goes round in milliseconds. When it has sent nothing for two seconds, a thread
sends them in its place, on a connection of its own that is made only then. It does so for a loop that waits for a disk
or a fork server, at most for a minute, and not for one that spins, or waits for what does not come (see `idle_wait`):
by its heartbeats an agent shows that it works. What counts is the processor time of the loop's thread, which a loaded
machine does not change. An agent that is stopped stops its threads too, so that it falls silent all the same.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tfos_lab import messages as m
from tfos_lab.node.last_heartbeat import LastHeartbeat
from tfos_lab.transport.link import Link

#: What follows the agent's own identity on this connection.
SUFFIX = b"/busy"
_LOOK_S = 0.5
_BUSY_AFTER_S = 2.0
_HUNG_AFTER_S = 60.0
# A loop that has taken so much processor time since it last sent something spins: a turn takes milliseconds of it.
_SPINS_AFTER_S = 0.9
_INTERVAL_S = 1.0
# A loop that has waited idly for so long hangs, unless it has said that it may: a turn waits for a fraction of it.
_IDLE_AFTER_S = 0.4


class StandIn:
    """One thread (``tfos-stand-in``), which sends heartbeats while the agent's loop does not.

    To be made by the thread of the loop.

    Parameters
    ----------
    rank : int
        The node's rank.
    driver : DriverAddress
        Where the driver listens.
    identity : bytes
        The agent's own identity.
    last_heartbeat : LastHeartbeat
        Told of each one.

    Attributes
    ----------
    reservation : Reserve or None
        Sent with each heartbeat until the driver has answered it.
    """

    def __init__(self, rank: int, driver: m.DriverAddress, identity: bytes, last_heartbeat: LastHeartbeat) -> None:
        self._rank = rank
        self._driver = driver
        self._identity = identity + SUFFIX
        self._last_heartbeat = last_heartbeat
        self._spoke_at: float | None = None
        self._loop = IdleWait()
        self._loop_used_s = 0.0
        self._in_long_work = self._may_wait = False
        self._spooled_bytes = 0
        self.reservation: m.Reserve | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tfos-stand-in", daemon=True)
        self._thread.start()

    def loop_spoke(self, spooled_bytes: int | None = None) -> None:
        """The agent's loop has sent a message."""
        self._spoke_at = time.monotonic()
        self._loop_used_s = self._loop.clock_s
        if spooled_bytes is not None:
            self._spooled_bytes = spooled_bytes

    @contextlib.contextmanager
    def long_work(self) -> Iterator[None]:
        """Let the loop take processor time for a while, such as to look through thousands of files."""
        self._in_long_work = True
        try:
            with self.long_wait():
                yield
        finally:
            self._loop_used_s = self._loop.clock_s
            self._in_long_work = False

    @contextlib.contextmanager
    def long_wait(self) -> Iterator[None]:
        """Let the loop wait for a while for other processes or hosts, such as for a fork server."""
        before, self._may_wait = self._may_wait, True
        try:
            yield
        finally:
            self._may_wait = before

    @property
    def signs(self) -> list[m.Reserve | m.Heartbeat]:
        """What tells the driver that the node is alive."""
        heartbeat = m.Heartbeat(rank=self._rank, spooled_bytes=self._spooled_bytes)
        reservation = self.reservation  # the other thread may take it away
        return [reservation, heartbeat] if reservation is not None else [heartbeat]

    def _is_busy(self) -> bool:
        silent_s = time.monotonic() - self._spoke_at if self._spoke_at is not None else 0.0
        waits = self._loop.look() > _IDLE_AFTER_S and not self._may_wait
        return _BUSY_AFTER_S < silent_s < _HUNG_AFTER_S and not waits and not self._loop_spins()

    def _loop_spins(self) -> bool:
        used_s = self._loop.clock_s - self._loop_used_s
        return used_s > _SPINS_AFTER_S and not self._in_long_work

    def _watch(self) -> None:
        while not self._closing.wait(_LOOK_S):
            if self._is_busy():
                self._stand_in()

    def _stand_in(self) -> None:
        link = Link(self._driver, self._identity)
        try:
            while self._is_busy():
                for sign in self.signs:
                    link.send(m.encode(sign))
                self._last_heartbeat.was_sent()
                if self._closing.wait(_INTERVAL_S):
                    return
        finally:
            link.close()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._thread.join()


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
