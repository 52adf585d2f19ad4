"""What runs inside Spark tasks: one starts a node's agent and occupies a slot for it, one inspects an executor."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import json
import os
import select
import shutil
import signal
import socket
import sys
import sysconfig
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import TaskContext

    from tfos_lab.node.forkserver.client import ForkServerConnection, ForkServerSpec

from tfos_lab.core.gpu_shares import EQUAL
from tfos_lab.core.package_versions import compared_versions, misfits, unpacked_environment
from tfos_lab.core.processes import adopt_orphans
from tfos_lab.errors import ExecutorMismatch, LaunchFailed, NodeFailed
from tfos_lab.node.gpus import visible_gpus

REQUIRED = ("tensorflow", "pyarrow", "msgspec")
# How often a fork server is looked at that does not say how its agent has ended.
_POLL_S = 0.1
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the kernel's own folder, looked at only
_CONNECT_TIMEOUT_S = 3.0
# Tells a node the addresses of the resources that Spark has given to its task, by Spark's names for them.
_RESOURCES = "TFOS_LAB_RESOURCES"
# Prefixes of variables that Spark sets for its Python worker only.
_WORKER_ONLY = ("PYTHON_WORKER_FACTORY", "SPARK_AUTH", "PYTHON_UNIX_DOMAIN", "SPARK_JOB_ARTIFACT", "PYSPARK_RUNTIME")


def why_unfit() -> str:
    """Return why no node can run with this executor's Python, as half a sentence; "" if one can."""
    missing = [name for name in REQUIRED if importlib.util.find_spec(name) is None]
    return f"lacks {', '.join(missing)}" if missing else "; ".join(misfits())


@functools.cache  # this worker may outlive its parent processes and be used again
def executor_identity() -> tuple[int, str]:
    """Return the JVM of this Python worker's executor, as far as the process tree tells, and its id ("" if unknown)."""
    from tfos_lab.core.processes import command_line, parent_of

    pid = os.getpid()
    for _ in range(5):
        pid = parent_of(pid)
        # In a container without an init process, the JVM is process 1.
        arguments = command_line(pid) if pid else []
        if arguments and Path(arguments[0]).name == "java":
            options = dict(itertools.pairwise(arguments))
            return pid, options.get("--executor-id", os.environ.get("SPARK_EXECUTOR_ID", "driver"))
    return os.getppid(), os.environ.get("SPARK_EXECUTOR_ID", "")


def executor_environ() -> dict[str, str]:
    """Return what a node inherits from its executor."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(_WORKER_ONLY)}
    # YARN gives a container a folder for temporary files on disks of its own, which it removes, and tells only Java.
    temporary = Path(environ.get("PWD", ""), "tmp")
    if "CONTAINER_ID" in environ and "TMPDIR" not in environ and temporary.is_dir():
        environ["TMPDIR"] = str(temporary)
    return environ


def node_task(
    batches: Iterable[pa.RecordBatch], template: bytes, nodes: list[tuple[int, str, int | None]]
) -> Iterator[pa.RecordBatch]:
    """The body of the task that occupies a node's slot; yields one record of how it ended."""
    import pyarrow as pa
    from pyspark import TaskContext

    for _ in batches:
        pass  # Spark discards a Python worker whose input is left unread, and starting another costs seconds
    context = TaskContext.get()
    assert context is not None
    resources = {name: list(resource.addresses) for name, resource in context.resources().items()}
    rank, node, wanted = nodes[context.partitionId()]
    among = _nodes_that_share(context, [count for _, _, count in nodes]) if wanted == EQUAL else 0
    own = {"rank": rank, "node": node, "gpus_wanted": wanted, "gpus_among": among, "gpus": resources.get("gpu")}
    ended = hold(template, own, resources)
    yield pa.RecordBatch.from_pydict({"rank": [rank], "ended": [ended]})


