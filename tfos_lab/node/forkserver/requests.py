"""Requests to a fork server and its replies, and what the processes that it forks need to know."""

from __future__ import annotations

import contextlib
import os
import resource
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import msgspec

from tfos_lab.core.processes import status_of

_LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})


class SpawnRequest(msgspec.Struct, tag=True, frozen=True):
    """Fork a process that runs ``target``: ``"agent"``, ``"child"`` or ``"tensorboard"``; "" only warms the server.

    The process is ended when the connection that asked for it closes. ``watched_pid`` is the kernel or JVM that uses
    the fork server; a fork server that does not outlive its owner ends with the last one. ``state`` is what the process
    has instead of the fork server's own environment, folder and limits.
    """

    target: str
    body: bytes = b""
    watched_pid: int = 0
    state: ProcessState | None = None


class KeepRequest(msgspec.Struct, tag=True, frozen=True):
    """From now on the forked process outlives this connection."""


class StatusRequest(msgspec.Struct, tag=True, frozen=True):
    """Ask who uses the fork server, and how much."""


class EndRequest(msgspec.Struct, tag=True, frozen=True):
    """End, which closes this connection; refused with `FailedReply` while processes run that were forked here."""


ForkServerRequest = SpawnRequest | KeepRequest | StatusRequest | EndRequest


class SpawnedReply(msgspec.Struct, tag=True, frozen=True):
    """The process runs, in a process group of its own; pid 0 if the request only asked to warm the server."""

    pid: int


class FailedReply(msgspec.Struct, tag=True, frozen=True):
    """Nothing was forked: an import has failed, or the system allows no more processes."""

    reason: str


class ExitedReply(msgspec.Struct, tag=True, frozen=True):
    """The process has ended with this exit code (negative: the signal that ended it)."""

    code: int


class StatusReply(msgspec.Struct, tag=True, frozen=True):
    """How many processes run that were forked here, and the kernels or JVMs that have used this fork server."""

    processes: int
    users: list[int]


ForkServerReply = SpawnedReply | FailedReply | ExitedReply | StatusReply


class ProcessState(msgspec.Struct, frozen=True):
    """The state of a process that its children inherit: its whole environment, folder, umask, limits and CPUs.

    The folder is "" if it has been removed, and the umask -1 where the system does not tell it. Limits are soft and
    hard ones, by the number of ``resource.RLIMIT_*``.
    """

    environ: dict[str, str]
    cwd: str
    umask: int
    limits: dict[int, tuple[int, int]]
    cpus: list[int]

    @classmethod
    def of_this_process(cls, environ: Mapping[str, str], cwd: str = "") -> Self:
        """Return the state of this process, with another environment, and in another folder if one is given."""
        return cls(
            environ=dict(environ),
            cwd=cwd or _cwd(),
            # Without setting it, as ``os.umask`` would: other threads may create files now.
            umask=int(status_of(os.getpid(), "Umask") or "-1", 8),
            limits={number: resource.getrlimit(number) for number in _LIMITS},
            cpus=sorted(os.sched_getaffinity(0)),
        )

    def apply(self) -> None:
        """Give this process the state; what the system refuses stays as it is."""
        os.environ.clear()
        os.environ.update(self.environ)
        time.tzset()
        tempfile.tempdir = None  # it may have been looked up in another environment
        if self.umask >= 0:
            os.umask(self.umask)
        for number, limits in self.limits.items():
            with contextlib.suppress(OSError, ValueError):  # a hard limit cannot be raised again
                resource.setrlimit(number, limits)
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, self.cpus)
        with contextlib.suppress(OSError):
            os.chdir(self.cwd)


def _cwd() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return ""
