"""The output of a cell that nobody watches: lines such as ``[worker:1] …``, then the summary.

For nbclient and papermill, scripts and terminals. The main thread writes everything, in `TextDisplay.poll`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

from tfos_lab.notebook.display.base import Display, WatchedCluster
from tfos_lab.notebook.display.kernel import current_kernel
from tfos_lab.notebook.display.static_bundle import bundle_of
from tfos_lab.notebook.display.static_text import render_text
from tfos_lab.notebook.display.text_lines import TextLines


class TextDisplay(Display):
    """Writes lines while the cell waits, and the summary at the end.

    Parameters
    ----------
    cluster : Cluster
        The cluster to watch.
    blocking : bool
        Whether the cell waits; if not, only a first line and the summary are written.
    stream : text file, optional
        Where to write; by default `sys.stdout`, looked up at each write.
    clock : callable
        Returns seconds since any moment; tests have their own.
    """

    def __init__(
        self,
        cluster: WatchedCluster,
        *,
        blocking: bool = True,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._stream = stream
        self._lines = TextLines(clock)
        self._closed = False
        self._subscription = cluster.bus.subscribe() if blocking else None
        if not blocking:
            self._write([f"[{cluster.name}] runs in the background; %tfos shows its state"])

    def poll(self) -> None:
        """Write what has arrived since the last call."""
        if self._subscription is None:
            return
        for event in self._subscription.take():
            self._lines.take_in(event, self._cluster)
        self._lines.look_at(self._cluster)
        self._lines.add_dropped(self._subscription.take_dropped())
        self._write(self._lines.take_out())

    def close(self) -> None:
        """Write what is left, then the summary."""
        if self._closed:
            return
        self._closed = True
        self.poll()
        self._write(self._lines.finish())
        if self._subscription is not None:
            self._subscription.close()
        self._write_summary()

    def _write_summary(self) -> None:
        if current_kernel() is None:
            self._write([render_text(self._cluster.view(), self._cluster.run_dir)])
            return
        from IPython.display import display

        display(bundle_of(self._cluster, raises=True), raw=True)  # type: ignore[no-untyped-call]

    def _write(self, lines: list[str]) -> None:
        if lines:
            stream = self._stream or sys.stdout
            stream.write("\n".join(lines) + "\n")
            stream.flush()