def inspect_task(
    batches: Iterable[pa.RecordBatch], owner: str, extra_env: dict[str, str], questions: Mapping[str, Any] | None
) -> Iterator[pa.RecordBatch]:
    """The body of the task that inspects and warms an executor; yields one record: its facts as a JSON object.

    They are those of `tfos_lab.launchers.spark.executors.ExecutorFacts`. ``owner`` is that of the executor's fork
    servers, and ``extra_env``, the user's variables, choose the one to warm. The doctor's ``questions`` are ``probe``,
    a file to look for, and ``driver``, an encoded address to connect to, or none.
    """
    import pyarrow as pa

    for _ in batches:
        pass
    facts: dict[str, object] = {**inspect_and_warm(owner, extra_env)}
    if questions:
        shared_memory_bytes = None
        with contextlib.suppress(OSError):
            shared_memory_bytes = shutil.disk_usage(_SHARED_MEMORY).free
        facts |= {
            "clock_s": time.time(),
            "versions": compared_versions(),
            "shared_memory_bytes": shared_memory_bytes,
            "sees_probe": os.access(questions["probe"], os.R_OK),
            "unreachable": _why_unreachable(questions["driver"]) if questions["driver"] else "",
        }
    yield pa.RecordBatch.from_pylist([{"facts": json.dumps(facts)}])


def _why_unreachable(driver: bytes) -> str:
    """Return why no agent of this host could connect to the driver, or "" if one could."""
    with contextlib.suppress(ImportError):  # what is missing is a problem of its own
        import msgspec

        from tfos_lab.core.link import Link
        from tfos_lab.core.messages import DriverAddress

        try:
            Link(msgspec.msgpack.decode(driver, type=DriverAddress), _CONNECT_TIMEOUT_S).close()
        except OSError as error:
            return error.strerror or str(error)
    return ""


def _nodes_that_share(context: TaskContext, wanted: list[int | None]) -> int:
    """Return how many nodes of this host divide its GPUs; 0 if only Spark knows, as under dynamic allocation."""
    from pyspark import BarrierTaskContext

    if not isinstance(context, BarrierTaskContext):
        return 0
    hosts = [task.address.rpartition(":")[0] for task in context.getTaskInfos()]
    here = hosts[context.partitionId()]
    return sum(host == here and count == EQUAL for host, count in zip(hosts, wanted, strict=True))


def hold(template: bytes, own: Mapping[str, object], resources: Mapping[str, list[str]]) -> str:
    """Start a node's agent, and wait until it ends or the driver frees the slot; return how, for Spark's record.

    ``template`` is an encoded `LaunchSpec`, to be completed with ``own``, those of its fields that are this node's
    alone, and with facts about this host. ``resources`` has all addresses that Spark gave to this task, by resource.
    """
    _keep_in_container()
    if problem := why_unfit():
        raise ExecutorMismatch(problems={socket.gethostname(): problem})
    import msgspec

    from tfos_lab.core.messages import LaunchSpec
    from tfos_lab.node.forkserver.client import ForkServerSpec

    (jvm, executor), launch = executor_identity(), msgspec.msgpack.decode(template, type=LaunchSpec)
    spec = msgspec.structs.replace(
        launch,
        **own,
        owner=_owner_here(launch.owner),
        watched_pid=jvm,
        executor=executor,
        environ={**executor_environ(), _RESOURCES: json.dumps(resources)},
        cwd=os.getcwd(),  # noqa: PTH109 - the folder that Spark puts the job's files into
        sys_path=[str(Path(path).absolute()) for path in sys.path],
    )
    fork_server = ForkServerSpec.plain(spec.owner, spec.environ, jvm)
    slot, agent_socket = socket.socketpair()
    with slot, _ignoring_hangups():
        with agent_socket:
            connection = fork_server.spawn("agent", msgspec.msgpack.encode(spec), [agent_socket.fileno()])
        with connection:
            return _wait_for_agent(connection, slot, spec.node, fork_server)


