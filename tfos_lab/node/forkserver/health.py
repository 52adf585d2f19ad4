"""Tells fork servers that work from those that are stopped or hang, which would let their clients wait forever.

Each fork server holds a file locked, and writes into it who it is and when it last went through its loop. A client
reads that before it connects; nothing is sent, and a fork server that is busy is not disturbed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
import time
from pathlib import Path
from typing import NamedTuple, Self

from tfos_lab.core.processes import open_pidfd, state_of

# A loop that has not gone round for this long hangs: it wakes every second, and a fork takes a small part of one.
_SILENT_S = 3.0
# For this long, a fork server that seems to be stopped or to hang may go on.
_PATIENCE_S = 1.0
_POLL_S = 0.05
_END_S = 2.0
_FORMAT = struct.Struct("=qqddd")


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
    """

    pid: int
    started: int
    began_s: float
    warm_s: float
    beat_s: float

    @classmethod
    def read(cls, socket_path: Path) -> Self | None:
        """Return the record of the fork server behind a socket; None if there is none, or its process is gone."""
        with contextlib.suppress(OSError, struct.error):
            record = cls(*_FORMAT.unpack(lock_path(socket_path).read_bytes()))
            return record if record.is_alive else None
        return None

    @property
    def is_alive(self) -> bool:
        """Whether the process is there, and is the same."""
        return state_of(self.pid) not in ("", "Z", "X") and start_of(self.pid) == self.started

    @property
    def symptom(self) -> str:
        """What is wrong with it now, as the end of a sentence; "" if nothing is."""
        if state_of(self.pid) in ("T", "t"):
            return "was stopped"
        if self.warm_s and time.monotonic() - self.beat_s > _SILENT_S:
            return "did not answer"
        return ""

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
        self.beat()

    def warm(self) -> None:
        """Write that everything has been imported."""
        self._warm_s = max(time.monotonic() - self._began_s, 0.001)
        self.beat()

    def beat(self) -> None:
        """Write that the loop goes round."""
        entry = _FORMAT.pack(os.getpid(), self._started, self._began_s, self._warm_s, time.monotonic())
        with contextlib.suppress(OSError):  # a full disk is no reason to end
            os.pwrite(self._lock, entry, 0)


def lock_path(socket_path: Path) -> Path:
    """Return the file that the fork server behind a socket holds locked."""
    return socket_path.with_suffix(".lock")


def lasting_symptom(socket_path: Path) -> tuple[ServerRecord | None, str]:
    """Return the record of a fork server, and what is wrong with it; "" as soon as it works."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        record = ServerRecord.read(socket_path)
        symptom = record.symptom if record is not None else ""
        if not symptom or time.monotonic() > until:
            return record, symptom
        time.sleep(_POLL_S)


def start_of(pid: int) -> int:
    """Return when the system started a process, in clock ticks since its own start; 0 if it is gone."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return 0
