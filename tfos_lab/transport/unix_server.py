"""Doors: unix sockets by which other programs of the same user reach this process while its main thread is busy.

The Jupyter server comes to them for TensorBoard's pages and for Stop. All sockets of a process share one thread
(``tfos-unix_servers``), which begins with the first one and ends with the last. They lie in a folder that only the user
can open; a path is short, as a unix socket's has to be.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import threading
from collections.abc import Awaitable, Callable

from tfos_lab.core import cluster_records
from tfos_lab.core.runtime_files import scratch_root

logger = logging.getLogger(__name__)

# Serves one connection.
Host = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_START_TIMEOUT_S = 10.0


class _Keeper:
    """The thread behind the sockets."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.unix_servers: set[UnixServer] = set()
        _remove_sockets_of_dead_processes()
        self.thread = threading.Thread(target=self._run, name="tfos-unix-servers", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        finally:
            self.loop.close()


_lock = threading.Lock()
_keeper: _Keeper | None = None


class UnixServer:
    """One socket that is listened on until it is closed.

    Parameters
    ----------
    host : coroutine function
        Serves one connection; the connection is closed after it.
    at_most : int
        So many connections are served at a time; others wait.
    """

    def __init__(self, host: Host, *, at_most: int = 16) -> None:
        self.path = scratch_root() / f"unix_server-{os.getpid()}-{secrets.token_hex(6)}.sock"
        self._host = host
        self._positions = asyncio.Semaphore(at_most)
        self._server: asyncio.Server | None = None
        self._keeper = _enter(self)
        dataset_id = asyncio.run_coroutine_threadsafe(self._open(), self._keeper.loop)
        try:
            dataset_id.result(_START_TIMEOUT_S)
        except BaseException:
            _leave(self)
            raise

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that its connections are served in."""
        return self._keeper.loop

    async def _open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, str(self.path))
        self.path.chmod(0o600)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._positions:
                await self._host(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # whoever came has gone
        except Exception:
            logger.exception("a visitor at %s was not served", self.path)
        finally:
            writer.close()

    def call(self, act: Callable[[], None]) -> None:
        """Have ``act`` called in the sockets' loop; safe from any thread."""
        with contextlib.suppress(RuntimeError):  # closed meanwhile
            self._keeper.loop.call_soon_threadsafe(act)

    def close(self) -> None:
        """Let nobody in any more; may be called twice, and from any thread."""
        self.path.unlink(missing_ok=True)
        server, self._server = self._server, None
        if server is not None:
            self.call(server.close)
        _leave(self)


def _remove_sockets_of_dead_processes() -> None:
    """A process that was killed leaves its sockets behind."""
    for kind in ("unix_server", "tensorboard"):
        for path in scratch_root().glob(f"{kind}-*.sock"):
            pid = path.name.split("-")[1]
            if pid.isdigit() and not cluster_records.birth_of(int(pid)):
                path.unlink(missing_ok=True)


def _enter(unix_server: UnixServer) -> _Keeper:
    global _keeper  # noqa: PLW0603 - one thread for all sockets of the process
    with _lock:
        if _keeper is None or not _keeper.thread.is_alive():
            _keeper = _Keeper()
        _keeper.unix_servers.add(unix_server)
        return _keeper


def _leave(unix_server: UnixServer) -> None:
    global _keeper  # noqa: PLW0603
    with _lock:
        keeper = _keeper
        if keeper is None or unix_server not in keeper.unix_servers:
            return
        keeper.unix_servers.discard(unix_server)
        if keeper.unix_servers:
            return
        _keeper = None
    keeper.loop.call_soon_threadsafe(keeper.loop.stop)