def task_resources() -> dict[str, list[str]]:
    """Return the addresses of this node's resources, by Spark's names for them; empty elsewhere than on Spark."""
    found: dict[str, list[str]] = json.loads(os.environ.get(_RESOURCES, "{}"))
    return found


def _keep_in_container() -> None:
    """On YARN, be the parent of the warm processes that this task leaves behind: what is below an executor counts.

    This lasts for as long as Spark keeps this worker. Then they go to its parent, if that adopts (`spark_daemon`).
    """
    if "CONTAINER_ID" in os.environ:
        adopt_orphans()


def _owner_here(owner: str) -> str:
    """Return whose this executor's fork servers are: on YARN, those of a daemon that Spark has replaced are nobody's.

    They have lost their place below the executor with it, and nodes that they forked would not count.
    """
    return f"{owner} below {os.getppid()}" if "CONTAINER_ID" in os.environ else owner


@contextlib.contextmanager
def _ignoring_hangups() -> Iterator[None]:
    """Outlive the parent of this Python worker, which Spark may replace.

    If a task is interrupted while its worker is being forked, for instance because another task of its job has failed,
    Spark takes the parent for broken and ends it. The parent then sends SIGHUP to all its workers, among them those
    that occupy slots. This worker needs only its socket to the executor, which stays open.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set signal handlers
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _wait_for_agent(
    connection: ForkServerConnection, slot: socket.socket, node: str, fork_server: ForkServerSpec
) -> str:
    from tfos_lab.node.forkserver.requests import KeepRequest

    watched: list[ForkServerConnection | socket.socket] = [connection, slot]
    while True:
        ready, _, _ = select.select(watched, [], [], _POLL_S if connection.asked_s else None)
        if slot in ready and slot.recv(1):
            connection.ask(KeepRequest())
            return "slot given back; the node goes on"
        if slot in ready:
            watched.remove(slot)  # the agent has ended: its fork server says how
        else:
            fork_server.replace_if_stuck(connection)
        if connection in ready and (ended := _how_it_ended(connection, node)):
            return ended


def _how_it_ended(connection: ForkServerConnection, node: str) -> str:
    """Return that the agent has ended, or "" if it has not; raise if it could not be started, or has failed."""
    from tfos_lab.node.driver_link import how_ended
    from tfos_lab.node.forkserver.requests import ExitedReply, FailedReply

    try:
        replies = connection.replies()
    except ConnectionError:
        raise _lost(node, "the process that its agent was forked from has ended") from None
    for reply in replies:
        if isinstance(reply, FailedReply):
            raise LaunchFailed(reason=f"no agent could be started: {reply.reason}")
        if isinstance(reply, ExitedReply) and reply.code:
            # Spark then ends the other nodes' tasks too, and the driver learns of it at once.
            raise _lost(node, how_ended(reply.code))
        if isinstance(reply, ExitedReply):
            return "the node has ended"
    return ""


def _lost(node: str, message: str) -> NodeFailed:
    return NodeFailed(node=node, kind="Lost", message=message)


def inspect_and_warm(owner: str, extra_env: dict[str, str]) -> dict[str, str]:
    """Return what this executor has, and start to warm its fork servers.

    ``environment`` is the manifest of the archive that this Python is from, or "".
    """
    _keep_in_container()
    problem, packed = why_unfit(), unpacked_environment()
    facts = {
        "host": socket.gethostname(),
        "executor": "",
        "python": ".".join(map(str, sys.version_info[:2])),
        "problem": problem,
        "platform": sysconfig.get_platform(),
        "environment": packed.to_json() if packed is not None else "",
        "gpus": ", ".join(visible_gpus({**executor_environ(), **extra_env})),
    }
    if not problem:
        from tfos_lab.node.forkserver.client import ForkServerSpec

        (jvm, facts["executor"]), environ, owner = executor_identity(), executor_environ(), _owner_here(owner)
        ForkServerSpec.tensorflow(owner, environ, jvm, extra_env).warm()
        ForkServerSpec.plain(owner, environ, jvm).warm()
    return facts
