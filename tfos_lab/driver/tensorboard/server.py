"""The unix socket to a run's TensorBoard, served for as long as this process lives.

The socket is in a folder that only the user can open. It is served by the loop of all connections, so that pages come
while the kernel's main thread is busy. Connections are relayed to a TensorBoard on this machine, which is started for
the first of them and shows the run's event files: nodes write them to a folder that this machine sees, or what they
write is brought here as it grows. If there is nothing to show, the response is a page with a sentence, never a blank
one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tfos_lab.core import cluster_records
from tfos_lab.core.event_loop import join_loop, leave_loop
from tfos_lab.core.frames import ConnectionClosed, FrameSocket, frame_pair
from tfos_lab.core.runtime_files import scratch_root
from tfos_lab.driver.tensorboard.message_page import NO_DATA_YET, message_page
from tfos_lab.launchers.this_machine import kernel_environ, kernel_owner
from tfos_lab.node.forkserver.client import ForkServerConnection, ForkServerSpec
from tfos_lab.node.forkserver.requests import ExitedReply, FailedReply
from tfos_lab.node.tensorboard import TensorBoardSpec

if TYPE_CHECKING:
    from tfos_lab.driver.tensorboard.http_server import TensorBoardHttpServer

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 30.0
# A TensorBoard that nobody uses is ended after this time, and started again for the next client.
IDLE_S = 900.0
_EXIT_REASON_S = 5.0
_CHUNK_BYTES = 64 << 10
_END_OF_REQUEST = b"\r\n\r\n"


class TensorBoardServer:
    """Serves the socket to a run's TensorBoard; ``find_log_dir`` returns the folder with the event files, as of now."""

    def __init__(
        self,
        find_log_dir: Callable[[], str],
        cluster_ended: Callable[[], bool] = lambda: True,
    ) -> None:
        self._find_log_dir = find_log_dir
        self._cluster_ended = cluster_ended
        self._local = LocalTensorBoard()
        self._local_clients = 0
        self._local_visits = 0
        self._http_server: TensorBoardHttpServer | None = None
        self._http_lock = threading.Lock()
        _remove_sockets_of_dead_processes()
        # Short, since the path of a unix socket has 108 bytes at most.
        self._path = scratch_root() / f"unix_server-{os.getpid()}-{secrets.token_hex(6)}.sock"
        self._events = join_loop(self)
        try:
            self._server = self._events.wait_for(asyncio.start_unix_server(self._answer, self._path))
            self._path.chmod(0o600)
        except BaseException:
            leave_loop(self)
            raise

    @property
    def socket(self) -> str:
        """The path of the unix socket."""
        return str(self._path)

    def link(self) -> str | None:
        """Return a tested address for browsers on this machine; opens a port when it is first called.

        Returns None, and logs a warning, if no port can be opened.
        """
        from tfos_lab.driver.tensorboard.http_server import TensorBoardHttpServer

        with self._http_lock:
            if self._http_server is None:
                try:
                    self._http_server = TensorBoardHttpServer(self._events.loop, self.socket)
                except OSError as error:
                    logger.warning("there is no link to TensorBoard: %s", error)
                    return None
            return self._http_server.url

    def close(self) -> None:
        """Close socket and port, and end the TensorBoard on this machine; may be called twice."""
        with self._http_lock:
            if self._http_server is not None:
                self._http_server.close()
                self._http_server = None
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._events.loop.call_soon_threadsafe(self._server.close)
        leave_loop(self)
        self._local.close()

    # ---- one connection ---------------------------------------------------------------------------------------------

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(Connection(reader, writer))
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has disconnected
        except Exception:
            logger.exception("a connection to %s could not be served", self._path)
        finally:
            writer.close()

    async def _serve(self, connection: Connection) -> None:
        """Relay the connection to TensorBoard, or respond with the reason why there is none."""
        log_dir = self._find_log_dir()
        if "://" in log_dir or _has_files(Path(log_dir)):
            await self._relay(connection, log_dir)
            return
        await connection.skip_request()
        if self._cluster_ended():
            await connection.respond(f"There are no event files in {log_dir}.")
        else:
            await connection.respond(NO_DATA_YET, retry=True)

    async def _relay(self, connection: Connection, log_dir: str) -> None:
        """Relay to the TensorBoard on this machine, which is ended when no client has come for long."""
        self._local_clients += 1
        self._local_visits += 1
        try:
            upstream = await self._connect_to_local(log_dir)
        except OSError as error:
            reason = str(error) or f"it did not serve within {START_TIMEOUT_S:g} s"
            logger.warning("no TensorBoard for %s: %s", log_dir, reason)
            await connection.skip_request()
            await connection.respond(f"TensorBoard could not be started on this machine: {reason}.")
        else:
            await connection.relay_to(*upstream)
        finally:
            self._local_clients -= 1
            asyncio.get_running_loop().call_later(IDLE_S, self._end_idle_local, self._local_visits)

    async def _connect_to_local(self, log_dir: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        path = await self._start_local(log_dir)
        try:
            return await asyncio.open_unix_connection(path)
        except OSError:  # it has died since it was started
            path = await self._start_local(log_dir, restart=True)
            return await asyncio.open_unix_connection(path)

    async def _start_local(self, log_dir: str, *, restart: bool = False) -> str:
        starting = asyncio.to_thread(self._local.socket, log_dir, restart=restart)
        return await asyncio.wait_for(starting, START_TIMEOUT_S)

    def _end_idle_local(self, visits: int) -> None:
        """End the TensorBoard on this machine if no client has come since."""
        if self._local_clients == 0 and self._local_visits == visits:
            self._local.close()


def _remove_sockets_of_dead_processes() -> None:
    """Remove sockets whose processes were killed."""
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


@dataclass(frozen=True)
class Connection:
    """One client's connection to the run's socket."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def relay_to(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay to another connection, and close that one."""
        try:
            await _until_one_ends(_copy(self.reader, writer), _copy(reader, self.writer))
        finally:
            writer.close()

    async def skip_request(self) -> None:
        """Read the request's headers: a client does not expect a response before it has sent them."""
        await self.reader.readuntil(_END_OF_REQUEST)

    async def respond(self, sentence: str, *, retry: bool = False) -> None:
        """Respond with a page that holds one sentence."""
        page = message_page(sentence, retry=retry).encode()
        self.writer.write(
            b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\n"
            b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(page), page)
        )
        await self.writer.drain()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(_CHUNK_BYTES):
        target.write(data)
        await target.drain()


