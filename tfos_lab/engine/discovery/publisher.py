"""Shows a cluster to other processes: its cluster record, a socket that stops it, and a socket to its TensorBoard.

The work is done on the sockets' thread, so that it goes on while the notebook's main thread is busy in a cell.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import hashlib
import logging
import math
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tfos_lab.core import cluster_records
from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.recorded_cluster import ClusterRecord
from tfos_lab.engine.discovery.contents import figures_of, recorded
from tfos_lab.engine.state.events import ClusterView, Event, NodeChanged, StateChanged, TensorBoardStatus
from tfos_lab.engine.tensorboard.server import TensorBoardServer
from tfos_lab.transport.unix_server import UnixServer

if TYPE_CHECKING:
    from tfos_lab.engine.tensorboard.tunnel import Tunnel

logger = logging.getLogger(__name__)

STOP_COMMAND = b"stop\n"
# Changes that come together are written together.
_SETTLE_S = 0.05
# Steps and metrics change all the time; the panel reads them about as often.
_FIGURES_S = 2.0
# Writing the record of many nodes may take this share of the time, but no change waits longer than some seconds.
_MANY_NODES = 64
_SHARE = 0.05
_LONGEST_S = 5.0

_warned = False


class PublishedCluster(Protocol):
    """What a publisher needs of a cluster."""

    @property
    def id(self) -> str:
        """Unique identifier."""
        ...

    @property
    def config(self) -> ClusterConfig:
        """What the user asked for."""
        ...

    @property
    def run_dir(self) -> Path:
        """The run's folder."""
        ...

    @property
    def event_dir(self) -> str:
        """The folder with its event files, on this machine."""
        ...

    @property
    def tunnel(self) -> Tunnel | None:
        """The connection to the chief's TensorBoard as it is now, if there is one."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the cluster has ended."""
        ...

    def view(self) -> ClusterView:
        """Return the cluster as it is now."""
        ...

    def stop(self) -> None:
        """Stop all nodes."""
        ...


class Publisher:
    """Shows one cluster to other processes, from `publish` to `close`.

    Parameters
    ----------
    cluster : PublishedCluster
        The cluster. It is not used before `publish`, except for what it was asked for.
    """

    def __init__(self, cluster: PublishedCluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._due_s = math.inf
        self._rest_s = 0.0
        self._is_published = False
        self._written: ClusterRecord | None = None
        self._is_closed = False
        self._tensorboard: TensorBoardServer | None = None
        if cluster.config.tensorboard:
            self._tensorboard = TensorBoardServer(lambda: self.log_dir, lambda: cluster.tunnel, lambda: cluster.ended)
        self._control = UnixServer(self._on_visitor)

    @property
    def log_dir(self) -> str:
        """The folder with the cluster's event files, on this machine."""
        return self._cluster.event_dir

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
        return cluster_records.own_server_url() if self._is_published else ""

    @property
    def tensorboard_status(self) -> TensorBoardStatus | None:
        """The state of TensorBoard, if the run has one that other processes can find."""
        return self._tensorboard.status if self._tensorboard is not None and self._is_published else None

    @property
    def tensorboard_socket(self) -> str | None:
        """The unix socket of TensorBoard on this machine."""
        return self._tensorboard.socket if self._tensorboard is not None else None

    def on_event(self, event: Event) -> None:
        """Plan an update of the cluster record if the event changes it; called by the thread that publishes it."""
        if isinstance(event, StateChanged | NodeChanged):
            self._plan(_SETTLE_S)

    def _plan(self, delay_s: float) -> None:
        """Have the record written after ``delay_s`` seconds, unless it will be before."""
        due_s = time.monotonic() + max(delay_s, self._rest_s)
        with self._lock:
            if self._due_s <= due_s:
                return
            self._due_s = due_s
        self._control.call(functools.partial(self._update_at, due_s))

    def close(self) -> None:
        """Remove the cluster record and close the sockets; may be called twice."""
        with self._writing:
            self._is_closed = True
            cluster_records.remove(self._cluster.id)
        self._control.close()
        if self._tensorboard is not None:
            self._tensorboard.close()

    # ---- the sockets' thread ----------------------------------------------------------------------------------------

    def _update_at(self, due_s: float) -> None:
        self._control.loop.call_later(max(0.0, due_s - time.monotonic()), self._update, due_s)

    def _update(self, due_s: float) -> None:
        with self._lock:
            if self._due_s != due_s:
                return  # an earlier update was planned after this one
            self._due_s = math.inf
        if self._is_closed:
            return
        ended = self._cluster.ended
        if ended and self._tensorboard is None:
            self.close()
            return
        if not ended:
            self._plan(_FIGURES_S)  # first, so that whatever goes wrong below, the end is seen and the socket closed
        began_s = time.monotonic()
        self.publish()
        if self._written is not None and len(self._written.nodes) > _MANY_NODES:
            self._rest_s = min(_LONGEST_S, (time.monotonic() - began_s) / _SHARE)
        if ended:
            self._control.close()

    def publish(self) -> None:
        """Write the cluster record as of now, if it differs from the one that is written."""
        record = self._record()
        with self._writing:
            if self._is_closed or record == self._written:
                return
            try:
                cluster_records.publish(record)
                self._is_published, self._written = True, record
            except (OSError, ImportError) as error:
                _warn_once(error)

    def _record(self) -> ClusterRecord:
        view = self._cluster.view()
        return ClusterRecord(
            id=view.cluster_id,
            name=view.name,
            state=view.state,
            reason=view.reason,
            pid=os.getpid(),
            born=cluster_records.birth_of(os.getpid()),
            started_s=view.started_s,
            kernel_id=cluster_records.own_kernel_id(),
            notebook=cluster_records.own_notebook(),
            launcher=view.launcher,
            nodes=tuple(map(recorded, view.nodes)),
            figures=figures_of(view),
            verdict=view.verdict,
            run_dir=str(self._cluster.run_dir),
            tensorboard=self.tensorboard_socket or "",
            control="" if self._cluster.ended else str(self._control.path),
        )

    async def _on_visitor(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Stop the cluster if the visitor sends the command."""
        if await asyncio.wait_for(reader.readline(), 5.0) != STOP_COMMAND:
            return
        # It may take as long as the nodes' grace period: not on the sockets' thread.
        threading.Thread(target=self._stop, name=f"tfos-stop-{self._cluster.id}", daemon=True).start()
        writer.write(b"stopping\n")
        await writer.drain()

    def _stop(self) -> None:
        try:
            self._cluster.stop()
        except Exception:
            logger.exception("cluster %s could not be stopped", self._cluster.id)


class PublishedFolder:
    """Shows a folder of event files to the Jupyter server, which finds its TensorBoard by a cluster record.

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
                ClusterRecord(
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
        """Remove the cluster record and close the socket; may be called twice."""
        cluster_records.remove(self.id)
        self._tensorboard.close()


@functools.cache
def show_folder(log_dir: str) -> PublishedFolder:
    """Return what publishes a folder, once for each folder; raises OSError where no socket can be made."""
    return PublishedFolder(log_dir)


def make_publisher(cluster: PublishedCluster) -> Publisher | None:
    """Return a publisher, or None where no socket can be made for it: the cluster itself runs all the same."""
    try:
        return Publisher(cluster)
    except (OSError, TimeoutError) as error:
        _warn_once(error)
        return None


def _warn_once(error: Exception) -> None:
    global _warned  # noqa: PLW0603 - once in the life of a process is enough
    if not _warned:
        _warned = True
        logger.warning("clusters of this kernel are not listed in JupyterLab's panel: %s", error)
