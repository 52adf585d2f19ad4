"""A TensorBoard process, forked from a plain fork server and ended with the connection that asked for it.

It listens on a unix socket in the user's own folder and on no port, so that no other user of the host can reach it, and
it needs no TensorFlow. It reports its start in one frame: empty when it serves, or the reason why it cannot.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import signal
import socket
import sys
import types
from typing import TYPE_CHECKING

import msgspec

from tfos_lab.core.frames import FrameSocket
from tfos_lab.core.paths import is_local, split_scheme
from tfos_lab.core.processes import set_process_name

if TYPE_CHECKING:
    import argparse
    from wsgiref.types import WSGIApplication

    from tensorboard.program import TensorBoardServer

    from tfos_lab.gfile import Store

# How often it looks for new event files.
RELOAD_S = 3
# Training has priority.
_NICENESS = 5


class TensorBoardSpec(msgspec.Struct, frozen=True):
    """What the process needs: the folder with the event files, or its address, and the unix socket to listen on."""

    log_dir: str
    socket: str


def run(body: bytes, fds: list[int]) -> int:
    """Entry point in the forked process: ``body`` is a `TensorBoardSpec`, ``fds`` the socket for the start report."""
    spec = msgspec.msgpack.decode(body, type=TensorBoardSpec)
    set_process_name("tfos tensorboard")
    # An interrupt in the notebook may be sent to all of the kernel's descendants: it is not meant for TensorBoard.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    start_report = FrameSocket(socket.socket(fileno=fds[0]))
    try:
        server = _make_server(spec)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, ImportError):
            reason = f"the package tensorboard cannot be imported there ({error})"
        start_report.send(reason.encode())
        raise
    start_report.send(b"")
    server.serve_forever()
    return 0


def _stand_in_for_pkg_resources() -> None:
    """Give TensorBoard before 2.21, which TensorFlow before 2.21 wants, what setuptools no longer has."""
    if importlib.util.find_spec("pkg_resources") is None:
        stub = types.ModuleType("pkg_resources")
        stub.iter_entry_points = lambda group: [  # type: ignore[attr-defined]
            types.SimpleNamespace(resolve=entry.load) for entry in importlib.metadata.entry_points(group=group)
        ]
        sys.modules["pkg_resources"] = stub


class _RemoteFiles:
    """Reads remote addresses, with the methods that TensorBoard's own stand-in for ``tf.io.gfile`` calls."""

    def _opened(self, address: str | bytes) -> tuple[Store, str]:
        from tfos_lab.gfile import store_of

        return store_of(os.fsdecode(address))

    def join(self, path: str, *paths: str) -> str:
        return "/".join((path.rstrip("/"), *paths))

    def exists(self, filename: str | bytes) -> bool:
        store, path = self._opened(filename)
        return store.kind(path) != ""

    def isdir(self, dirname: str | bytes) -> bool:
        store, path = self._opened(dirname)
        return store.kind(path) == "directory"

    def listdir(self, dirname: str | bytes) -> list[str]:
        store, path = self._opened(dirname)
        return store.children(path)

    def glob(self, pattern: str | bytes) -> list[str]:
        scheme, host, _ = split_scheme(os.fsdecode(pattern))
        store, path = self._opened(pattern)
        return [f"{scheme}://{host}{found}" for found in store.matching(path)]

    def stat(self, filename: str | bytes) -> types.SimpleNamespace:
        store, path = self._opened(filename)
        return types.SimpleNamespace(length=store.info(path).size or 0)

    def read(
        self, filename: str | bytes, binary_mode: object, size: int | None = None, continue_from: int | None = None
    ) -> tuple[bytes | str, int]:
        """Return what follows, and where to go on."""
        store, path = self._opened(filename)
        offset, reader = continue_from or 0, store.reader(path)
        try:
            data, begin, length = reader.read(offset, (store.info(path).size or 0) if size is None else size)
        finally:
            reader.close()
        found = bytes(data[begin : begin + length])
        return found if binary_mode else found.decode(), offset + length


def _make_server(spec: TensorBoardSpec) -> TensorBoardServer:
    """Return TensorBoard's server for the unix socket."""
    # TensorBoard does without TensorFlow, whose import takes seconds, if it can import this module.
    sys.modules.setdefault("tensorboard.compat.notf", types.ModuleType("tensorboard.compat.notf"))
    _stand_in_for_pkg_resources()
    from tensorboard import default, program
    from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

    class QuietHandler(WSGIRequestHandler):
        """Logs no requests."""

        protocol_version = "HTTP/1.1"

        def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002 - werkzeug's own name
            """Log nothing."""

    class UnixWSGIServer(ThreadedWSGIServer):
        """TensorBoard's server on a unix socket."""

        daemon_threads = True

        def __init__(self, application: WSGIApplication, _flags: argparse.Namespace) -> None:
            super().__init__(f"unix://{spec.socket}", 0, application, QuietHandler)

    if not is_local(spec.log_dir):
        from tensorboard.compat.tensorflow_stub.io import gfile

        gfile.register_filesystem(split_scheme(spec.log_dir)[0], _RemoteFiles())
    # Its fast loader is a process with an open port, which every user of the host could read.
    options = ("--logdir", spec.log_dir, "--load_fast", "false", "--reload_interval", str(RELOAD_S))
    tensorboard = program.TensorBoard(plugins=default.get_plugins(), server_class=UnixWSGIServer)
    tensorboard.configure(("tensorboard", *options))
    return tensorboard._make_server()  # noqa: SLF001 - `main` would also register this TensorBoard in /tmp
