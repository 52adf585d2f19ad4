"""Unix sockets by which other programs of the same user reach this process while its main thread is busy.

The Jupyter server connects to them for TensorBoard's pages. The sockets are in a folder that only the user can open.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import SupportsIndex

from tfos_lab.core import cluster_records
from tfos_lab.core.event_loop import join_loop, leave_loop
from tfos_lab.core.runtime_files import scratch_root

logger = logging.getLogger(__name__)

# Serves one connection.
ConnectionHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

# Where others wait for a slot, a connection that has sent nothing for so long gives up its own.
SILENT_S = 10.0
_STEP_S = 0.5


class _Reader(asyncio.StreamReader):
    """Remembers when something came last."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._clock = loop.time
        self.heard_s = loop.time()

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        """Take bytes of the connection."""
        self.heard_s = self._clock()
        super().feed_data(data)


class UnixServer:
    """One unix socket that is served until it is closed.

    Parameters
    ----------
    handler : coroutine function
        Serves one connection, which is closed afterwards.
    max_connections : int
        How many connections are served at a time; others wait.
    silent_s : float
        Where others wait, a connection that has sent nothing for so long is closed.

    Attributes
    ----------
    path : pathlib.Path
        The socket.
    """

    def __init__(self, handler: ConnectionHandler, *, max_connections: int = 16, silent_s: float = SILENT_S) -> None:
        # Short, since the path of a unix socket has 108 bytes at most.
        self.path = scratch_root() / f"unix_server-{os.getpid()}-{secrets.token_hex(6)}.sock"
        self._handler = handler
        self._slots = asyncio.Semaphore(max_connections)
        self._silent_s = silent_s
        self._served: dict[_Reader, asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None
        self._events = join_loop(self)
        _remove_sockets_of_dead_processes()
        try:
            self._events.wait_for(self._start())
        except BaseException:
            leave_loop(self)
            raise

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that serves its connections."""
        return self._events.loop

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.StreamReaderProtocol:
            reader = _Reader(loop)
            return asyncio.StreamReaderProtocol(reader, lambda _, writer: self._serve(reader, writer), loop=loop)

        self._server = await loop.create_unix_server(protocol, str(self.path))
        self.path.chmod(0o600)

    async def _serve(self, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._take_slot()
            self._served[reader] = writer
            try:
                await self._handler(reader, writer)
            finally:
                del self._served[reader]
                self._slots.release()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has disconnected
        except Exception:
            logger.exception("a connection to %s could not be served", self.path)
        finally:
            writer.close()

    async def _take_slot(self) -> None:
        while True:
            try:
                await asyncio.wait_for(self._slots.acquire(), _STEP_S)
            except TimeoutError:
                self._close_silent()
            else:
                return

    def _close_silent(self) -> None:
        """Close the connection that has been silent for longest, if that is long."""
        reader = min(self._served, key=lambda reader: reader.heard_s, default=None)
        if reader is not None and self.loop.time() - reader.heard_s >= self._silent_s:
            self._served[reader].transport.abort()

    def close(self) -> None:
        """Accept no more connections; may be called twice, and from any thread."""
        self.path.unlink(missing_ok=True)
        server, self._server = self._server, None
        if server is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(server.close)
        leave_loop(self)


def _remove_sockets_of_dead_processes() -> None:
    """Remove sockets whose processes were killed."""
    for kind in ("unix_server", "tensorboard"):
        for path in scratch_root().glob(f"{kind}-*.sock"):
            pid = path.name.split("-")[1]
            if pid.isdigit() and not cluster_records.birth_of(int(pid)):
                path.unlink(missing_ok=True)