async def _until_one_ends(*directions: Coroutine[None, None, None]) -> None:
    """Run both directions of a connection until one of them ends."""
    tasks = [asyncio.ensure_future(direction) for direction in directions]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(OSError):
            await asyncio.gather(*tasks, return_exceptions=True)


class LocalTensorBoard:
    """A TensorBoard process, forked when its socket is first asked for; it ends with the connection that asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._log_dir = ""
        self._process: ForkServerConnection | None = None
        self._path = Path()
        self._count = 0

    def socket(self, log_dir: str, *, restart: bool = False) -> str:
        """Return the socket of a TensorBoard that serves ``log_dir``; start one if need be, or raise OSError."""
        with self._lock:
            if restart or log_dir != self._log_dir:
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


def _failure_to_start(report: FrameSocket, process: ForkServerConnection) -> str:
    """Wait until a process serves; return "", or the reason why it cannot, which its fork server may know."""
    with contextlib.suppress(ConnectionClosed, OSError):
        return report.receive().data.decode(errors="replace")
    until = time.monotonic() + _EXIT_REASON_S
    while (left := until - time.monotonic()) > 0:
        try:
            replies = process.replies(left)
        except (ConnectionClosed, OSError):
            return "the process that it was forked from has ended"
        for reply in replies:
            match reply:
                case FailedReply(reason=reason):
                    return reason
                case ExitedReply(code=code):
                    return f"its process ended with code {code}"
    return "it ended before it served"
