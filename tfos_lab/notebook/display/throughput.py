"""Throughput: rows and bytes per second over the last few seconds. Pure: the caller brings views and times."""

from __future__ import annotations

from collections import deque

from tfos_lab.driver.state.events import ClusterView

WINDOW_S = 5.0
_MIN_SPAN_S = 0.5


class Meter:
    """The rate of a number that grows."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque()

    def record(self, now_s: float, value: float) -> None:
        """Add a sample."""
        if self._samples and value < self._samples[-1][1]:
            self._samples.clear()  # counted from the start again
        self._samples.append((now_s, value))
        while len(self._samples) > 2 and self._samples[1][0] <= now_s - WINDOW_S:
            self._samples.popleft()

    @property
    def per_s(self) -> float | None:
        """The rate over the last seconds; None while there are too few samples."""
        if not self._samples or not self._samples[-1][1]:
            return None
        (first_s, first), (last_s, last) = self._samples[0], self._samples[-1]
        return (last - first) / (last_s - first_s) if last_s - first_s >= _MIN_SPAN_S else None


class Throughput:
    """The rates of one cluster: rows that its nodes read, rows and bytes that are fed."""

    def __init__(self) -> None:
        self._nodes: dict[str, Meter] = {}
        self._rows = Meter()
        self._bytes = Meter()

    def record(self, view: ClusterView, now_s: float) -> None:
        """Add a sample of the cluster."""
        for node in view.nodes:
            self._nodes.setdefault(node.name, Meter()).record(now_s, node.rows)
        feed = view.feeds[-1] if view.feeds else None
        if feed is not None and feed.kind != "inference" and not feed.complete:
            self._rows.record(now_s, sum(feed.rows.values()))
            self._bytes.record(now_s, feed.size_bytes)

    def rows_per_s(self, node: str) -> float | None:
        """Rows per second that a node reads."""
        return self._nodes[node].per_s if node in self._nodes else None

    @property
    def fed_rows_per_s(self) -> float | None:
        """Rows per second that reach the nodes."""
        return self._rows.per_s

    @property
    def fed_bytes_per_s(self) -> float | None:
        """Bytes per second that reach the nodes."""
        return self._bytes.per_s
