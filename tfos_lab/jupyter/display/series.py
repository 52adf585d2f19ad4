"""The points that charts show: one bounded series per metric and node.

A series that gets too long drops every second point, so that drawing costs the same after a minute and after a night.
`cluster.metrics` has all points.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypedDict

from tfos_lab.engine.runs.compare import leading_reports
from tfos_lab.engine.runs.find import previous_run
from tfos_lab.engine.state.events import MetricsReported

# Seconds since the call, step (or None), value (None where it is not finite: JSON knows no nan).
Point = tuple[float, int | None, float | None]

MAX_METRICS = 24
MAX_POINTS = 600
MAX_ALL_POINTS = 60_000
_MIN_POINTS = 60


class SeriesPoints(TypedDict):
    """The points of one series, with the newest at their end."""

    metric: str
    node: str
    points: list[Point]


class _Series:
    """One line of a chart: every ``stride``-th report, and the newest one."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.last: Point | None = None
        self._stride = 1
        self._passed = 0

    def add(self, point: Point, at_most: int) -> None:
        self.last = point
        self._passed += 1
        if self._passed < self._stride:
            return
        self._passed, self.last = 0, None
        self.points.append(point)
        if len(self.points) > at_most:
            del self.points[1:-1:2]
            self._stride *= 2


class SeriesBook:
    """All series of one cluster."""

    def __init__(self, called_s: float) -> None:
        self._called_s = called_s
        self._series: dict[str, dict[str, _Series]] = {}

    def add(self, reports: Iterable[MetricsReported]) -> None:
        """Add reports."""
        for report in reports:
            for metric, value in report.metrics.items():
                self._add(metric, report, value)

    def _add(self, metric: str, report: MetricsReported, value: float) -> None:
        if metric not in self._series and len(self._series) >= MAX_METRICS:
            return
        own = self._series.setdefault(metric, {})
        series = own.setdefault(report.node, _Series())
        count = sum(len(nodes) for nodes in self._series.values())
        time_s = round(report.time_s - self._called_s, 3)
        point = (time_s, report.step, float(value) if math.isfinite(value) else None)
        series.add(point, max(_MIN_POINTS, min(MAX_POINTS, MAX_ALL_POINTS // count)))

    def series(self) -> list[SeriesPoints]:
        """Return all points of all series."""
        return [
            SeriesPoints(metric=metric, node=node, points=[*series.points, *([series.last] if series.last else [])])
            for metric, nodes in self._series.items()
            for node, series in nodes.items()
        ]


def all_series(reports: Sequence[MetricsReported], called_s: float) -> list[SeriesPoints]:
    """Return the series of these reports."""
    book = SeriesBook(called_s)
    book.add(reports)
    return book.series()


@functools.lru_cache(maxsize=16)
def series_before(run_dir: str | Path | None, name: str) -> list[SeriesPoints]:
    """Return the series of the previous run of this name, one for each metric; none where there is none here."""
    run = previous_run(Path(run_dir), name) if run_dir is not None and "://" not in str(run_dir) else None
    return all_series(leading_reports(run), run.started_s) if run is not None else []
