"""A TensorBoard process beside a log folder, forked from a plain fork server and ended with its connection.

It listens on a unix socket in the user's own folder and on no port, so that nobody else on the host can reach it, and
it needs no TensorFlow. Who asked for it hears one frame: nothing when it serves, or else why it cannot.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import types
from pathlib import Path
from typing import Any

import msgspec

from tfos_lab.core.processes import set_process_name
from tfos_lab.node.forkserver import client
from tfos_lab.node.forkserver.requests import ExitedReply, FailedReply, SpawnRequest, TensorBoardSpec
from tfos_lab.transport.frames import ConnectionClosed, FrameSocket, frame_pair

# New event files are looked for so often.
RELOAD_S = 3
# Training comes first.
_NICENESS = 5
_REASON_S = 5.0


class TensorBoardProcess:
    """The hold that an agent, or the kernel, has on a TensorBoard process.

    Parameters
    ----------
    fork server : tuple
        Owner, kind, mode, environment and watched process of the fork server to fork it from.
    log_dir, socket_path, cwd : str
        See `TensorBoardSpec`.
    """

    def __init__(
        self,
        fork_server: tuple[str, str, dict[str, str], dict[str, str], int],
        log_dir: str,
        socket_path: str,
        cwd: str,
    ) -> None:
        self._path = socket_path
        self.fork_server = client.connect(*fork_server[:4])
        self.words, theirs = frame_pair()
        body = msgspec.msgpack.encode(TensorBoardSpec(log_dir=log_dir, socket=socket_path, cwd=cwd))
        try:
            self.fork_server.send(
                msgspec.msgpack.encode(SpawnRequest("tensorboard", body, fork_server[4])), [theirs.fileno()]
            )
        finally:
            theirs.close()

    def word(self) -> str:
        """Wait for its first word and return it: empty when it serves, or why it cannot."""
        try:
            return self.words.receive()[0].decode(errors="replace")
        except (ConnectionClosed, OSError):
            return self._why_it_ended()

    def _why_it_ended(self) -> str:
        """Wait for its fork server, which says so a moment after the end."""
        until = time.monotonic() + _REASON_S
        while (left := until - time.monotonic()) > 0:
            if reason := self.end(left):
                return reason
        return "it ended before it served"

    def end(self, wait_s: float = 0.0) -> str | None:
        """Read the fork server's replies, waiting up to ``wait_s``; return why the process is gone, if it is."""
        try:
            replies = [client.reply_decoder.decode(data) for data, _ in self.fork_server.available(wait_s)]
        except (ConnectionClosed, OSError):
            return "the process that it was forked from has ended"
        for reply in replies:
            match reply:
                case FailedReply(reason=reason):
                    return reason
                case ExitedReply(code=code):
                    return f"its process ended with code {code}"
                case _:
                    pass
        return None

    def close(self) -> None:
        """End the process; may be called twice."""
        self.fork_server.close()
        self.words.close()
        Path(self._path).unlink(missing_ok=True)


def run(body: bytes, fds: list[int]) -> int:
    """Entry point in the forked process: ``body`` is a `TensorBoardSpec`, ``fds`` the socket for its one word."""
    spec = msgspec.msgpack.decode(body, type=TensorBoardSpec)
    set_process_name("tfos tensorboard")
    # The fork server has a session of its own, so ■ does not come here; whoever signals the whole family may.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    words = FrameSocket(socket.socket(fileno=fds[0]))
    try:
        os.chdir(spec.cwd)
        server = _make_server(spec)
    except Exception as error:
        words.send(_reason(error).encode())
        raise
    words.send(b"")
    server.serve_forever()
    return 0


def _reason(error: Exception) -> str:
    if isinstance(error, ImportError):
        return f"the package tensorboard cannot be imported there ({error})"
    return f"{type(error).__name__}: {error}"


def _make_server(spec: TensorBoardSpec) -> Any:
    """Return TensorBoard's own application, served on the unix socket."""
    # TensorBoard asks for this module to learn that it is to do without TensorFlow, whose import takes seconds.
    sys.modules.setdefault("tensorboard.compat.notf", types.ModuleType("tensorboard.compat.notf"))
    from tensorboard import default, program
    from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

    class QuietHandler(WSGIRequestHandler):
        """Answers, and says nothing of it."""

        protocol_version = "HTTP/1.1"

        def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - werkzeug's own name
            """A line for each request is of use to nobody."""

    class UnixServer(ThreadedWSGIServer):
        """TensorBoard's server, without a port."""

        daemon_threads = True

        def __init__(self, application: Any, _flags: Any) -> None:
            super().__init__(f"unix://{spec.socket}", 0, application, QuietHandler)

    # Its quicker loader is a process with an open port, which every user of the host could read.
    options = ("--logdir", spec.log_dir, "--load_fast", "false", "--reload_interval", str(RELOAD_S))
    tensorboard = program.TensorBoard(plugins=default.get_plugins(), server_class=UnixServer)
    tensorboard.configure(("tensorboard", *options))
    return tensorboard._make_server()  # noqa: SLF001 - `main` would also leave a note for other TensorBoards in /tmp
