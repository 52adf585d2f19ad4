"""Requests to a fork server and its replies, and what the processes that it forks need to know."""

from __future__ import annotations

import msgspec

from tfos_lab.node.forkserver.process_state import ProcessState


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


class ChildSpec(msgspec.Struct, frozen=True):
    """What a child needs before the first message of its agent.

    ``environ`` replaces the whole environment; ``sys_path`` goes in front of the fork server's own.
    """

    node: str
    environ: dict[str, str]
    cwd: str
    sys_path: list[str]


class TensorBoardSpec(msgspec.Struct, frozen=True):
    """What a TensorBoard process needs: the folder with the event files, and the unix socket to listen on."""

    log_dir: str
    socket: str
    cwd: str
