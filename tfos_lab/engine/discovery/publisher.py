"""How a cluster is seen from outside its process: its record, the socket for Stop, and the socket to its TensorBoard.

Works in the sockets' thread, so that all of it goes on while the notebook's main thread is busy in a cell.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import hashlib
import logging
import os
import threading
import time
from typing import TYPE_CHECKING

from tfos_lab.core import cluster_records
from tfos_lab.engine.state.events import Event, NodeChanged, StateChanged, TensorBoardStatus
from tfos_lab.engine.tensorboard.server import TensorBoardServer
from tfos_lab.transport.unix_server import UnixServer

if TYPE_CHECKING:
    from tfos_lab.engine.lifecycle import Lifecycle

logger = logging.getLogger(__name__)

STOP_COMMAND = b"stop\n"
# Changes that come together are written together.
_SETTLE_S = 0.05

_told_of_trouble = False


class Publisher:
    """The outward side of one cluster.

    Parameters
    ----------
    cluster : Lifecycle
        Whose.
    """

    def __init__(self, cluster: Lifecycle) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._pending = False
        self._lit = False
        self._dark = False
        wanted = cluster.config.tensorboard
        self._tensorboard = (
            TensorBoardServer(lambda: self.log_dir, lambda: cluster.generation.tunnel, lambda: cluster.ended)
            if wanted
            else None
        )
        self._control = UnixServer(self._hear)
        self._light()

    @property
    def log_dir(self) -> str:
        """The folder with its event files, on this machine."""
        return self._cluster.event_files.folder

    @property
    def tensorboard_url(self) -> str | None:
        """Where the Jupyter server shows TensorBoard, or else `link`."""
        server = self._server_url()
        return f"{server.rstrip('/')}/tfos-lab/tb/{self._cluster.id}/" if server and self._tensorboard else self.link

    @property
    def link(self) -> str | None:
        """A link to TensorBoard for browsers on this machine, where no Jupyter server shows it."""
        return None if self._tensorboard is None or self._server_url() else self._tensorboard.link()

    def _server_url(self) -> str:
        """Return the address of the Jupyter server that shows this cluster, if one does."""
        return cluster_records.own_server_url() if self._lit else ""

    @property
    def tensorboard_status(self) -> TensorBoardStatus | None:
        """How TensorBoard is, if the run has one that can be found from outside."""
        return self._tensorboard.status if self._tensorboard is not None and self._lit else None

    @property
    def tensorboard_socket(self) -> str | None:
        """The unix socket at which TensorBoard is reached on this machine."""
        return self._tensorboard.socket if self._tensorboard is not None else None

    def note(self, event: Event) -> None:
        """Take in what has happened; called by the thread that publishes it."""
        if isinstance(event, StateChanged | NodeChanged):
            with self._lock:
                if self._pending:
                    return
                self._pending = True
            self._control.call(self._show_soon)

    def close(self) -> None:
        """Put the cluster record out and close the sockets; may be called twice."""
        self._dark = True
        cluster_records.remove(self._cluster.id)
        self._control.close()
        if self._tensorboard is not None:
            self._tensorboard.close()

    # ---- the sockets' thread ----------------------------------------------------------------------------------------

    def _show_soon(self) -> None:
        self._control.loop.call_later(_SETTLE_S, self._show)

    def _show(self) -> None:
        """Make the cluster record tell how the cluster is now."""
        with self._lock:
            self._pending = False
        if self._dark:
            return
        ended = self._cluster.ended
        if ended and self._tensorboard is None:
            self.close()
            return
        self._light()
        if ended:
            self._control.close()

    def _light(self) -> None:
        view = self._cluster.view()
        record = cluster_records.ClusterRecord(
            id=view.cluster_id,
            name=view.name,
            state=view.state,
            pid=os.getpid(),
            born=cluster_records.birth_of(os.getpid()),
            started_s=view.started_s,
            kernel_id=cluster_records.own_kernel_id(),
            launcher=view.launcher,
            nodes=tuple(cluster_records.NodeRecord(node.node, node.state, node.host) for node in view.nodes),
            run_dir=str(self._cluster.run_dir),
            tensorboard=self.tensorboard_socket or "",
            control="" if self._cluster.ended else str(self._control.path),
        )
        try:
            cluster_records.publish(record)
            self._lit = True
        except (OSError, ImportError) as error:
            _notify_once(error)

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Stop the cluster if that is what the visitor wants."""
        if await asyncio.wait_for(reader.readline(), 5.0) != STOP_COMMAND:
            return
        # It may take as long as the nodes' grace: not in the sockets' thread.
        threading.Thread(target=self._stop, name=f"tfos-stop-{self._cluster.id}", daemon=True).start()
        writer.write(b"stopping\n")
        await writer.drain()

    def _stop(self) -> None:
        try:
            self._cluster.stop()
        except Exception:
            logger.exception("cluster %s could not be stopped", self._cluster.id)


class FolderPresence:
    """A folder of event files that TensorBoard shows, and the cluster record by which the Jupyter server finds it.

    Parameters
    ----------
    log_dir : str
        The folder.
    """

    def __init__(self, log_dir: str) -> None:
        self.id = f"folder-{hashlib.sha256(log_dir.encode()).hexdigest()[:12]}-{os.getpid()}"
        self._tensorboard = TensorBoardServer(lambda: log_dir)
        try:
            cluster_records.publish(
                cluster_records.ClusterRecord(
                    id=self.id,
                    name=log_dir,
                    state="done",
                    pid=os.getpid(),
                    born=cluster_records.birth_of(os.getpid()),
                    started_s=time.time(),
                    kernel_id=cluster_records.own_kernel_id(),
                    run_dir=log_dir,
                    tensorboard=self._tensorboard.socket,
                )
            )
        except BaseException:
            self._tensorboard.close()
            raise
        atexit.register(self.close)

    @property
    def link(self) -> str | None:
        """A link to TensorBoard for browsers on this machine, where no Jupyter server shows it."""
        return None if cluster_records.own_server_url() else self._tensorboard.link()

    def close(self) -> None:
        """Put the cluster record out and close the socket; may be called twice."""
        cluster_records.remove(self.id)
        self._tensorboard.close()


@functools.cache
def show_folder(log_dir: str) -> FolderPresence:
    """Return the one way to TensorBoard for a folder; raises OSError where there can be none."""
    return FolderPresence(log_dir)


def make_publisher(cluster: Lifecycle) -> Publisher | None:
    """Return the outward side of a cluster, or None where it can have none: the cluster itself runs all the same."""
    try:
        return Publisher(cluster)
    except (OSError, TimeoutError) as error:
        _notify_once(error)
        return None


def _notify_once(error: Exception) -> None:
    global _told_of_trouble  # noqa: PLW0603 - once in the life of a process is enough
    if not _told_of_trouble:
        _told_of_trouble = True
        logger.warning("clusters of this kernel are not listed in JupyterLab's panel: %s", error)
