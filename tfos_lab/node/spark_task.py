"""Runs inside Spark tasks: starts a node's agent and holds its rank, so that Spark knows what the slot is for."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfos_lab.errors import ExecutorMismatch, LaunchFailed, NodeFailed

REQUIRED = ("tensorflow", "pyarrow", "zmq", "msgspec")
# What Spark sets for its Python worker alone.
_WORKER_ONLY = ("PYTHON_WORKER_FACTORY", "SPARK_AUTH", "PYTHON_UNIX_DOMAIN", "SPARK_JOB_ARTIFACT", "PYSPARK_RUNTIME")


def missing_packages() -> list[str]:
    """Return the packages that a node needs and this executor's Python has not."""
    return [name for name in REQUIRED if importlib.util.find_spec(name) is None]


@functools.cache  # this worker may lose its parents, and still be used again
def executor_identity() -> tuple[int, str]:
    """Return the pid of the executor's JVM and the executor's id, as far as this host tells."""
    from tfos_lab.core.processes import command_line, parent_of

    pid = os.getpid()
    for _ in range(5):
        pid = parent_of(pid)
        words = command_line(pid) if pid > 1 else []
        if words and Path(words[0]).name == "java":
            following = dict(itertools.pairwise(words))
            return pid, following.get("--executor-id", os.environ.get("SPARK_EXECUTOR_ID", "driver"))
    return os.getppid(), os.environ.get("SPARK_EXECUTOR_ID", "")


def executor_environ() -> dict[str, str]:
    """Return what a node inherits from its executor."""
    return {key: value for key, value in os.environ.items() if not key.startswith(_WORKER_ONLY)}


def node_task(batches: Any, template: bytes, nodes: list[str], gpus_wanted: int | None) -> Any:
    """The body of the task that holds a rank; yields one record of how it went."""
    import pyarrow as pa
    from pyspark import TaskContext

    for _ in batches:
        pass  # Spark throws away a Python worker whose input is left unread, and the next launch costs seconds
    context = TaskContext.get()
    assert context is not None
    resources = context.resources()
    gpus = list(resources["gpu"].addresses) if gpus_wanted != 0 and "gpu" in resources else None
    partition = context.partitionId()
    ended = hold(partition, template, nodes, gpus)
    yield pa.RecordBatch.from_pydict({"rank": [partition], "ended": [ended]})


def inspect_task(batches: Any, owner: str, extra_env: dict[str, str]) -> Any:
    """The body of the task that looks at an executor and warms it; yields one record of facts."""
    import pyarrow as pa

    for _ in batches:
        pass
    yield pa.RecordBatch.from_pylist([inspect_and_warm(owner, extra_env)])


def hold(partition: int, template: bytes, nodes: list[str], gpus: list[str] | None) -> str:
    """Start the agent of rank ``partition`` and wait for its end, or until the driver wants the slot back.

    Parameters
    ----------
    partition : int
        Number of this task, which is the rank.
    template : bytes
        Encoded `LaunchSpec`, to be completed with what only this host knows.
    nodes : list of str
        Names of all nodes, by rank.
    gpus : list of str or None
        GPU addresses that Spark gave to this task.

    Returns
    -------
    str
        How it went, for Spark's record.
    """
    missing = missing_packages()
    if missing:
        raise ExecutorMismatch(problems={socket.gethostname(): f"lacks {', '.join(missing)}"})
    import msgspec

    from tfos_lab.messages import LaunchSpec
    from tfos_lab.node.forkserver import client as fork_server
    from tfos_lab.node.forkserver.requests import SpawnRequest

    watched_pid, executor = executor_identity()
    spec = msgspec.structs.replace(
        msgspec.msgpack.decode(template, type=LaunchSpec),
        rank=partition,
        node=nodes[partition],
        watched_pid=watched_pid,
        executor=executor,
        gpus=gpus,
        environ=executor_environ(),
        cwd=os.getcwd(),  # noqa: PTH109 - the folder that Spark puts the job's files into
        sys_path=list(sys.path),
    )
    ours, theirs = socket.socketpair()
    with ours, _deaf_to_hangups(), fork_server.connect(spec.owner, "plain", {}, spec.environ) as frames:
        request = SpawnRequest("agent", msgspec.msgpack.encode(spec), watched_pid)
        frames.send(msgspec.msgpack.encode(request), [theirs.fileno()])
        theirs.close()
        return _wait(frames, ours, spec.node)


@contextlib.contextmanager
def _deaf_to_hangups() -> Iterator[None]:
    """Outlive the parent of this Python worker, which Spark replaces without need.

    A task that is interrupted while its worker is being forked, as when another task of its job has failed, looks to
    Spark like a broken parent: it ends that one, which hangs up on all its workers, ranks among them. What this worker
    needs is its socket to the executor, and that stays.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only there a process may say what signals do
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _wait(frames: Any, slot: socket.socket, node: str) -> str:
    import msgspec

    from tfos_lab.node.forkserver import client as fork_server
    from tfos_lab.node.forkserver.requests import ExitedReply, FailedReply, KeepRequest
    from tfos_lab.transport.frames import ConnectionClosed

    while True:
        ready, _, _ = select.select([frames, slot], [], [])
        if slot in ready and slot.recv(1):
            frames.send(msgspec.msgpack.encode(KeepRequest()))
            return "slot given back; the node goes on"
        if frames not in ready:
            continue
        try:
            replies = [fork_server.reply_decoder.decode(data) for data, _ in frames.available()]
        except ConnectionClosed:
            raise _lost(node, "the process that its agent was forked from has ended") from None
        for reply in replies:
            if isinstance(reply, FailedReply):
                raise LaunchFailed(reason=f"no agent could be started: {reply.reason}")
            if isinstance(reply, ExitedReply) and reply.code:
                # Spark then ends the other nodes' tasks too, and the driver hears of it at once.
                raise _lost(node, f"its agent ended with code {reply.code}")
            if isinstance(reply, ExitedReply):
                return "the node has ended"


def _lost(node: str, message: str) -> NodeFailed:
    return NodeFailed(node=node, kind="Lost", message=message)


def inspect_and_warm(owner: str, extra_env: dict[str, str]) -> dict[str, str]:
    """Tell what this executor has, and begin to warm its fork servers.

    Returns
    -------
    dict of str to str
        ``host``, ``executor``, ``python`` and ``missing`` (comma-separated, empty if nothing is).
    """
    missing = missing_packages()
    facts = {
        "host": socket.gethostname(),
        "executor": "",
        "python": ".".join(map(str, sys.version_info[:2])),
        "missing": ", ".join(missing),
    }
    if not missing:
        from tfos_lab.node.forkserver import client as fork_server

        watched_pid, facts["executor"] = executor_identity()
        environ = executor_environ()
        import_environ = fork_server.import_environ_of(environ, extra_env)
        fork_server.warm(owner, "tensorflow", import_environ, environ, watched_pid)
        fork_server.warm(owner, "plain", {}, environ, watched_pid)
    return facts
