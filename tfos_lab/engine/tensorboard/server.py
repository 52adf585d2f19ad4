"""The unix socket to a run's TensorBoard, served for as long as this process lives.

While the cluster runs, connections are relayed through the tunnel to the TensorBoard beside the chief. When it has
ended, or if the chief has none, they are relayed to one on this machine, which is started for the first of them and
shows the same folder. If neither is possible, the response is a page with a sentence, never a blank one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tfos_lab.engine.state.events import TensorBoardStatus
from tfos_lab.engine.tensorboard.local import LocalTensorBoard
from tfos_lab.engine.tensorboard.relay import Connection
from tfos_lab.engine.tensorboard.tunnel import MAX_STREAMS, Tunnel
from tfos_lab.transport.unix_server import UnixServer

if TYPE_CHECKING:
    from tfos_lab.engine.tensorboard.http_server import TensorBoardHttpServer

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 30.0
# A client that comes before TensorBoard is up waits this long before it is asked to retry.
PATIENCE_S = 1.5
_STEP_S = 0.05
# A TensorBoard on this machine that nobody uses is ended after this time, and started again for the next client.
IDLE_S = 900.0


class TensorBoardServer:
    """Serves the socket to a run's TensorBoard.

    Parameters
    ----------
    find_log_dir : callable
        Returns the folder with the event files, as of now.
    find_tunnel : callable
        Returns the tunnel to the chief's TensorBoard, as of now; None for a run that ended long ago.
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
        self._local_clients = 0
        self._local_visits = 0
        self._unix_server = UnixServer(self._serve, max_connections=MAX_STREAMS)
        self._http_server: TensorBoardHttpServer | None = None
        self._http_lock = threading.Lock()

    @property
    def socket(self) -> str:
        """The path of the unix socket."""
        return str(self._unix_server.path)

    def link(self) -> str | None:
        """Return a tested address for browsers on this machine; opens a port when it is first called.

        Returns None, and logs a warning, if no port can be opened.
        """
        from tfos_lab.engine.tensorboard.http_server import TensorBoardHttpServer

        with self._http_lock:
            if self._http_server is None:
                try:
                    self._http_server = TensorBoardHttpServer(self._unix_server.loop, self.socket)
                except OSError as error:
                    logger.warning("there is no link to TensorBoard: %s", error)
                    return None
            return self._http_server.url

    @property
    def status(self) -> TensorBoardStatus:
        """Its status now; touches no file system, so that it can be asked for often."""
        tunnel = self._find_tunnel()
        if tunnel is not None and tunnel.failure:
            return TensorBoardStatus("gone", tunnel.failure)
        return TensorBoardStatus("starting" if self._is_starting() else "ready")

    def close(self) -> None:
        """Close socket and port, and end the TensorBoard on this machine; may be called twice."""
        with self._http_lock:
            if self._http_server is not None:
                self._http_server.close()
                self._http_server = None
        self._unix_server.close()
        self._local.close()

    # ---- one connection ---------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay the connection to a TensorBoard, or respond with the reason why there is none."""
        connection = Connection(reader, writer)
        for _ in range(int(PATIENCE_S / _STEP_S)):
            if not self._is_starting():
                break
            await asyncio.sleep(_STEP_S)
        tunnel = self._find_tunnel()
        if tunnel is not None and tunnel.ready:
            if not await connection.relay_to_tunnel(tunnel):
                await connection.respond("TensorBoard has just gone away.", retry=True)
        elif self._is_starting():
            await connection.skip_request()
            await connection.respond("TensorBoard is starting beside the chief.", retry=True)
        elif (reason := self._why_nothing_to_show()) is not None:
            await connection.skip_request()
            await connection.respond(reason)
        else:
            await self._relay_to_local(connection)

    def _is_starting(self) -> bool:
        """Whether the chief's TensorBoard may still become ready."""
        tunnel = self._find_tunnel()
        return tunnel is not None and not tunnel.ready and not tunnel.failure and not self._cluster_ended()

    def _why_nothing_to_show(self) -> str | None:
        """Return why a TensorBoard on this machine could show nothing, or None if it could show something."""
        log_dir = self._find_log_dir()
        if "://" in log_dir or _has_files(Path(log_dir)):
            return None
        tunnel = self._find_tunnel()
        if tunnel is not None and tunnel.failure:
            chief = f"On the chief TensorBoard could not be started: {tunnel.failure}. "
            return f"{chief}On this machine the folder {log_dir} holds no event files."
        return (
            f"There are no event files in {log_dir} on this machine. If the run has written some, they are on the "
            "chief's host: choose a log_dir that both share."
        )

    async def _relay_to_local(self, connection: Connection) -> None:
        self._local_clients += 1
        self._local_visits += 1
        try:
            await self._try_relay_to_local(connection)
        finally:
            self._local_clients -= 1
            asyncio.get_running_loop().call_later(IDLE_S, self._end_idle_local, self._local_visits)

    async def _try_relay_to_local(self, connection: Connection) -> None:
        log_dir = self._find_log_dir()
        try:
            upstream = await self._connect_to_local(log_dir)
        except OSError as error:
            reason = str(error) or f"it did not serve within {START_TIMEOUT_S:g} s"
            logger.warning("no TensorBoard for %s: %s", log_dir, reason)
            await connection.skip_request()
            await connection.respond(f"TensorBoard could not be started on this machine: {reason}.")
            return
        await connection.relay_to(*upstream)

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


def _has_files(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except OSError:
        return False
