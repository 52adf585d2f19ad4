"""Heartbeats of an agent whose loop is busy: on a slow disk, or while it waits for a fork server on a loaded machine.

The loop sends them itself, and each goes round in milliseconds. When it has sent nothing for two seconds, a thread
sends them in its place, on a connection of its own that is made only then. It does so for a loop that waits for a disk
or a fork server, at most for a minute, and not for one that spins, or waits for what does not come (see `idle_wait`):
by its heartbeats an agent shows that it works. What counts is the processor time of the loop's thread, which a loaded
machine does not change. An agent that is stopped stops its threads too, so that it falls silent all the same.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from tfos_lab import messages as m
from tfos_lab.node.idle_wait import IdleWait
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
