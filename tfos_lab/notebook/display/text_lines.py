"""Which lines the text display writes: a limited number per node and second, and changes of state.

Pure: events go in, lines come out; the caller brings the clock.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

from tfos_lab.driver.state.events import Event, LogText, MetricsReported, NodeChanged, StateChanged
from tfos_lab.notebook.display import summary
from tfos_lab.notebook.display.base import WatchedCluster
from tfos_lab.notebook.display.formats import format_metrics
from tfos_lab.notebook.display.log_text import LineBuffer
from tfos_lab.notebook.display.runs import plain_text

# Each node may write this many lines at once, and this many per second on average; further ones are only counted.
BURST_LINES = 100
LINES_PER_S = 20.0
METRICS_EVERY_S = 10.0
LAST_LINES = 5
LOOK_EVERY_S = 1.0
# So many times as long as a look at all nodes took, their changes of state are not looked at.
_REST = 20.0

_FIGURES = re.compile(r"[\d.,]+")


class TextLines:
    """Turns events into the lines to write."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._out: list[str] = []
        self._nodes: dict[str, _NodeLines] = {}
        self._metrics_due: dict[str, float] = {}
        self._last_state = ""
        self._state_due = 0.0
        self._look_due = 0.0
        self._said: dict[str, str] = {}
        self._alarm = ""

    def take_in(self, event: Event, cluster: WatchedCluster) -> None:
        """Add one event."""
        match event:
            case LogText(node=node, text=text):
                self._node(node).add(text, self._clock())
                self._out += self._node(node).take_out()
            case MetricsReported(node=node):
                self._add_metrics(event)
            case StateChanged():
                self._print_state(cluster)
            case NodeChanged() if self._clock() >= self._state_due:
                self._print_state(cluster)

    def look_at(self, cluster: WatchedCluster) -> None:
        """Add why training is slow, what is not a number, and which nodes hang, where that has changed."""
        if self._clock() < self._look_due:
            return
        self._look_due = self._clock() + LOOK_EVERY_S
        view = cluster.view()
        progress = summary.progress_text(view)
        # Its figures change all the time.
        self._say(view.name, _FIGURES.sub("", view.verdict), " · ".join(filter(None, (progress, view.verdict))))
        if view.alarm and view.alarm != self._alarm:
            self._out.append(f"[{view.name}] {view.alarm}")
        self._alarm = view.alarm
        for node in view.nodes:
            self._say(node.name, "hangs" if summary.hangs(node) else "", f"hangs: {node.hung}")

    def _say(self, who: str, kind: str, text: str) -> None:
        if kind and kind != self._said.get(who):
            self._out.append(f"[{who}] {text}")
        self._said[who] = kind

    def add_dropped(self, count: int) -> None:
        """Add how many events the bus has dropped."""
        if count:
            self._out.append(f"… {count:,} events came too fast and are not shown here; the files are complete")

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

    def _print_state(self, cluster: WatchedCluster) -> None:
        began_s, view = self._clock(), cluster.view()
        # The view of thousands of nodes takes a while, and each of them changes its state.
        self._state_due = self._clock() + (self._clock() - began_s) * _REST
        reason = f": {view.reason}" if view.reason else ""
        text = f"[{view.name}] {view.state}, {summary.headline(view)}{reason}"
        if text != self._last_state:
            self._last_state = text
            self._out.append(text)


class _NodeLines:
    """The lines of one node, limited per second."""

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
            self._out.append(f"[{self._node}] … {count:,} lines not shown here; the file is complete")
        self._skipped_count = 0
        self._skipped.clear()
