"""Fork servers: started before they are needed; which there are, who uses them, what they cost; and their end."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import threading
import time
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tfos_lab.core.runtime_files import files_in, scratch_root
from tfos_lab.launchers.local import local_fork_servers, warm_local
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.launchers.spark.executors import check_executors
from tfos_lab.launchers.spark.slots import slots_of
from tfos_lab.launchers.this_machine import kernel_environ
from tfos_lab.node.forkserver.client import USER_OWNER, ForkServerConnection
from tfos_lab.node.forkserver.health import SILENT, STOPPED, ServerRecord, is_stopped, kill
from tfos_lab.node.forkserver.requests import EndRequest, FailedReply, SpawnRequest, StatusReply, StatusRequest
from tfos_lab.texts import format_count

logger = logging.getLogger(__name__)

# One that has imported everything answers, if late on a busy machine.
_ANSWER_S = 20.0
# One that does not end when it is asked to is killed; on a busy machine it may be late.
_END_S = 20.0


def warm() -> str:
    """Start the fork servers where a cell would run now; returns a name for that place.

    Returns at once for this machine. On a Spark cluster it waits for one small job that checks the executors, and
    raises ExecutorMismatch if they lack a package or run another Python.
    """
    session = spark_session.active_session()
    if session is None or spark_session.is_local(session):
        warm_local(kernel_environ(), {})
        return "this machine"
    slots = slots_of(session)
    check_executors(session, slots.total if slots else 1, {})
    return spark_session.master_of(session)


def wait_until_warm() -> None:
    """Start this machine's fork servers, and wait until they have imported everything.

    Raises ForkServerUnavailable if one cannot start, cannot import TensorFlow, or ends meanwhile.
    """
    warm_local(kernel_environ(), {})  # both import at the same time
    for fork_server in local_fork_servers(kernel_environ(), {}):
        fork_server.wait_until_warm()


def warm_in_background() -> None:
    """Start them on a thread, once for each place where cells run; silent, whatever happens."""
    session = spark_session.active_session()
    on_cluster = session is not None and not spark_session.is_local(session)
    _warm_place(spark_session.owner_of(session) if session is not None and on_cluster else "")


@functools.cache
def _warm_place(_place: str) -> None:
    threading.Thread(target=_warm_quietly, name="tfos-warm", daemon=True).start()


def _warm_quietly() -> None:
    try:
        warm()
        from tfos_lab.core.certificates import driver_identity

        driver_identity()  # the first cluster would import what makes certificates
    except Exception as error:  # noqa: BLE001 - the cell that needs the nodes raises it
        logger.info("fork servers could not be started ahead: %s", error)


# ---- those of this machine -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WarmServer:
    """One fork server, which is ``plain`` or has imported ``tensorflow``.

    Its imports took ``warm_s``, which is 0 while it imports. Of the memory that it shares with others a part counts.
    Its users are the kernels that have used it and are still there, by their processes. The symptom is what is wrong
    with it, such as that it is stopped, does not answer, or cannot import something; "" if nothing is. This kernel has
    used one that is ``ours``, or would for nodes without variables of their own.
    """

    kind: str
    pid: int
    age_s: float
    warm_s: float
    memory_bytes: int
    processes: int = 0
    users: tuple[int, ...] = ()
    symptom: str = ""
    ours: bool = False

    @property
    def state(self) -> str:
        """What is wrong with it, else ``"warm"`` or ``"importing"``."""
        return self.symptom or ("warm" if self.warm_s else "importing")

    def describe(self) -> str:
        """Return a line about it."""
        users = ", ".join(f"{pid} (this one)" if pid == os.getpid() else str(pid) for pid in self.users)
        age = f"{self.age_s:.0f} s" if self.age_s < 60 else f"{self.age_s / 60:.0f} min"
        return (
            f"{self.kind:<10}  process {self.pid}, {self.state}, {age} old, "
            f"{self.memory_bytes >> 20} MiB, "
            f"{format_count(self.processes, 'process', 'processes')} on it, "
            f"used by {f'kernel {users}' if users else 'no kernel'}"
        )


def warm_servers(owner: str = USER_OWNER) -> list[WarmServer]:
    """Return the fork servers that outlive kernels, or those of another owner; "" for all."""
    ours = {spec.socket_path for spec in local_fork_servers(kernel_environ(), {})}
    return [_look_at(path, record, ours) for path, record in _sockets(owner)]


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


def _look_at(path: Path, record: ServerRecord, ours: Container[Path]) -> WarmServer:
    status, symptom = None, STOPPED if is_stopped(record.pid) else ""
    if not symptom and record.warm_s:
        status, symptom = _ask(path)
    users = tuple(status.users) if status else ()
    return WarmServer(
        kind=_kind(path),
        pid=record.pid,
        age_s=time.monotonic() - record.began_s,
        warm_s=record.warm_s,
        memory_bytes=_memory(record.pid),
        processes=status.processes if status else 0,
        users=users,
        symptom=symptom,
        ours=path in ours or os.getpid() in users,
    )


def _ask(path: Path) -> tuple[StatusReply | None, str]:
    """Return what a fork server tells of itself, if it does, and what is wrong with it."""
    connection, failure = ForkServerConnection.open(path), ""
    if connection is None:
        return None, ""  # it has just ended
    with connection, contextlib.suppress(OSError, msgspec.DecodeError):
        connection.ask(SpawnRequest(""))
        connection.ask(StatusRequest())
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
            connection.ask(EndRequest())
            replies = connection.replies(_END_S)
        except OSError:
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
