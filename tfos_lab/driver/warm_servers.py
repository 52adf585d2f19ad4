"""This user's fork servers on this machine: which there are, who uses them, what they cost; and their end."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tfos_lab.core.frames import ConnectionClosed
from tfos_lab.core.runtime_files import files_in, scratch_root
from tfos_lab.node.forkserver.client import USER_OWNER, ForkServerConnection
from tfos_lab.node.forkserver.health import SILENT, STOPPED, ServerRecord, is_stopped, kill
from tfos_lab.node.forkserver.requests import FailedReply, StatusReply

# One that has imported everything answers, if late on a busy machine.
_ANSWER_S = 20.0
# One that does not end when it is asked to is killed; on a busy machine it may be late.
_END_S = 20.0


@dataclass(frozen=True)
class WarmServer:
    """One fork server.

    Attributes
    ----------
    kind : str
        ``"plain"`` or ``"tensorflow"``.
    pid : int
        Its process.
    age_s : float
        How long ago it was started.
    warm_s : float
        How long its imports took; 0 while it imports.
    memory_bytes : int
        What it takes of the machine's memory; what it shares with other processes counts in part.
    processes : int
        How many processes run that were forked from it.
    users : tuple of int
        The processes of the kernels that have used it and are still there.
    symptom : str
        What is wrong with it: it is stopped, does not answer, or cannot import something; "" if nothing is.
    """

    kind: str
    pid: int
    age_s: float
    warm_s: float
    memory_bytes: int
    processes: int = 0
    users: tuple[int, ...] = ()
    symptom: str = ""

    @property
    def state(self) -> str:
        """What is wrong with it, else ``"warm"`` or ``"importing"``."""
        return self.symptom or ("warm" if self.warm_s else "importing")

    def describe(self) -> str:
        """Return a line about it."""
        users = ", ".join(f"{pid} (this one)" if pid == os.getpid() else str(pid) for pid in self.users)
        return (
            f"{self.kind:<10}  process {self.pid}, {self.state}, {_span(self.age_s)} old, "
            f"{self.memory_bytes >> 20} MiB, "
            f"{self.processes} processes run on it, used by {f'kernel {users}' if users else 'no kernel'}"
        )


def warm_servers(owner: str = USER_OWNER) -> list[WarmServer]:
    """Return the fork servers that outlive kernels, or those of another owner; "" for all."""
    return [_look_at(path, record) for path, record in _sockets(owner)]


def describe(servers: Iterable[WarmServer]) -> str:
    """Return a line about each fork server."""
    lines = [server.describe() for server in servers]
    return "\n".join(lines) if lines else "no fork server that outlives its kernel runs"


def end_warm_servers() -> str:
    """End those from which no node was forked that still runs; returns what was done, in words."""
    ended: list[str] = []
    kept: list[str] = []
    for path, record in _sockets():
        problem = _end(path, record)
        (kept if problem else ended).append(f"{_kind(path)} (process {record.pid}{problem and ': '}{problem})")
    done = f"ended: {', '.join(ended)}" if ended else "" if kept else "no fork server that outlives its kernel runs"
    left = f"not ended: {', '.join(kept)}; stop the clusters first" if kept else ""
    return "\n".join(line for line in (done, left) if line)


def _sockets(owner: str = USER_OWNER) -> Iterator[tuple[Path, ServerRecord]]:
    for path in sorted(files_in(scratch_root().glob(f"{owner}*"), "*.sock")):
        if record := ServerRecord.read(path):
            yield path, record


def _kind(path: Path) -> str:
    return path.stem.partition("-")[0]


def _look_at(path: Path, record: ServerRecord) -> WarmServer:
    status, symptom = None, STOPPED if is_stopped(record.pid) else ""
    if not symptom and record.warm_s:
        status, symptom = _ask(path)
    return WarmServer(
        kind=_kind(path),
        pid=record.pid,
        age_s=time.monotonic() - record.began_s,
        warm_s=record.warm_s,
        memory_bytes=_memory(record.pid),
        processes=status.processes if status else 0,
        users=tuple(status.users) if status else (),
        symptom=symptom,
    )


def _ask(path: Path) -> tuple[StatusReply | None, str]:
    """Return what a fork server tells of itself, if it does, and what is wrong with it."""
    connection, failure = ForkServerConnection.open(path), ""
    if connection is None:
        return None, ""  # it has just ended
    with connection, contextlib.suppress(ConnectionClosed, OSError, msgspec.DecodeError):
        connection.ask_if_warm()
        connection.ask_status()
        while replies := connection.replies(_ANSWER_S):
            for reply in replies:
                match reply:
                    case FailedReply(reason=reason):
                        failure = reason
                    case StatusReply():
                        return reply, failure
        return None, SILENT
    return None, failure


def _end(path: Path, record: ServerRecord) -> str:
    """End a fork server, by force if it is stopped, imports or hangs; return "", or why it goes on."""
    connection = ForkServerConnection.open(path)
    if connection is None or not record.warm_s or is_stopped(record.pid):
        kill(record.pid)
        return ""
    with connection:
        try:
            connection.end()
            replies = connection.replies(_END_S)
        except (ConnectionClosed, OSError):
            return ""  # it ends, and first what nodes have left
    if refusals := [reply.reason for reply in replies if isinstance(reply, FailedReply)]:
        return refusals[0]
    kill(record.pid)
    return ""


def _memory(pid: int) -> int:
    """Return the bytes that a process takes, its part of shared pages included."""
    with contextlib.suppress(OSError):
        if found := re.search(r"^Pss: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE):
            return int(found[1]) << 10
    return 0


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else f"{seconds / 60:.0f} min"
