"""Tells fork servers that work from those that are stopped or hang, which would let their clients wait forever.

Each fork server holds a file locked, and writes into it who it is and when it last went through its loop. A client
reads that while it waits for an answer: a fork server that is only busy, or still imports, is given its time.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Self

from tfos_lab.core.processes import open_pidfd, state_of

# A loop that has not gone round for this long hangs: it wakes every second, and a fork takes a small part of one. A
# process that could run, or waits for memory, may only be late on a busy machine.
_SILENT_S = 3.0
_LATE_S = 20.0
# For this long, a fork server that seems to be stopped or to hang may go on.
_PATIENCE_S = 1.0
_POLL_S = 0.05
_END_S = 2.0
# Ends of sentences about a fork server.
STOPPED = "was stopped"
SILENT = "did not answer"
_FORMAT = struct.Struct("=qqddd")
# Follows for each process that uses the fork server: its pid, and when the system started it.
_USER = struct.Struct("=qq")
# A fork server that nobody uses would have ended by itself after so long.
_UNUSED_S = 600.0


class ServerRecord(NamedTuple):
    """Which process is the fork server, and when it last showed that it works.

    Attributes
    ----------
    pid, started : int
        The process, and when the system started it (in clock ticks): a pid is used again, both together are not.
    began_s, beat_s : float
        When it began, and when it last went through its loop (``time.monotonic``).
    warm_s : float
        How many seconds its imports took; 0 while it imports.
    users : tuple of (int, int)
        The kernels or JVMs that use it, each like ``pid, started``.
    """

    pid: int
    started: int
    began_s: float
    warm_s: float
    beat_s: float
    users: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def read(cls, socket_path: Path) -> Self | None:
        """Return the record of the fork server behind a socket; None if there is none, or its process is gone."""
        with contextlib.suppress(OSError, struct.error):
            data = lock_path(socket_path).read_bytes()
            record = cls(*_FORMAT.unpack(data[: _FORMAT.size]))
            record = record._replace(users=tuple(_USER.iter_unpack(data[_FORMAT.size :])))
            return record if record.is_alive else None
        return None

    @property
    def is_alive(self) -> bool:
        """Whether the process is there, and is the same."""
        return _lives(self.pid, self.started)

    @property
    def is_abandoned(self) -> bool:
        """Whether it is stopped and nobody uses it any more: it cannot end, and nobody may come to replace it."""
        if self.symptom != STOPPED or any(_lives(*user) for user in self.users):
            return False
        return bool(self.users) or time.monotonic() - self.beat_s > _UNUSED_S

    @property
    def symptom(self) -> str:
        """What is wrong with it now, as the end of a sentence; "" if nothing is."""
        state = state_of(self.pid)
        if state in ("T", "t"):
            return STOPPED
        limit_s = _SILENT_S if state == "S" else _LATE_S
        return SILENT if self.warm_s and time.monotonic() - self.beat_s > limit_s else ""

    def kill(self) -> None:
        """Kill the process, if it is still the same, and wait for its end."""
        pidfd = open_pidfd(self.pid)
        if pidfd is None:
            return
        try:
            if self.is_alive:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                select.select([pidfd], [], [], _END_S)
        finally:
            os.close(pidfd)


class ServerLog:
    """The fork server's own side of its record.

    Parameters
    ----------
    lock : int
        The descriptor of the file that it holds locked.
    """

    def __init__(self, lock: int) -> None:
        self._lock = lock
        self._began_s = time.monotonic()
        self._warm_s = 0.0
        self._started = start_of(os.getpid())
        self.used_by([])
        self.beat()

    def warm(self) -> None:
        """Write that everything has been imported."""
        self._warm_s = max(time.monotonic() - self._began_s, 0.001)
        self.beat()

    def used_by(self, pids: Iterable[int]) -> None:
        """Write which processes use the fork server."""
        users = b"".join(_USER.pack(pid, start_of(pid)) for pid in pids)
        with contextlib.suppress(OSError):
            os.pwrite(self._lock, users, _FORMAT.size)
            os.ftruncate(self._lock, _FORMAT.size + len(users))

    def beat(self) -> None:
        """Write that the loop goes round."""
        entry = _FORMAT.pack(os.getpid(), self._started, self._began_s, self._warm_s, time.monotonic())
        with contextlib.suppress(OSError):  # a full disk is no reason to end
            os.pwrite(self._lock, entry, 0)


def end_abandoned(folder: Path) -> None:
    """Kill the fork servers in the folder of an owner that are stopped while nobody uses them any more."""
    for path in folder.glob("*.lock"):
        record = ServerRecord.read(path)
        if record is not None and record.is_abandoned:
            record.kill()


def lock_path(socket_path: Path) -> Path:
    """Return the file that the fork server behind a socket holds locked."""
    return socket_path.with_suffix(".lock")


class Watch:
    """Watches a fork server from which something is awaited.

    Parameters
    ----------
    socket_path : Path
        Where it listens.
    """

    def __init__(self, socket_path: Path) -> None:
        self._path = socket_path
        self._since_s: float | None = None
        self.record: ServerRecord | None = None

    def symptom(self) -> str:
        """Return what is wrong with the fork server and has been for a while, or ""; call it often."""
        self.record = ServerRecord.read(self._path)
        symptom = self.record.symptom if self.record is not None else ""
        now = time.monotonic()
        self._since_s = (self._since_s or now) if symptom else None
        return symptom if self._since_s is not None and now - self._since_s > _PATIENCE_S else ""

    def wait_for_answer(self, ask: Callable[[], None], answers: Callable[[float], bool]) -> str:
        """Ask a fork server, unless it still imports, and wait until it answers; return its symptom, or "".

        ``answers`` waits for so many seconds, and returns whether there was an answer; what it raises where the fork
        server has ended is raised here, too.
        """
        asked, until = False, time.monotonic() + _PATIENCE_S
        while not (symptom := self.symptom()):
            if self._since_s is not None:
                time.sleep(_POLL_S)
                continue
            if self.record is None:
                # It has just begun; or it was killed, and this raises as soon as its socket is closed.
                is_late = time.monotonic() >= until
                answers(0.0 if is_late else _POLL_S)
                if is_late:
                    return ""
                continue
            if not self.record.warm_s:
                return ""
            if not asked:
                ask()
                asked = True
            if answers(_POLL_S):
                return ""
        return symptom


def start_of(pid: int) -> int:
    """Return when the system started a process, in clock ticks since its own start; 0 if it is gone."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return 0


def _lives(pid: int, started: int) -> bool:
    return state_of(pid) not in ("", "Z", "X") and start_of(pid) == started
