"""TensorBoard of a run, or of a folder of event files, for as long as this process lives.

The Jupyter server asks for pages at a unix socket, in a folder that only the user can open. Where no Jupyter server
shows them, a browser on this machine asks at a port of 127.0.0.1. All users of the machine can reach a port, so the
first part of the path is a random token there; requests without it get a 404 and nothing else. Both are served by the
loop of all connections, so that pages come while the kernel's main thread is busy.

TensorBoard itself is a process that is started for the first request and shows the event files: nodes write them to a
folder that this machine sees, or what they write is brought here as it grows. If there is nothing to show, the response
is a page with a sentence, never a blank one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import msgspec
from tornado import web
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets, bind_unix_socket

from tfos_lab.core import cluster_records
from tfos_lab.core.event_loop import join_loop, leave_loop
from tfos_lab.core.frames import FrameSocket, frame_pair
from tfos_lab.core.runtime_files import scratch_root
from tfos_lab.driver.tensorboard.pages import NO_DATA_YET, UNAVAILABLE, send_cors_headers, send_message, send_page
from tfos_lab.launchers.this_machine import kernel_environ, kernel_owner
from tfos_lab.node.forkserver.client import ForkServerConnection, ForkServerSpec
from tfos_lab.node.forkserver.requests import ExitedReply, FailedReply
from tfos_lab.node.tensorboard import TensorBoardSpec

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
START_TIMEOUT_S = 30.0
# The first page may have to wait until a TensorBoard has been started on this machine.
_TRY_TIMEOUT_S = 60.0
# A TensorBoard that nobody asks is ended after this time, and started again for the next request.
IDLE_S = 900.0
_EXIT_REASON_S = 5.0
# Requests of TensorBoard's pages are small.
_MAX_BODY_BYTES = 1 << 20


class TensorBoardServer:
    """Serves TensorBoard at a unix socket; ``find_log_dir`` returns the folder with the event files, as of now."""

    def __init__(self, find_log_dir: Callable[[], str], cluster_ended: Callable[[], bool] = lambda: True) -> None:
        self._find_log_dir = find_log_dir
        self._cluster_ended = cluster_ended
        self._local = LocalTensorBoard()
        self._requests = 0
        self._servers: list[HTTPServer] = []
        self._link = ""
        self._link_lock = threading.Lock()
        _remove_sockets_of_dead_processes()
        # Short, since the path of a unix socket has 108 bytes at most.
        self._path = scratch_root() / f"unix_server-{os.getpid()}-{secrets.token_hex(6)}.sock"
        self._events = join_loop(self)
        try:
            self._events.wait_for(self._listen(bind_unix_socket(str(self._path)), ""))
        except BaseException:
            leave_loop(self)
            raise

    async def _listen(self, sock: socket.socket, token: str) -> None:
        handler = (r".*", _Handler, {"server": self, "token": token})
        # Tornado's log lines of requests would show the token.
        application = web.Application([handler], log_function=lambda _handler: None)
        server = HTTPServer(application, max_body_size=_MAX_BODY_BYTES)
        server.add_socket(sock)
        self._servers.append(server)

    @property
    def socket(self) -> str:
        """The path of the unix socket."""
        return str(self._path)

    def link(self) -> str | None:
        """Return a tested address for browsers on this machine; opens a port when it is first called.

        Returns None, and logs a warning, if no port can be opened.
        """
        with self._link_lock:
            if not self._link:
                token = secrets.token_hex(32)
                try:
                    [sock] = bind_sockets(0, HOST)
                    port = sock.getsockname()[1]
                    self._events.wait_for(self._listen(sock, token))
                    _try(port, token)
                except OSError as error:
                    logger.warning("there is no link to TensorBoard: %s", error)
                    return None
                self._link = f"http://{HOST}:{port}/{token}/"
            return self._link

    def close(self) -> None:
        """Close socket and port, and end the TensorBoard on this machine; may be called twice."""
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            for server in self._servers:
                self._events.loop.call_soon_threadsafe(server.stop)
        leave_loop(self)
        self._local.close()

    async def find(self, handler: web.RequestHandler) -> str | None:
        """Return the socket of a TensorBoard that shows the event files; where there is none, respond why."""
        log_dir = self._find_log_dir()
        if "://" not in log_dir and not _has_files(Path(log_dir)):
            if self._cluster_ended():
                send_message(handler, UNAVAILABLE, f"There are no event files in {log_dir}.")
            else:
                send_message(handler, UNAVAILABLE, NO_DATA_YET, retry=True)
            return None
        self._requests += 1
        asyncio.get_running_loop().call_later(IDLE_S, self._end_if_idle, self._requests)
        try:
            return await asyncio.wait_for(asyncio.to_thread(self._local.socket, log_dir), START_TIMEOUT_S)
        except OSError as error:
            reason = str(error) or f"it did not serve within {START_TIMEOUT_S:g} s"
            logger.warning("no TensorBoard for %s: %s", log_dir, reason)
            send_message(handler, UNAVAILABLE, f"TensorBoard could not be started on this machine: {reason}.")
            return None

    def _end_if_idle(self, requests: int) -> None:
        if self._requests == requests:
            self._local.close()


class _Handler(web.RequestHandler):
    """Responds with TensorBoard's pages; at the port, to those who know the token."""

    def initialize(self, server: TensorBoardServer, token: str) -> None:
        """Store what is served, and the token, which is "" at the unix socket."""
        self._server, self._token = server, token

    def prepare(self) -> None:
        """Check the token before anything else."""
        given = self.request.path.removeprefix("/").partition("/")[0]
        if self._token and not hmac.compare_digest(given.encode(), self._token.encode()):
            send_message(self, 404, "There is nothing here.")

    def compute_etag(self) -> str | None:
        """Return none: TensorBoard's own is passed on."""
        return None

    async def options(self) -> None:
        """Allow the sandboxed page's requests."""
        send_cors_headers(self)

    async def _pass_on(self) -> None:
        # The path as it was sent, still quoted.
        path = self.request.path.removeprefix(f"/{self._token}") if self._token else self.request.path
        if not path:
            self.redirect(f"/{self._token}/")
        elif (found := await self._server.find(self)) is not None:
            await send_page(self, found, path)

    # TensorBoard's pages request much of their data by POST.
    get = head = post = _pass_on

    def write_error(self, status_code: int, **_: Any) -> None:
        """Send a page with one sentence."""
        send_message(
            self, status_code, "This cannot be asked here." if status_code < 500 else "Something went wrong here."
        )


