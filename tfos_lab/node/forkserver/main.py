"""The entry point of a fork server, what it imports before it forks, and the entry point of what it forks."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import importlib
import os
import socket
import ssl
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tfos_lab.core.processes import adopt_orphans, die_with_parent
from tfos_lab.node.forkserver.health import ServerRecord, lock_path
from tfos_lab.node.forkserver.requests import SpawnRequest
from tfos_lab.node.forkserver.server import IDLE_S, Endpoint, Forked, ForkServer

# Named, not imported: these modules import the client of this server.
_TARGETS = {
    "agent": "tfos_lab.node.agent",
    "child": "tfos_lab.node.child",
    "tensorboard": "tfos_lab.node.tensorboard",
}

# What agents and children import themselves.
_OF_AGENTS = ("node.agent", "node.child", "node.feed.files.search", "node.feed.endpoint", "node.tensorboard")
_OF_CHILDREN = (
    *("core.payload", "node.child", "node.feed.dataset", "node.files.payload", "node.files.result", "node.invoke"),
    *("node.session", "node.strategy"),
)

# What a forked process runs: (body of the request, the descriptors that came with it) -> exit code.
Target = Callable[[bytes, list[int]], int]


def main() -> None:
    """Listen, import, serve; forked processes run their target."""
    parser = argparse.ArgumentParser(description="internal: a warm process that nodes are forked from")
    parser.add_argument("--kind", choices=["plain", "tensorflow"], required=True)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--idle-s", type=float, default=IDLE_S)
    parser.add_argument("--outlives", action="store_true", help="stay when those have ended that use it")
    options = parser.parse_args()
    endpoint = _bind(options.socket)
    if endpoint is None:
        os._exit(0)
    began_s = _detach(endpoint)
    if options.kind == "tensorflow":
        adopt_orphans()  # of children; agents start what is to stay: the other fork server
    failure = ""
    try:
        preload(options.kind)
    except Exception as error:  # noqa: BLE001 - reported to whoever asks for a process
        traceback.print_exc()
        failure = f"{type(error).__name__}: {error}"
    ServerRecord(os.getpid(), began_s, time.monotonic() - began_s).write(endpoint.lock)
    fork_server = ForkServer(endpoint, idle_s=options.idle_s, outlives=options.outlives, failure=failure)
    try:
        fork_server.serve()
        options.socket.unlink(missing_ok=True)
        fork_server.finish()
        os._exit(0)  # TensorFlow's own teardown would only take time
    except Forked as forked:
        request, fds, parent = forked.request, forked.fds, forked.fork_server
    fork_server.close_in_child()
    del fork_server, endpoint
    os._exit(_run_target(request, fds, parent))


def _detach(endpoint: Endpoint) -> float:
    """Go on in a process of its own, and let whoever started this one go on once that one listens; return when."""
    listens = os.pipe()
    if os.fork():
        os.close(listens[1])
        os.read(listens[0], 1)
        os._exit(0)
    began_s = time.monotonic()
    ServerRecord(os.getpid(), began_s, 0.0).write(endpoint.lock)
    endpoint.listener.listen(256)  # `peer_of` returns the process that has called this
    for descriptor in listens:
        os.close(descriptor)
    return began_s


def _bind(path: Path) -> Endpoint | None:
    """Bind the socket and hold its lock; return None if another fork server already serves it."""
    lock = _take_lock(lock_path(path))
    if lock is None:
        return None
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    return Endpoint(listener, path, lock)


def _take_lock(path: Path) -> int | None:
    """Lock the file, which is made if need be; return None if another process has locked it."""
    while True:
        path.parent.mkdir(mode=0o700, exist_ok=True)  # one that ends may just have removed it
        lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(path.stat(), os.fstat(lock)):
                return lock
        except BlockingIOError:
            return None
        except FileNotFoundError:
            pass
        os.close(lock)  # a fork server that has ended has removed it meanwhile


def preload(kind: str) -> None:
    """Import all that is slow and needed by processes of a fork server, but nothing that uses threads or devices."""
    gc.disable()  # an import leaves little garbage; to look for it takes a quarter of the time
    if kind == "tensorflow":
        _preload_tensorflow()
    else:
        _import(_OF_AGENTS)
        # What Python and OpenSSL load at their first use takes an agent half of the time until it has reserved.
        socket.getaddrinfo("127.0.0.1", 0)
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    gc.collect()
    gc.freeze()  # else a garbage collection in a forked process would copy the pages of these objects
    gc.enable()


def _preload_tensorflow() -> None:
    """Import TensorFlow, its Keras, and what reading a feed needs, without touching a device or running an op."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    import pyarrow as pa  # noqa: F401

    from tfos_lab.core.lazy_imports import lazy_parts_of_keras

    with lazy_parts_of_keras():
        import tensorflow as tf

        # TensorFlow loads these lazily: load them once, in the fork server.
        for name in ("data", "distribute", "io", "nn", "optimizers", "summary", "train"):
            getattr(tf, name, None)
        legacy = os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")
        with contextlib.suppress(ImportError):  # Keras is optional
            if legacy:
                import tf_keras  # noqa: F401
            else:
                import keras  # noqa: F401
    from tfos_lab.node.keras.workers import patch_keras

    patch_keras()
    from tfos_lab.node.remote_files import register_file_systems

    register_file_systems()
    _import(_OF_CHILDREN)


def _import(modules: tuple[str, ...]) -> None:
    for name in modules:
        importlib.import_module(f"tfos_lab.{name}")


def _run_target(request: SpawnRequest, fds: list[int], parent: int) -> int:
    if request.target == "tensorboard":
        die_with_parent(parent)  # a child is ended by its agent, with all that it has started
    if request.state is not None:
        request.state.apply()
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    try:
        run: Target = importlib.import_module(_TARGETS[request.target]).run
        return run(request.body, fds)
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except BaseException:  # noqa: BLE001 - the last frame of a process: report whatever it was
        traceback.print_exc()
        return 1
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
