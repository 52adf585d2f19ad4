"""The output of a cell: in a notebook a live dashboard, or pictures where there are no widgets; else lines of text.

    display = open_display(cluster)
    try:
        while not cluster_has_ended(timeout_s=0.1):
            display.poll()
    finally:
        display.close()

The main thread calls ``poll`` while it waits. The text display writes then, because other threads must not print: their
output would appear below whichever cell runs. The others have a thread of their own and need no poll.
"""

from __future__ import annotations

import importlib
import logging
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Protocol, Self

from tfos_lab.driver.bus import Bus
from tfos_lab.driver.state.events import ClusterView, MetricsReported
from tfos_lab.notebook.display.kernel import current_kernel, has_front_end, may_use_widgets

logger = logging.getLogger(__name__)


class WatchedCluster(Protocol):
    """The part of a cluster that displays use."""

    @property
    def id(self) -> str:
        """Unique id of the run."""

    @property
    def name(self) -> str:
        """The label that the user gave."""

    @property
    def bus(self) -> Bus:
        """Publishes the events."""

    @property
    def run_dir(self) -> str | Path:
        """The folder with the complete logs."""

    def view(self) -> ClusterView:
        """Return the cluster as it is now."""

    def stop(self) -> None:
        """Stop the cluster; may be called twice."""

    def logs(self, node: str | None = None, tail: int | None = None) -> str:
        """Return the log of a node, or its last lines."""

    def log_path(self, node: str) -> Path:
        """Return the file with the log of a node; raises ``KeyError`` for an unknown node."""

    def failure(self) -> Exception:
        """Return the error that explains why the cluster failed."""

    def reports_after(self, count: int = 0) -> tuple[list[MetricsReported], int]:
        """Return the metrics reported after the first ``count`` ones, and how many there have been in all."""


class Display(ABC):
    """The output of one cell while its cluster lives; a context manager that closes it."""

    def poll(self) -> None:  # noqa: B027 - most displays need no poll
        """Called by the main thread, often, while it waits."""

    @abstractmethod
    def close(self) -> None:
        """Show the end and release everything; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def open_display(cluster: WatchedCluster, *, interactive: bool | None = None, blocking: bool = True) -> Display:
    """Show ``cluster`` in the output of the current cell.

    Parameters
    ----------
    cluster : Cluster
        The cluster to watch; it may not be launched yet.
    interactive : bool, optional
        True for the live card, False for lines of text; by default, what fits (see `has_front_end`).
    blocking : bool
        Whether the cell waits for the cluster. If not (``background``), nobody polls: the dashboard closes itself when
        the cluster has ended, and the text display only says where to look.

    Returns
    -------
    Display
        To be polled while waiting, and closed at the end.
    """
    if has_front_end() if interactive is None else interactive:
        if may_use_widgets():
            try:
                from tfos_lab.notebook.display.dashboard import Dashboard

                return Dashboard(cluster, blocking=blocking)
            except ImportError as error:
                logger.warning("no live dashboard (%s); pictures instead", error)
        from tfos_lab.notebook.display.plain_display import RedrawnCard

        return RedrawnCard(cluster, blocking=blocking)
    from tfos_lab.notebook.display.plain_display import TextDisplay

    return TextDisplay(cluster, blocking=blocking)


def is_shown(*, show: bool | None) -> bool:
    """Return whether a call that was given ``show`` shows its progress: by default in a notebook only."""
    return current_kernel() is not None if show is None else show


def render_errors() -> None:
    """In a notebook, have our errors shown as those of cells are, also without ``%load_ext``."""
    kernel = current_kernel()
    if kernel is not None:
        from tfos_lab.notebook.display import error_messages

        error_messages.install(kernel.shell)


def load_in_background() -> None:
    """In a kernel, import what its first cell needs: that would take longer than launching the nodes."""
    if current_kernel() is not None:
        threading.Thread(target=_load, name="tfos-load", daemon=True).start()


def _load() -> None:
    for module in ("tfos_lab.driver.start", "tfos_lab.notebook.display.dashboard"):
        try:
            importlib.import_module(module)
        except (ImportError, FileNotFoundError) as error:  # the cell that needs it will report it
            logger.info("could not load %s: %s", module, error)
