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
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self, TypeAlias

from tfos_lab.core.threads import on_a_thread
from tfos_lab.notebook.display.kernel import current_kernel, has_front_end, may_use_widgets

if TYPE_CHECKING:
    from tfos_lab.driver.cluster import Cluster
    from tfos_lab.driver.parallel.runs import ParallelRuns

#: What displays show.
WatchedCluster: TypeAlias = "Cluster | ParallelRuns"


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


def open_display(
    cluster: WatchedCluster, *, interactive: bool | None = None, blocking: bool = True, folds_error: bool = False
) -> Display:
    """Show ``cluster``, which may not be launched yet, in the output of the current cell.

    ``interactive`` is True for the live card and False for lines of text; by default, what fits (see `has_front_end`).
    If the cell does not wait (``blocking``), nobody polls: the dashboard closes itself when the cluster has ended, and
    the text display only says where to look. With ``folds_error``, the line of the notebook at which a node failed
    unfolds to the whole error, as the cluster's ``wait`` raises that, too.
    """
    if has_front_end() if interactive is None else interactive:
        if may_use_widgets():
            from tfos_lab.notebook.display.dashboard import Dashboard

            return Dashboard(cluster, blocking=blocking, folds_error=folds_error)
        from tfos_lab.notebook.display.plain_display import RedrawnCard

        return RedrawnCard(cluster, blocking=blocking, folds_error=folds_error)
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
        # The cell that needs it will report what is wrong.
        on_a_thread(lambda: importlib.import_module("tfos_lab.notebook.display.dashboard"), name="tfos-load")
