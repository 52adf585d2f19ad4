"""Which process is the fork server behind a socket, whether it has imported everything, and whether it answers.

Each fork server holds a file locked for as long as it lives, with its pid in it. While it imports it answers nobody;
from then on, it answers within milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple, Self

from tfos_lab.core.processes import WatchedProcess, command_line, lives, state_of

# For this long, a fork server may be stopped, leave a question without an answer, and import.
STOPPED_S = 1.0
DEAF_S = 60.0
IMPORTS_S = 600.0
_END_S = 2.0
_POLL_S = 0.05
# Ends of sentences about a fork server.
STOPPED = "was stopped"
SILENT = "did not answer"


class ServerRecord(NamedTuple):
    """A fork server, as it has written of itself.

    It began at that time (``time.monotonic``), and its imports took so many seconds; 0 while it imports.
    """

    pid: int
    began_s: float
    warm_s: float

    @classmethod
    def read(cls, socket_path: Path) -> Self | None:
        """Return the record of the fork server behind a socket; None if there is none, or its process is gone."""
        with contextlib.suppress(OSError, ValueError):
            pid, began_s, warm_s = lock_path(socket_path).read_text().split()
            if str(socket_path) in command_line(int(pid)) and lives(int(pid)):
                return cls(int(pid), float(began_s), float(warm_s))
        return None

    def write(self, lock: int) -> None:
        """Write the record to the file that its process holds locked."""
        text = f"{self.pid} {self.began_s:.3f} {self.warm_s:.3f}"
        with contextlib.suppress(OSError):  # a full disk is no reason to end
            os.pwrite(lock, f"{text:<63}\n".encode(), 0)  # as long as any other: nothing is left of one before it

    def hangs(self, asked_s: float) -> bool:
        """Whether it should have answered by now what it was asked then."""
        if not self.warm_s:
            return time.monotonic() - self.began_s > IMPORTS_S
        return time.monotonic() - max(asked_s, self.began_s + self.warm_s) > DEAF_S


def lock_path(socket_path: Path) -> Path:
    """Return the file that the fork server behind a socket holds locked."""
    return socket_path.with_suffix(".lock")


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped, and not only for a moment."""
    until = time.monotonic() + STOPPED_S
    while state_of(pid) == "T":
        if time.monotonic() > until:
            return True
        time.sleep(_POLL_S)
    return False


def kill(pid: int) -> None:
    """Kill a process, and wait for its end."""
    process, until = WatchedProcess(pid), time.monotonic() + _END_S
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    while not process.has_ended and time.monotonic() < until:
        time.sleep(_POLL_S)
