"""Shows a cluster to other processes: a cluster record, which leads to its folder, and a socket to its TensorBoard."""

from __future__ import annotations

import atexit
import functools
import hashlib
import logging
import os
from collections.abc import Callable

from tfos_lab.core import cluster_records
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.driver.tensorboard.server import TensorBoardServer

logger = logging.getLogger(__name__)

_warned = False


class Publisher:
    """Shows one cluster to other processes, from `publish` to `close`; what they see of it is its ``run.json``.

    Parameters
    ----------
    run_dir : RunDir
        The run's folder.
    find_log_dir : callable
        Returns the folder with its event files, on this machine, as of now.
    cluster_ended : callable
        Whether the cluster has ended.
    tensorboard : bool
        Whether it has a TensorBoard.
    """

    def __init__(
        self,
        run_dir: RunDir,
        find_log_dir: Callable[[], str],
        cluster_ended: Callable[[], bool],
        *,
        tensorboard: bool,
    ) -> None:
        self._run_dir = run_dir
        self._find_log_dir = find_log_dir
        self._is_published = False
        self._tensorboard = TensorBoardServer(find_log_dir, cluster_ended) if tensorboard else None

    @property
    def log_dir(self) -> str:
        """The folder with the cluster's event files, on this machine."""
        return self._find_log_dir()

    @property
    def tensorboard_url(self) -> str | None:
        """Where the Jupyter server shows TensorBoard, or else `link`."""
        server = self._server_url()
        return f"{server.rstrip('/')}/tfos-lab/tb/{self._run_dir.id}/" if server and self._tensorboard else self.link

    @property
    def link(self) -> str | None:
        """A link to TensorBoard for browsers on this machine, where no Jupyter server shows it."""
        return None if self._tensorboard is None or self._server_url() else self._tensorboard.link()

    def _server_url(self) -> str:
        """Return the address of the Jupyter server that shows this cluster, if one does."""
        return cluster_records.own_server_url() if self._is_published else ""

    @property
    def shows_tensorboard(self) -> bool:
        """Whether the run has a TensorBoard that other processes can find."""
        return self._tensorboard is not None and self._is_published

    @property
    def tensorboard_socket(self) -> str | None:
        """The unix socket of TensorBoard on this machine."""
        return self._tensorboard.socket if self._tensorboard is not None else None

    def publish(self) -> None:
        """Write the cluster record; where that is not possible, the cluster runs all the same."""
        path, socket = str(self._run_dir.path), self.tensorboard_socket or ""
        try:
            cluster_records.publish(cluster_records.ClusterRecord.here(self._run_dir.id, path, socket))
            self._is_published = True
        except (OSError, ImportError) as error:
            _warn_once(error)

    def end(self) -> None:
        """Show no more than TensorBoard, if there is one: the cluster has ended."""
        if self._tensorboard is None:
            self.close()

    def close(self) -> None:
        """Remove the cluster record, and close TensorBoard's socket; may be called twice."""
        if self._is_published:
            cluster_records.remove(self._run_dir.id)
        if self._tensorboard is not None:
            self._tensorboard.close()


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
            cluster_records.publish(cluster_records.ClusterRecord.here(self.id, log_dir, self._tensorboard.socket))
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


def make_publisher(
    run_dir: RunDir, find_log_dir: Callable[[], str], cluster_ended: Callable[[], bool], *, tensorboard: bool
) -> Publisher | None:
    """Return a publisher, or None where no socket can be made for it: the cluster itself runs all the same."""
    try:
        return Publisher(run_dir, find_log_dir, cluster_ended, tensorboard=tensorboard)
    except (OSError, TimeoutError) as error:
        _warn_once(error)
        return None


def _warn_once(error: Exception) -> None:
    global _warned  # noqa: PLW0603 - once in the life of a process is enough
    if not _warned:
        _warned = True
        logger.warning("clusters of this kernel are not listed in JupyterLab's panel: %s", error)
