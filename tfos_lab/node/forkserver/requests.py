"""What is said to a fork server, and what it answers."""

from __future__ import annotations

import msgspec


class SpawnRequest(msgspec.Struct, tag=True, frozen=True):
    """Fork a process that runs ``target``: ``"agent"``, ``"child"`` or ``"tensorboard"``; "" only warms the server.

    The process is ended when the asking connection closes. ``watched_pid`` is a pid without which the fork server has
    no reason to live.
    """

    target: str
    body: bytes = b""
    watched_pid: int = 0


class KeepRequest(msgspec.Struct, tag=True, frozen=True):
    """From now on the forked process outlives this connection."""


ForkServerRequest = SpawnRequest | KeepRequest


class SpawnedReply(msgspec.Struct, tag=True, frozen=True):
    """The process runs, in a process group of its own; pid 0 after a mere warming."""

    pid: int


class FailedReply(msgspec.Struct, tag=True, frozen=True):
    """Nothing was forked: the fork server could not import what it must."""

    reason: str


class ExitedReply(msgspec.Struct, tag=True, frozen=True):
    """The process has ended with this exit code (negative: the signal that ended it)."""

    code: int


ForkServerReply = SpawnedReply | FailedReply | ExitedReply


class ChildSpec(msgspec.Struct, frozen=True):
    """What a child must know before it hears from its agent.

    ``environ`` replaces the whole environment; ``sys_path`` goes in front of the fork server's own.
    """

    node: str
    environ: dict[str, str]
    cwd: str
    sys_path: list[str]


class TensorBoardSpec(msgspec.Struct, frozen=True):
    """What a TensorBoard process must know: whose event files it shows, and the unix socket that it is to listen on."""

    log_dir: str
    socket: str
    cwd: str
