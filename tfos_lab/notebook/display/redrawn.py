"""The card as HTML that is drawn again while the run goes on: the output of a cell whose front end has no widgets."""

from __future__ import annotations

import itertools
import logging
import threading
import time

from IPython.display import display, update_display

from tfos_lab.notebook.display.base import Display, WatchedCluster
from tfos_lab.notebook.display.kernel import NoProgressBars, current_kernel
from tfos_lab.notebook.display.static_bundle import bundle_of, pause_after

logger = logging.getLogger(__name__)

_numbers = itertools.count(1)


class RedrawnCard(Display):
    """Shows a cluster by pictures, one in the place of the other, until it is closed.

    Parameters
    ----------
    cluster : WatchedCluster
        The cluster to watch.
    blocking : bool
        Whether the cell waits and will close the display; if not, it closes itself when the cluster has ended.
    """

    def __init__(self, cluster: WatchedCluster, *, blocking: bool = True) -> None:
        self._cluster = cluster
        self._blocking = blocking
        self._id = f"tfos-{cluster.id}-drawn-{next(_numbers)}"
        self._closing = threading.Event()
        # No picture of the running cluster comes behind that of its end.
        self._drawing = threading.Lock()
        self._no_bars = NoProgressBars(current_kernel()) if blocking else None
        display(self._bundle(), raw=True, display_id=self._id)  # type: ignore[no-untyped-call]
        threading.Thread(target=self._run, name=f"tfos-display-{cluster.id}", daemon=True).start()

    def close(self) -> None:
        """Draw the cluster as it has ended; no other picture follows."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._draw()
        if self._no_bars is not None:
            self._no_bars.close()

    def _run(self) -> None:
        pause_s = 0.0
        while not self._closing.wait(pause_s):
            began_s = time.monotonic()
            size = self._draw(goes_on=True)
            if not self._blocking and self._cluster.view().state.ended:
                self.close()
            pause_s = pause_after(began_s, size)

    def _draw(self, *, goes_on: bool = False) -> int:
        """Draw the cluster as it is now, and return the picture's size; an error is logged and loses this one only."""
        with self._drawing:
            if goes_on and self._closing.is_set():
                return 0
            try:
                bundle = self._bundle()
                update_display(bundle, raw=True, display_id=self._id)  # type: ignore[no-untyped-call]
            except Exception:
                logger.exception("cluster %s was not drawn", self._cluster.id)
                return 0
            return len(bundle["text/html"])

    def _bundle(self) -> dict[str, str]:
        return bundle_of(self._cluster, raises=self._blocking, asks=False)
