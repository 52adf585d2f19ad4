"""The client of fork servers: `ForkServerSpec` says which one is meant, and starts it where it does not run yet.

Sockets are in a folder that only the user can open: ``<tmp>/tfos_lab-<uid>/<owner>/<kind>-<import environment>.sock``,
where owner and import environment are hashes. A fork server that is stopped, or has not answered for a minute, is
killed, and another one starts.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

import msgspec

from tfos_lab.core.frames import FrameSocket, peer_of
from tfos_lab.core.runtime_files import package_root, scratch_root, spool_root
from tfos_lab.node.forkserver.health import SILENT, STOPPED, STOPPED_S, ServerRecord, is_stopped, kill
from tfos_lab.node.forkserver.requests import (
    FailedReply,
    ForkServerReply,
    ForkServerRequest,
    ProcessState,
    SpawnRequest,
)

# Owners that begin with this are a user's: their fork servers outlive kernels.
USER_OWNER = "user-"
_START_TIMEOUT_S = 20.0
_REPLY_TURN_S = 1.0

logger = logging.getLogger(__name__)
_reply_decoder = msgspec.msgpack.Decoder(ForkServerReply)


class ForkServerUnavailable(OSError):
    """The fork server could not be started, or has ended."""


class ForkServerConnection:
    """A connection to a fork server: asks for at most one process, which is ended when the connection closes.

    ``asked_s`` is when the fork server was asked what it has not answered yet (``time.monotonic``); 0 if it has.
    """

    def __init__(self, frames: FrameSocket, server_pid: int) -> None:
        self._frames = frames
        self.server_pid = server_pid
        self.asked_s = 0.0

    @classmethod
    def open(cls, path: Path) -> Self | None:
        """Connect to the socket of a fork server; returns None if nobody listens there."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            sock.close()
            return None
        return cls(FrameSocket(sock), peer_of(sock))

    def fileno(self) -> int:
        """Return the file descriptor, for poll loops."""
        return self._frames.fileno()

    def ask(self, request: ForkServerRequest, fds: Sequence[int] = ()) -> None:
        """Send a request, and descriptors for the process that it asks for."""
        self.asked_s = time.monotonic()
        self._frames.send(msgspec.msgpack.encode(request), list(fds))

    def replies(self, wait_s: float = 0.0) -> list[ForkServerReply]:
        """Return the replies that are here or arrive within ``wait_s`` seconds.

        Raises ConnectionError if the fork server has ended.
        """
        replies = [_reply_decoder.decode(frame.data) for frame in self._frames.available(wait_s)]
        if replies:
            self.asked_s = 0.0
        return replies

    def close(self) -> None:
        """Close the connection, which ends the process unless it is kept; may be called twice."""
        self._frames.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@dataclass(frozen=True)
