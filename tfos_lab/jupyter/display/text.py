"""The output of a cell where nobody looks on: throttled ``[worker:1] …`` lines, then the summary.

For nbclient and papermill, scripts and terminals. Everything is written by the main thread, in `TextDisplay.poll`.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

from tfos_lab.engine.state.events import ClusterView, Event, LogText, MetricsReported, NodeChanged, StateChanged
from tfos_lab.jupyter.display import summary
from tfos_lab.jupyter.display.base import Display, WatchedCluster
from tfos_lab.jupyter.display.formats import format_metrics
from tfos_lab.jupyter.display.kernel import current_kernel
from tfos_lab.jupyter.display.log_files import link_to
from tfos_lab.jupyter.display.log_text import LineBuffer
from tfos_lab.jupyter.display.runs import plain_text
from tfos_lab.jupyter.display.static_bundle import make_bundle, render_text

# Each node may write so many lines at once, and so many per second in the long run; the rest is counted.
BURST_LINES = 100
LINES_PER_S = 20.0
METRICS_EVERY_S = 10.0
LAST_LINES = 5


class TextDisplay(Display):
    """Writes lines while the cell waits, and the summary at the end.

    Parameters
    ----------
    cluster : Cluster
        The cluster to watch.
    blocking : bool
        Whether the cell waits; if not, only the beginning and the end are told.
    stream : text file, optional
        Where to write; `sys.stdout` at the time of writing by default.
    clock : callable
        Seconds from any start; for tests.
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
            self._write([f"[{cluster.name}] runs in the background; %tfos shows how it is"])

    def poll(self) -> None:
        """Write what has come since the last call."""
        if self._subscription is None:
            return
        for event in self._subscription.take():
            self._lines.take_in(event, self._cluster)
        self._lines.lost_events(self._subscription.take_dropped())
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
        view = self._cluster.view()
        if current_kernel() is None:
            self._write([render_text(view, self._cluster.run_dir)])
            return
        from IPython.display import display

        bundle = make_bundle(
            view,
            lambda node, lines: self._cluster.logs(node, tail=lines),
            self._cluster.run_dir,
            self._cluster.reports_after(0)[0],
            link_of=lambda node: link_to(self._cluster.log_path(node)),
        )
        display(bundle, raw=True)  # type: ignore[no-untyped-call]

    def _write(self, lines: list[str]) -> None:
        if lines:
            stream = self._stream or sys.stdout
            stream.write("\n".join(lines) + "\n")
            stream.flush()


class TextLines:
    """Decides what is written: events in, lines out. No I/O; the clock is given."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._out: list[str] = []
        self._nodes: dict[str, _NodeLines] = {}
        self._metrics_due: dict[str, float] = {}
        self._told = ""

    def take_in(self, event: Event, cluster: WatchedCluster) -> None:
        """Take one event in."""
        match event:
            case LogText(node=node, text=text):
                self._node(node).add(text, self._clock())
                self._out += self._node(node).take_out()
            case MetricsReported(node=node):
                self._add_metrics(event)
            case StateChanged() | NodeChanged():
                self._print_state(cluster.view())

    def lost_events(self, count: int) -> None:
        """Say that the bus had to drop events."""
        if count:
            self._out.append(f"… {count:,} events came too fast and are not shown here; the files are whole")

    def take_out(self) -> list[str]:
        """Return the lines to write now."""
        out, self._out = self._out, []
        return out

    def finish(self) -> list[str]:
        """Return the last lines: unfinished ones, and how many were not shown."""
        for lines in self._nodes.values():
            self._out += lines.finish()
        return self.take_out()

    def _node(self, node: str) -> _NodeLines:
        if node not in self._nodes:
            self._nodes[node] = _NodeLines(node)
        return self._nodes[node]

    def _add_metrics(self, event: MetricsReported) -> None:
        now = self._clock()
        if now < self._metrics_due.get(event.node, 0.0):
            return
        self._metrics_due[event.node] = now + METRICS_EVERY_S
        total = f"/{event.total_steps}" if event.total_steps else ""
        step = f"step {event.step}{total} · " if event.step is not None else ""
        self._out.append(f"[{event.node}] {step}{format_metrics(event.metrics)}")

    def _print_state(self, view: ClusterView) -> None:
        reason = f": {view.reason}" if view.reason else ""
        told = f"[{view.name}] {view.state}, {summary.headline(view)}{reason}"
        if told != self._told:
            self._told = told
            self._out.append(told)


class _NodeLines:
    """One node's lines, with the right to so many per second."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._buffer = LineBuffer()
        self._allowed = float(BURST_LINES)
        self._since_s: float | None = None
        self._skipped: deque[str] = deque(maxlen=LAST_LINES)
        self._skipped_count = 0
        self._out: list[str] = []

    def add(self, text: str, now_s: float) -> None:
        if self._since_s is not None:
            self._allowed = min(BURST_LINES, self._allowed + (now_s - self._since_s) * LINES_PER_S)
        self._since_s = now_s
        for line in plain_text(self._buffer.feed(text)).splitlines():
            self._add_line(line)

    def take_out(self) -> list[str]:
        out, self._out = self._out, []
        return out

    def finish(self) -> list[str]:
        for line in plain_text(self._buffer.flush()).splitlines():
            self._add_line(line)
        if self._skipped_count:
            last = list(self._skipped)
            self._print_skipped(self._skipped_count - len(last))
            self._out += [f"[{self._node}] {line}" for line in last]
        return self.take_out()

    def _add_line(self, line: str) -> None:
        if not line.strip():
            return
        if self._allowed < 1:
            self._skipped.append(line)
            self._skipped_count += 1
            return
        self._allowed -= 1
        self._print_skipped(self._skipped_count)
        self._out.append(f"[{self._node}] {line}")

    def _print_skipped(self, count: int) -> None:
        if count > 0:
            self._out.append(f"[{self._node}] … {count:,} lines not shown here; the file is whole")
        self._skipped_count = 0
        self._skipped.clear()
