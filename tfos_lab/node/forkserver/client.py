"""How to reach a fork server, starting it where it is not there yet.

Sockets lie in a folder that only the user can open: ``<tmp>/tfos_lab-<uid>/<owner>/<kind>-<import_environ>.sock``.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tfos_lab.core.runtime_files import package_root, scratch_root
from tfos_lab.node.forkserver.requests import FailedReply, ForkServerReply, SpawnRequest
from tfos_lab.transport.frames import ConnectionClosed, FrameSocket

# Variables that TensorFlow, Keras or the dynamic loader read while they are imported: another value, another fork
# server.
_IMPORT_TIME = (
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
_NEVER = ("TF_CONFIG",)
_START_TIMEOUT_S = 20.0

reply_decoder = msgspec.msgpack.Decoder(ForkServerReply)


class ForkServerUnavailable(OSError):
    """The fork server could not be started, or could not import what it must."""


def import_environ_of(environ: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that must stand before TensorFlow is imported; ``extra`` ones all count."""
    chosen = {key: value for key, value in environ.items() if key.startswith(_IMPORT_TIME) and key not in _NEVER}
    return dict(sorted({**chosen, **extra}.items()))


def socket_path(owner: str, kind: str, import_environ: Mapping[str, str]) -> Path:
    """Return where the fork server of this owner, kind and mode listens."""
    text = msgspec.json.encode([sys.executable, str(package_root()), sorted(import_environ.items())])
    folder = scratch_root() / hashlib.sha256(owner.encode()).hexdigest()[:12]
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{kind}-{hashlib.sha256(text).hexdigest()[:12]}.sock"


def connect(owner: str, kind: str, import_environ: Mapping[str, str], environ: Mapping[str, str]) -> FrameSocket:
    """Return a connection to the fork server, which may still be importing; start it if it is not there."""
    path = socket_path(owner, kind, import_environ)
    frames = _try_connect(path)
    if frames is not None:
        return frames
    status = _start(path, kind, {**environ, **import_environ})
    deadline = time.monotonic() + _START_TIMEOUT_S
    while status == 0 and time.monotonic() < deadline:
        frames = _try_connect(path)
        if frames is not None:
            return frames
        time.sleep(0.005)  # another process won the race to start it, and is about to listen
    log = path.with_suffix(".log")
    tail = log.read_text(errors="replace")[-600:] if log.exists() else ""
    how = f"ended with status {status}" if status else f"did not start within {_START_TIMEOUT_S:g} s"
    raise ForkServerUnavailable(f"the fork server {how}; its log {log} ends: {tail}")


def warm(
    owner: str, kind: str, import_environ: Mapping[str, str], environ: Mapping[str, str], watched_pid: int
) -> None:
    """Start the fork server and give it its watched process, without waiting for its imports."""
    with connect(owner, kind, import_environ, environ) as frames, contextlib.suppress(ConnectionClosed):
        frames.send(msgspec.msgpack.encode(SpawnRequest(target="", watched_pid=watched_pid)))


def wait_until_warm(
    owner: str, kind: str, import_environ: Mapping[str, str], environ: Mapping[str, str], watched_pid: int
) -> None:
    """Start the fork server if needed and wait until it has imported everything.

    Raises
    ------
    ForkServerUnavailable
        If an import failed; says which.
    """
    with connect(owner, kind, import_environ, environ) as frames:
        frames.send(msgspec.msgpack.encode(SpawnRequest(target="", watched_pid=watched_pid)))
        reply = reply_decoder.decode(frames.receive()[0])
    if isinstance(reply, FailedReply):
        raise ForkServerUnavailable(reply.reason)


def _try_connect(path: Path) -> FrameSocket | None:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(str(path))
    except (FileNotFoundError, ConnectionRefusedError):
        sock.close()
        return None
    return FrameSocket(sock)


def _start(path: Path, kind: str, environ: Mapping[str, str]) -> int:
    """Start a fork server; returns the exit status once it listens (0), or has found another one that does (0)."""
    server = "from tfos_lab.node.forkserver.server import main; main()"
    code = f"import sys; sys.path.insert(0, {str(package_root())!r}); {server}"
    environ = {key: value for key, value in environ.items() if key not in _NEVER}
    with path.with_suffix(".log").open("ab") as log:
        return subprocess.run(
            [sys.executable, "-c", code, "--kind", kind, "--socket", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=dict(environ),
            cwd=str(path.parent),
            start_new_session=True,
            check=False,
        ).returncode
