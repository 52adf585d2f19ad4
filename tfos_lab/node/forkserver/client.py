"""The client of fork servers: `ForkServerSpec` says which one is meant, and starts it where it does not run yet.

Sockets are in a folder that only the user can open: ``<tmp>/tfos_lab-<uid>/<owner>/<kind>-<import environment>.sock``,
where owner and import environment are hashes.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

import msgspec

from tfos_lab.core.runtime_files import package_root, scratch_root
from tfos_lab.node.forkserver.requests import ForkServerReply, ForkServerRequest, KeepRequest, SpawnRequest
from tfos_lab.transport.frames import ConnectionClosed, FrameSocket

# Prefixes of variables that TensorFlow, Keras or the dynamic loader read while they are imported. A node with other
# values needs another fork server.
_IMPORT_TIME_PREFIXES = (
    "TF_",
    "KERAS_",
    "XLA_",
    "CUDA_HOME",
    "CUDA_PATH",
    "LD_",
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "NCCL_",
    "GRPC_",
    "PROTOCOL_BUFFERS_",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONHASHSEED",
    "PYTHONOPTIMIZE",
)
# Differs from node to node, so it must not choose the fork server.
_NEVER = ("TF_CONFIG",)
_START_TIMEOUT_S = 20.0

_reply_decoder = msgspec.msgpack.Decoder(ForkServerReply)


class ForkServerUnavailable(OSError):
    """The fork server could not be started, or has ended."""


class ForkServerConnection:
    """A connection to a fork server: asks for at most one process, which is ended when the connection closes."""

    def __init__(self, frames: FrameSocket) -> None:
        self._frames = frames

    @classmethod
    def open(cls, path: Path) -> Self | None:
        """Connect to the socket of a fork server; returns None if nobody listens there."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            sock.close()
            return None
        return cls(FrameSocket(sock))

    def fileno(self) -> int:
        """Return the file descriptor, for poll loops."""
        return self._frames.fileno()

    def spawn(self, target: str, body: bytes, fds: Sequence[int] = (), *, watched_pid: int = 0) -> None:
        """Ask for a process; see `SpawnRequest`."""
        self._send(SpawnRequest(target, body, watched_pid), fds)

    def ask_if_warm(self, *, watched_pid: int = 0) -> None:
        """Ask for a reply as soon as everything is imported, and add a watched process."""
        self._send(SpawnRequest(target="", watched_pid=watched_pid))

    def keep(self) -> None:
        """Let the process outlive this connection."""
        self._send(KeepRequest())

    def _send(self, request: ForkServerRequest, fds: Sequence[int] = ()) -> None:
        self._frames.send(msgspec.msgpack.encode(request), list(fds))

    def replies(self, wait_s: float = 0.0) -> list[ForkServerReply]:
        """Return the replies that are here or arrive within ``wait_s`` seconds.

        Raises
        ------
        ConnectionClosed
            If the fork server has ended.
        """
        return [_reply_decoder.decode(frame.data) for frame in self._frames.available(wait_s)]

    def close(self) -> None:
        """Close the connection, which ends the process unless it is kept; may be called twice."""
        self._frames.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@dataclass(frozen=True)
class ForkServerSpec:
    """Which fork server to use, and all that it takes to start it.

    Attributes
    ----------
    owner : str
        The notebook kernel or Spark application that it serves.
    kind : {"plain", "tensorflow"}
        What it has imported.
    environ : mapping of str to str
        The environment that it is started with; does not distinguish one fork server from another.
    watched_pid : int
        A process (the kernel, or the executor's JVM) without which the fork server ends.
    import_environ : mapping of str to str
        The variables that TensorFlow is imported with; they do distinguish fork servers.
    """

    owner: str
    kind: Literal["plain", "tensorflow"]
    environ: Mapping[str, str]
    watched_pid: int
    import_environ: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def plain(cls, owner: str, environ: Mapping[str, str], watched_pid: int) -> Self:
        """Return the fork server that agents and TensorBoard are forked from."""
        return cls(owner, "plain", environ, watched_pid)

    @classmethod
    def tensorflow(cls, owner: str, environ: Mapping[str, str], watched_pid: int, extra_env: Mapping[str, str]) -> Self:
        """Return the fork server that children with these additional variables are forked from."""
        return cls(owner, "tensorflow", environ, watched_pid, import_environ_of(environ, extra_env))

    @property
    def socket_path(self) -> Path:
        """Where it listens."""
        text = msgspec.json.encode([sys.executable, str(package_root()), sorted(self.import_environ.items())])
        folder = scratch_root() / hashlib.sha256(self.owner.encode()).hexdigest()[:12]
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder / f"{self.kind}-{hashlib.sha256(text).hexdigest()[:12]}.sock"

    @property
    def log_path(self) -> Path:
        """Where its own output goes."""
        return self.socket_path.with_suffix(".log")

    def connect(self) -> ForkServerConnection:
        """Return a connection to the fork server, which may still be importing; start it first if need be.

        Raises
        ------
        ForkServerUnavailable
            If it cannot be started.
        """
        path = self.socket_path
        if (connection := ForkServerConnection.open(path)) is not None:
            return connection
        status = self._start(path)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while status == 0 and time.monotonic() < deadline:
            if (connection := ForkServerConnection.open(path)) is not None:
                return connection
            time.sleep(0.005)  # another process won the race to start it, and is about to listen
        log = self.log_path
        tail = log.read_text(errors="replace")[-600:] if log.exists() else ""
        how = f"ended with status {status}" if status else f"did not start within {_START_TIMEOUT_S:g} s"
        raise ForkServerUnavailable(f"the fork server {how}; its log {log} ends: {tail}")

    def spawn(self, target: str, body: bytes, fds: Sequence[int] = ()) -> ForkServerConnection:
        """Ask for a process, and return the connection that holds it; see `SpawnRequest`.

        Raises
        ------
        ForkServerUnavailable
            If the fork server cannot be started, or ends meanwhile.
        """
        connection = self.connect()
        try:
            connection.spawn(target, body, fds, watched_pid=self.watched_pid)
        except (ConnectionClosed, OSError) as error:
            connection.close()
            raise ForkServerUnavailable("the fork server ended before it could fork a process") from error
        return connection

    def warm(self) -> None:
        """Start the fork server and give it its watched process, without waiting for its imports."""
        with self.connect() as connection, contextlib.suppress(ConnectionClosed):
            connection.ask_if_warm(watched_pid=self.watched_pid)

    def _start(self, path: Path) -> int:
        """Start the server process; returns 0 once it listens, or has found another one that does."""
        server = "from tfos_lab.node.forkserver.main import main; main()"
        code = f"import sys; sys.path.insert(0, {str(package_root())!r}); {server}"
        environ = {**self.environ, **self.import_environ}
        with self.log_path.open("ab") as log:
            return subprocess.run(
                [sys.executable, "-c", code, "--kind", self.kind, "--socket", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={key: value for key, value in environ.items() if key not in _NEVER},
                cwd=str(path.parent),
                start_new_session=True,
                check=False,
            ).returncode


def import_environ_of(environ: Mapping[str, str], extra_env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that must be set before TensorFlow is imported; all of ``extra_env`` counts."""
    chosen = {
        key: value for key, value in environ.items() if key.startswith(_IMPORT_TIME_PREFIXES) and key not in _NEVER
    }
    return dict(sorted({**chosen, **extra_env}.items()))