def _try(port: int, token: str) -> None:
    """Request the first page, as a browser will."""
    connection = HTTPConnection(HOST, port, timeout=_TRY_TIMEOUT_S)
    try:
        connection.request("GET", f"/{token}/")
        connection.getresponse()
    except HTTPException as error:
        raise ConnectionError(f"no answer at port {port}: {error}") from error
    finally:
        connection.close()


def _remove_sockets_of_dead_processes() -> None:
    for kind in ("unix_server", "tensorboard"):
        for path in scratch_root().glob(f"{kind}-*.sock"):
            pid = path.name.split("-")[1]
            if pid.isdigit() and not cluster_records.birth_of(int(pid)):
                path.unlink(missing_ok=True)


def _has_files(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except OSError:
        return False


class LocalTensorBoard:
    """A TensorBoard process, forked when its socket is first asked for; it ends with the connection that asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._log_dir = ""
        self._process: ForkServerConnection | None = None
        self._path = Path()
        self._count = 0

    def socket(self, log_dir: str) -> str:
        """Return the socket of a TensorBoard that serves ``log_dir``; start one if need be, or raise OSError."""
        with self._lock:
            if log_dir != self._log_dir or not _takes_connections(self._path):
                self._stop()
            self._log_dir = log_dir
            if self._process is None:
                self._start()
            return str(self._path)

    def _start(self) -> None:
        self._count += 1
        self._path = scratch_root() / f"tensorboard-{os.getpid()}-{id(self):x}-{self._count}.sock"
        fork_server = ForkServerSpec.plain(kernel_owner(), kernel_environ(), os.getpid())
        body = msgspec.msgpack.encode(TensorBoardSpec(log_dir=self._log_dir, socket=str(self._path)))
        report, process_end = frame_pair()
        with report:
            with process_end:
                self._process = fork_server.spawn("tensorboard", body, [process_end.fileno()])
            failure = _failure_to_start(report, self._process)
        if failure:
            self._stop()
            raise OSError(failure)

    def _stop(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """End the process; may be called twice."""
        with self._lock:
            self._stop()


def _takes_connections(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        probe.connect(str(path))
        return True
    return False


def _failure_to_start(report: FrameSocket, process: ForkServerConnection) -> str:
    """Wait until a process serves; return "", or the reason why it cannot, which its fork server may know."""
    with contextlib.suppress(OSError):
        return report.receive().data.decode(errors="replace")
    until = time.monotonic() + _EXIT_REASON_S
    while (left := until - time.monotonic()) > 0:
        try:
            replies = process.replies(left)
        except OSError:
            return "the process that it was forked from has ended"
        for reply in replies:
            match reply:
                case FailedReply(reason=reason):
                    return reason
                case ExitedReply(code=code):
                    return f"its process ended with code {code}"
    return "it ended before it served"
