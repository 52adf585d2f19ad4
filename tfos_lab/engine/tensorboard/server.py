"""TensorBoard of one run, behind one socket for as long as this process lives.

While the cluster runs, visitors are led through the tunnel to the TensorBoard beside the chief. When it has ended, or
where the chief has none, they are led to one on this machine, which is started when the first of them comes and shows
the same folder. Where there is neither, they are told in a sentence: never a blank page.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING

from tfos_lab.core.runtime_files import scratch_root
from tfos_lab.engine.launchers.local import kernel_environ, kernel_owner
from tfos_lab.engine.state.events import TensorBoardStatus
from tfos_lab.engine.tensorboard.tunnel import CHUNK_BYTES, MAX_STREAMS, Tunnel
from tfos_lab.node.tensorboard.process import TensorBoardProcess
from tfos_lab.transport.unix_server import UnixServer

if TYPE_CHECKING:
    from tfos_lab.engine.tensorboard.link import TensorBoardLink

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 30.0
# A visitor who comes before TensorBoard is up waits so long before he is told to come again.
PATIENCE_S = 1.5
_STEP_S = 0.05
# A TensorBoard on this machine that nobody visits is ended, and started again for the next visitor.
IDLE_S = 900.0
_END_OF_REQUEST = b"\r\n\r\n"


class LocalTensorBoard:
    """A TensorBoard on this machine, started when it is first asked for, and again should it have died."""

    def __init__(self) -> None:
        self._log_dir = ""
        self._lock = threading.Lock()
        self._process: TensorBoardProcess | None = None
        self._path = ""
        self._count = 0

    def socket(self, log_dir: str, *, again: bool = False) -> str:
        """Return the socket of a TensorBoard that serves a folder; raises OSError, with a reason, where none can."""
        with self._lock:
            if again or log_dir != self._log_dir:
                self._end()
            self._log_dir = log_dir
            if self._process is None:
                self._start()
            return self._path

    def _start(self) -> None:
        self._count += 1
        path = str(scratch_root() / f"tensorboard-{os.getpid()}-{id(self):x}-{self._count}.sock")
        fork_server = (kernel_owner(), "plain", dict[str, str](), kernel_environ(), os.getpid())
        process = TensorBoardProcess(fork_server, self._log_dir, path, str(Path.cwd()))
        reason = process.word()
        if reason:
            process.close()
            raise OSError(reason)
        self._process, self._path = process, path

    def _end(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def close(self) -> None:
        """End it; may be called twice."""
        with self._lock:
            self._end()


class TensorBoardServer:
    """The socket to a run's TensorBoard.

    Parameters
    ----------
    find_log_dir : callable
        Returns the folder with the event files, as it is now.
    find_tunnel : callable
        Returns the way to the chief's TensorBoard as it is now; None for a run that has long ended.
    cluster_ended : callable
        Whether the cluster has ended.
    """

    def __init__(
        self,
        find_log_dir: Callable[[], str],
        find_tunnel: Callable[[], Tunnel | None] = lambda: None,
        cluster_ended: Callable[[], bool] = lambda: True,
    ) -> None:
        self._find_log_dir = find_log_dir
        self._find_tunnel = find_tunnel
        self._cluster_ended = cluster_ended
        self._local = LocalTensorBoard()
        self._guests = 0
        self._visits = 0
        self._unix_server = UnixServer(self._serve, at_most=MAX_STREAMS)
        self._link: TensorBoardLink | None = None
        self._linking = threading.Lock()

    @property
    def socket(self) -> str:
        """The unix socket that it is reached by."""
        return str(self._unix_server.path)

    def link(self) -> str | None:
        """Return an address for browsers on this machine, which opens a port when it is first asked for.

        It has been tried when it is returned. None, and a warning, where there can be none.
        """
        from tfos_lab.engine.tensorboard.link import TensorBoardLink

        with self._linking:
            if self._link is None:
                try:
                    self._link = TensorBoardLink(self._unix_server.loop, self.socket)
                except OSError as error:
                    logger.warning("there is no link to TensorBoard: %s", error)
                    return None
            return self._link.url

    @property
    def status(self) -> TensorBoardStatus:
        """How it is; asks no file system, so that it may be asked often."""
        tunnel = self._find_tunnel()
        if tunnel is not None and tunnel.trouble:
            return TensorBoardStatus("gone", tunnel.trouble)
        return TensorBoardStatus("starting" if self._coming() else "ready")

    def close(self) -> None:
        """Close the socket and the link, and end the TensorBoard on this machine; may be called twice."""
        with self._linking:
            if self._link is not None:
                self._link.close()
                self._link = None
        self._unix_server.close()
        self._local.close()

    # ---- one visitor ------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Lead the visitor to a TensorBoard, or tell why there is none."""
        for _ in range(int(PATIENCE_S / _STEP_S)):
            if not self._coming():
                break
            await asyncio.sleep(_STEP_S)
        tunnel = self._find_tunnel()
        if tunnel is not None and tunnel.ready:
            if not await _join_tunnel(reader, writer, tunnel):
                await _tell(writer, "TensorBoard has just gone away.", again=True)
        elif self._coming():
            await reader.readuntil(_END_OF_REQUEST)
            await _tell(writer, "TensorBoard is starting beside the chief.", again=True)
        elif (trouble := self._nothing_here()) is not None:
            await reader.readuntil(_END_OF_REQUEST)
            await _tell(writer, trouble)
        else:
            await self._join_local(reader, writer)

    def _coming(self) -> bool:
        """Whether the chief's TensorBoard may still come."""
        tunnel = self._find_tunnel()
        return tunnel is not None and not tunnel.ready and not tunnel.trouble and not self._cluster_ended()

    def _nothing_here(self) -> str | None:
        """Return why no TensorBoard on this machine could show anything, if so."""
        log_dir = self._find_log_dir()
        if "://" in log_dir or _has_files(Path(log_dir)):
            return None
        tunnel = self._find_tunnel()
        trouble = tunnel.trouble if tunnel is not None else ""
        if trouble:
            chief = f"On the chief TensorBoard could not be started: {trouble}. "
            return f"{chief}On this machine the folder {log_dir} holds no event files."
        return (
            f"There are no event files in {log_dir} on this machine. If the run has written some, they are on the "
            "chief's host: choose a log_dir that both share."
        )

    async def _join_local(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._guests += 1
        self._visits += 1
        try:
            await self._join_local_once(reader, writer)
        finally:
            self._guests -= 1
            asyncio.get_running_loop().call_later(IDLE_S, self._retire, self._visits)

    async def _join_local_once(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            log_dir = self._find_log_dir()
            path = await asyncio.wait_for(asyncio.to_thread(self._local.socket, log_dir), START_TIMEOUT_S)
            try:
                upstream = await asyncio.open_unix_connection(path)
            except OSError:
                path = await asyncio.wait_for(
                    asyncio.to_thread(self._local.socket, log_dir, again=True), START_TIMEOUT_S
                )
                upstream = await asyncio.open_unix_connection(path)
        except OSError as error:
            reason = str(error) or f"it did not serve within {START_TIMEOUT_S:g} s"
            logger.warning("no TensorBoard for %s: %s", log_dir, reason)
            await reader.readuntil(_END_OF_REQUEST)
            await _tell(writer, f"TensorBoard could not be started on this machine: {reason}.")
            return
        try:
            await _first_ended(_pour(reader, upstream[1]), _pour(upstream[0], writer))
        finally:
            upstream[1].close()

    def _retire(self, visits: int) -> None:
        """End the TensorBoard on this machine if nobody has come since."""
        if self._guests == 0 and self._visits == visits:
            self._local.close()


async def _join_tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tunnel: Tunnel) -> bool:
    """Lead the visitor through the tunnel; return whether anybody answered."""
    stream = tunnel.open()
    answered = False

    async def there() -> None:
        while data := await reader.read(CHUNK_BYTES):
            await stream.write(data)

    async def back() -> None:
        nonlocal answered
        while data := await stream.read():
            answered = True
            writer.write(data)
            await writer.drain()

    try:
        await _first_ended(there(), back())
    finally:
        stream.close()
    return answered


async def _pour(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(CHUNK_BYTES):
        target.write(data)
        await target.drain()


async def _first_ended(*ways: Coroutine[None, None, None]) -> None:
    """Run both ways of a conversation until one of them ends."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(OSError):
            await asyncio.gather(*tasks, return_exceptions=True)


async def _tell(writer: asyncio.StreamWriter, sentence: str, *, again: bool = False) -> None:
    """Answer with a page that holds one sentence; ``again`` has the page ask once more."""
    refresh = '<meta http-equiv="refresh" content="2">' if again else ""
    page = (
        f'<!doctype html><html><head><meta charset="utf-8"><title>TensorBoard</title>{refresh}</head>'
        f'<body style="font: 14px/1.5 system-ui, sans-serif; margin: 2em">{html.escape(sentence)}</body></html>'
    ).encode()
    writer.write(
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\n"
        b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(page), page)
    )
    await writer.drain()


def _has_files(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except OSError:
        return False