class ForkServerSpec:
    """Which fork server to use, and all that it takes to start it."""

    # The notebook kernel or Spark application that it serves, or the user (beginning with ``USER_OWNER``).
    owner: str
    # What it has imported.
    kind: Literal["plain", "tensorflow"]
    # The environment of the processes that it forks; does not distinguish one fork server from another.
    environ: Mapping[str, str]
    # The process (the kernel, or the executor's JVM) that uses it, and without which it ends if it is not a user's.
    watched_pid: int
    # The variables that TensorFlow is imported with; they do distinguish fork servers.
    import_environ: Mapping[str, str] = field(default_factory=dict)
    # Called with a sentence where a fork server is replaced.
    tell: Callable[[str], None] = field(default=logger.warning, compare=False)

    @classmethod
    def plain(cls, owner: str, environ: Mapping[str, str], watched_pid: int) -> Self:
        """Return the fork server that agents and TensorBoard are forked from."""
        started_with = _chosen(environ, _PYTHON_PREFIXES) if owner.startswith(USER_OWNER) else {}
        return cls(owner, "plain", environ, watched_pid, started_with)

    @classmethod
    def tensorflow(cls, owner: str, environ: Mapping[str, str], watched_pid: int, extra_env: Mapping[str, str]) -> Self:
        """Return the fork server that children with these additional variables are forked from."""
        started_with = {**_chosen(environ, _IMPORT_TIME_PREFIXES), **extra_env}
        if owner.startswith(USER_OWNER):
            started_with = {**_chosen(environ, (*_PYTHON_PREFIXES, *_LIBRARY_PREFIXES)), **started_with}
        return cls(owner, "tensorflow", environ, watched_pid, dict(sorted(started_with.items())))

    @property
    def outlives(self) -> bool:
        """Whether it outlives the kernels that use it."""
        return self.owner.startswith(USER_OWNER)

    @property
    def socket_path(self) -> Path:
        """Where it listens."""
        text = msgspec.json.encode([sys.executable, str(package_root()), sorted(self.import_environ.items())])
        name = self.owner if self.outlives else hashlib.sha256(self.owner.encode()).hexdigest()[:12]
        folder = scratch_root() / name
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder / f"{self.kind}-{hashlib.sha256(text).hexdigest()[:12]}.sock"

    @property
    def log_path(self) -> Path:
        """Where its own output goes: beside its socket, or to the disks of the container."""
        path = self.socket_path
        folder = spool_root() / path.parent.name
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder / path.with_suffix(".log").name

    def connect(self) -> ForkServerConnection:
        """Return a connection to the fork server, which may still be importing; start it first if need be.

        One that is stopped is replaced. Raises ForkServerUnavailable if it cannot be started.
        """
        path = self.socket_path
        status, deadline = 0, time.monotonic() + _START_TIMEOUT_S
        while status == 0 and time.monotonic() < deadline:
            connection = ForkServerConnection.open(path)
            if connection is None:
                status = self._start(path)
            elif not is_stopped(connection.server_pid):
                return connection
            else:
                connection.close()
                self._replace(connection.server_pid, STOPPED)
        log = self.log_path
        tail = log.read_text(errors="replace")[-600:] if log.exists() else ""
        how = f"ended with status {status}" if status else f"did not start within {_START_TIMEOUT_S:g} s"
        raise ForkServerUnavailable(f"the fork server {how}; its log {log} ends: {tail}")

    def replace_if_stuck(self, connection: ForkServerConnection) -> None:
        """Kill a fork server that is stopped, or has not answered for a minute; its connections then close."""
        if not connection.asked_s or time.monotonic() - connection.asked_s < STOPPED_S:
            return
        record = ServerRecord.read(self.socket_path)
        if is_stopped(connection.server_pid):
            self._replace(connection.server_pid, STOPPED)
        elif record is not None and record.hangs(connection.asked_s):
            self._replace(connection.server_pid, SILENT)

    def _replace(self, pid: int, symptom: str) -> None:
        """Kill a fork server that is of no use any more, and say so."""
        which = "TensorFlow's" if self.kind == "tensorflow" else "the agents'"
        self.tell(f"{which} fork server (process {pid}) {symptom}: it has been replaced by another one")
        kill(pid)

    def spawn(
        self,
        target: str,
        body: bytes = b"",
        fds: Sequence[int] = (),
        *,
        environ: Mapping[str, str] | None = None,
        cwd: str = "",
    ) -> ForkServerConnection:
        """Ask for a process, and return the connection that holds it; see `SpawnRequest`.

        The process has the umask, limits and CPUs of the caller, and its folder and this specification's environment
        unless others are given. Raises ForkServerUnavailable if the fork server cannot be started, or ends meanwhile.
        """
        connection = self.connect()
        state = ProcessState.of_this_process(self.environ if environ is None else environ, cwd)
        try:
            connection.ask(SpawnRequest(target, body, self.watched_pid, state), fds)
        except OSError as error:
            connection.close()
            raise ForkServerUnavailable("the fork server ended before it could fork a process") from error
        return connection

    def warm(self) -> None:
        """Start the fork server and give it its watched process, without waiting for its imports."""
        with self.connect() as connection, contextlib.suppress(ConnectionError):
            connection.ask(SpawnRequest("", watched_pid=self.watched_pid))

    def wait_until_warm(self) -> None:
        """Start the fork server, and wait until it has imported everything.

        Raises ForkServerUnavailable if it cannot be started, cannot import, or ends meanwhile.
        """
        with self.connect() as connection:
            connection.ask(SpawnRequest(""))
            try:
                while not (replies := connection.replies(wait_s=_REPLY_TURN_S)):
                    self.replace_if_stuck(connection)
            except OSError as error:
                raise ForkServerUnavailable("the fork server ended before it was warm") from error
        if isinstance(replies[0], FailedReply):
            raise ForkServerUnavailable(f"the fork server cannot import what nodes need: {replies[0].reason}")

    def _start(self, path: Path) -> int:
        """Start the server process; returns 0 once it listens, or has found another one that does, or is about to."""
        server = "from tfos_lab.node.forkserver.main import main; main()"
        code = f"import sys; sys.path.insert(0, {str(package_root())!r}); {server}"
        environ = {"PATH": self.environ.get("PATH", os.defpath)} if self.outlives else self.environ
        started_with = {**environ, **self.import_environ}
        options = ["--outlives"] if self.outlives else []
        with self.log_path.open("ab") as log:
            return subprocess.run(
                [sys.executable, "-c", code, "--kind", self.kind, "--socket", str(path), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={key: value for key, value in started_with.items() if key not in NEVER},
                cwd=str(scratch_root()),
                start_new_session=True,
                check=False,
            ).returncode


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
# A fork server that outlives its kernel is started with these and ``PATH`` alone: it holds nothing else of that kernel.
_PYTHON_PREFIXES = ("PYTHON", "LD_", "LANG", "LC_", "TZ", "HOME", "TMPDIR", "LOCAL_DIRS", "MALLOC_", "GLIBC_TUNABLES")
_LIBRARY_PREFIXES = ("TF2_", "CUDA_", "NVIDIA_", "KMP_", "GOMP_", "NPY_", "NUMEXPR_", "ARROW_", "ABSL_", "AUTOGRAPH_")
# Differs from node to node, so it must not choose the fork server.
NEVER = ("TF_CONFIG",)
# TensorFlow, and scikit-learn where Keras imports it, set these while they are imported. A kernel that has imported
# them needs no other fork server than before: that one has imported them, too.
_SET_BY_IMPORTS = {"TF2_BEHAVIOR": "1", "KMP_INIT_AT_FORK": "FALSE", "KMP_DUPLICATE_LIB_OK": "True"}


def _chosen(environ: Mapping[str, str], prefixes: tuple[str, ...]) -> dict[str, str]:
    return {
        key: value
        for key, value in sorted(environ.items())
        if key.startswith(prefixes) and key not in NEVER and _SET_BY_IMPORTS.get(key) != value
    }
