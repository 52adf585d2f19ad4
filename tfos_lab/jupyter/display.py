"""The output of a cell: opens the display that fits, live in a notebook, plain lines elsewhere.

    display = open_display(cluster)
    try:
        while not cluster_has_ended(timeout_s=0.1):
            display.poll()
    finally:
        display.close()

``poll`` is called by the main thread while it waits: the plain display writes there, as threads must not print (their
output would go to whichever cell runs). The dashboard has a thread of its own and needs no poll.
"""

from __future__ import annotations

import logging
import os
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Protocol, Self

from tfos_lab.engine.bus import Bus
from tfos_lab.engine.events import ClusterView, MetricsReported

logger = logging.getLogger(__name__)

NONINTERACTIVE = "TFOS_LAB_NONINTERACTIVE"


class WatchedCluster(Protocol):
    """What a display needs of a cluster."""

    @property
    def id(self) -> str:
        """Unique id of the run."""

    @property
    def name(self) -> str:
        """The label that the user gave."""

    @property
    def bus(self) -> Bus:
        """Where events come from."""

    @property
    def run_dir(self) -> str | Path:
        """The folder with the whole logs."""

    def view(self) -> ClusterView:
        """Return the cluster as it is now."""

    def stop(self) -> None:
        """End the cluster; may be called twice."""

    def logs(self, node: str | None = None, tail: int | None = None) -> str:
        """Return the (last lines of the) log of a node as text."""

    def log_path(self, node: str) -> Path:
        """Return where the whole log of a node is; raises ``KeyError`` for what is no node."""

    def failure(self) -> Exception:
        """Return the error that tells why the cluster failed."""

    def reports_after(self, count: int = 0) -> tuple[list[MetricsReported], int]:
        """Return the metrics reported after the first ``count`` ones, and how many there have been in all."""


class Display(ABC):
    """The output of one cell while its cluster lives."""

    def poll(self) -> None:  # noqa: B027 - most displays need no poll
        """Called by the main thread, often, while it waits."""

    @abstractmethod
    def close(self) -> None:
        """Show how it ended, and let everything go; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def open_display(cluster: WatchedCluster, *, interactive: bool | None = None, blocking: bool = True) -> Display:
    """Show ``cluster`` in the output of the current cell.

    Parameters
    ----------
    cluster : Cluster
        The cluster to watch; it may be at its very beginning.
    interactive : bool, optional
        True for the live dashboard, False for plain lines; None finds out (see `has_front_end`).
    blocking : bool
        Whether the cell waits for the cluster. If not (``background``), nobody polls: the dashboard closes itself when
        the cluster has ended, and the plain display only says where to look.

    Returns
    -------
    Display
        To be polled while waiting, and closed at the end.
    """
    if has_front_end() if interactive is None else interactive:
        try:
            from tfos_lab.jupyter.dashboard import Dashboard

            return Dashboard(cluster, blocking=blocking)
        except ImportError as error:
            logger.warning("no live dashboard (%s); plain lines instead", error)
    from tfos_lab.jupyter.plain import PlainDisplay

    return PlainDisplay(cluster, blocking=blocking)


def has_front_end() -> bool:
    """Return whether somebody looks at this cell through a front end that can show widgets.

    There is none when ``TFOS_LAB_NONINTERACTIVE`` is set (to anything but ``0``), outside a Jupyter kernel (a script, a
    terminal), and where the kernel's client does not take input: nbclient, and so papermill and ``nbconvert
    --execute``, say ``allow_stdin=False`` with every cell; front ends with a person say true.
    """
    if os.environ.get(NONINTERACTIVE, "0") not in ("", "0"):
        return False
    kernel = current_kernel()
    return kernel is not None and _takes_input(kernel)


def current_kernel() -> Any | None:
    """Return the ipykernel that runs this code, or None."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None)


def _takes_input(kernel: Any) -> bool:
    try:
        content = kernel.get_parent()["content"]
    except (AttributeError, KeyError, LookupError, TypeError):
        return True
    return bool(content.get("allow_stdin", True))
