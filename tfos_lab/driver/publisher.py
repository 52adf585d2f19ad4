"""Shows a cluster to other processes: a cluster record, which leads to its folder, and a socket to its TensorBoard."""

from __future__ import annotations

import atexit
import functools
import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tfos_lab.core import cluster_records
from tfos_lab.driver.run_dir import RunDir

if TYPE_CHECKING:
    from tfos_lab.driver.tensorboard.server import TensorBoardServer

logger = logging.getLogger(__name__)


class Publisher:
    """Shows a run, or a folder of event files, to other processes, from `publish` to `close`.

    It is found by its ``id``; ``folder`` is that of a run, whose ``run.json`` says all of it, or of event files.
    """

    def __init__(self, id: str, folder: str | Path, tensorboard: TensorBoardServer | None) -> None:  # noqa: A002
        self.id = id
        self._folder = str(folder)
        self._tensorboard = tensorboard
        self._is_published = False

    @property
    def tensorboard_url(self) -> str | None:
        """Where the Jupyter server shows TensorBoard, or else `link`."""
        server = self._server_url()
        return f"{server.rstrip('/')}/tfos-lab/tb/{self.id}/" if server and self._tensorboard else self.link

    @property
    def link(self) -> str | None:
        """A link to TensorBoard for browsers on this machine, where no Jupyter server shows it."""
        return None if self._tensorboard is None or self._server_url() else self._tensorboard.link()

    def _server_url(self) -> str:
        """Return the address of the Jupyter server that shows this cluster, if one does."""
        return cluster_records.own_server_url() if self._is_published else ""

    @property
    def shows_tensorboard(self) -> bool:
        """Whether the kernel's Jupyter server shows the run's TensorBoard."""
        return self._tensorboard is not None and self._server_url() != ""

    @property
    def tensorboard_socket(self) -> str | None:
        """The unix socket of TensorBoard on this machine."""
        return self._tensorboard.socket if self._tensorboard is not None else None

    def publish(self) -> None:
        """Write the cluster record; where that is not possible, the cluster runs all the same."""
        record = cluster_records.ClusterRecord.here(self.id, self._folder, self.tensorboard_socket or "")
        try:
            cluster_records.publish(record)
            self._is_published = True
        except (OSError, ImportError) as error:
            _warn_once(str(error))

    def end(self) -> None:
        """Show no more than TensorBoard, if there is one: the cluster has ended."""
        if self._tensorboard is None:
            self.close()

    def close(self) -> None:
        """Remove the cluster record, and close TensorBoard's socket; may be called twice."""
        if self._is_published:
            cluster_records.remove(self.id)
        if self._tensorboard is not None:
            self._tensorboard.close()


@functools.cache
def show_folder(log_dir: str) -> Publisher:
    """Return what shows a folder of event files, once for each folder; raises OSError where no socket can be made."""
    from tfos_lab.driver.tensorboard.server import TensorBoardServer

    name = f"folder-{hashlib.sha256(log_dir.encode()).hexdigest()[:12]}-{os.getpid()}"
    publisher = Publisher(name, log_dir, TensorBoardServer(lambda: log_dir))
    publisher.publish()
    atexit.register(publisher.close)
    return publisher


def make_publisher(
    run_dir: RunDir, find_log_dir: Callable[[], str], cluster_ended: Callable[[], bool], *, tensorboard: bool
) -> Publisher:
    """Return what shows a run, with the TensorBoard of the folder that ``find_log_dir`` returns if it is to have one.

    Where no socket can be made for that, the run goes on without.
    """
    server = None
    if tensorboard:
        from tfos_lab.driver.tensorboard.server import TensorBoardServer

        try:
            server = TensorBoardServer(find_log_dir, cluster_ended)
        except OSError as error:
            logger.warning("TensorBoard cannot be shown: %s", error)
    return Publisher(run_dir.id, run_dir.path, server)


@functools.cache
def _warn_once(why: str) -> None:
    logger.warning("clusters of this kernel are not listed in JupyterLab's panel: %s", why)
