"""The points that charts show: one bounded series per metric and node; of a large cluster, those of three bands.

A series that gets too long drops every second point, so that drawing costs the same after a minute and after a night.
`cluster.metrics` has all points.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

from tfos_lab.driver.metrics import EPOCH, Curves, on_curves
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.driver.runs.compare import leading_reports
from tfos_lab.driver.runs.read import previous_run
from tfos_lab.driver.state.events import BANDS, ClusterView, MetricsReported, NodeView
from tfos_lab.notebook.display.summary import several_text

# Seconds since the call, step (or None), value (None where it is not finite: JSON knows no nan).
Point = tuple[float, int | None, float | None]

MAX_METRICS = 24
MAX_POINTS = 600
MAX_ALL_POINTS = 60_000
_MIN_POINTS = 60
# Values of nodes that differ by less are the same; so many steps are compared; a node with fewer points has just begun.
_SAME = 1e-6
_KNOWN_STEPS = 1_000
_JUST_BEGUN = 4


class SeriesPoints(TypedDict):
    """The points of one series, with the newest at their end.

    Where they are of parts of epochs, ``epochs`` are the means of whole ones. ``node`` is that of all nodes where they
    have all reported the same: ``"all 4 nodes"``.
    """

    metric: str
    node: str
    points: list[Point]
    epochs: NotRequired[list[Point]]


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

    def all(self) -> list[Point]:
        """Return the points, and the newest one in any case."""
        return [*self.points, *([self.last] if self.last else [])]

    @property
    def newest_s(self) -> float:
        """When the newest point was reported."""
        return (self.last or self.points[-1])[0]


class _Metric:
    """The series of one metric by node, and whether they are the same."""

    def __init__(self) -> None:
        self.curves: dict[str, _Series] = {}
        self.epochs: dict[str, _Series] = {}
        self._differ = False
        # The value and the node of the first report of each of the last steps; the nodes with which others agree.
        self._known: dict[tuple[int, bool], tuple[float, str]] = {}
        self._met: set[str] = set()

    def compare(self, report: MetricsReported, value: float, *, of_epoch: bool) -> None:
        """Note whether a node reports what others have reported for the same step."""
        if self._differ or report.step is None:
            self._differ = True
            return
        key = (report.step, of_epoch)
        known, node = self._known.setdefault(key, (value, report.node))
        if node == report.node:
            self._known[key] = (value, node)
        elif math.isclose(known, value, rel_tol=_SAME) or (math.isnan(known) and math.isnan(value)):
            self._met |= {node, report.node}
        else:
            self._differ = True
        if len(self._known) > _KNOWN_STEPS:
            del self._known[next(iter(self._known))]

    @property
    def agree(self) -> bool:
        """Whether the nodes agree in all steps that they have in common; those that have just begun may have none."""
        if self._differ or not self._met or BANDS[0] in self.curves:
            return False
        return all(node in self._met or len(series.points) < _JUST_BEGUN for node, series in self.curves.items())

    @property
    def furthest(self) -> str:
        """Of the nodes with which others agree, the one that has reported last: it tells the most."""
        both = (pair for kind in (self.curves, self.epochs) for pair in kind.items() if pair[0] in self._met)
        return max(both, key=lambda pair: pair[1].newest_s)[0]


class SeriesBook:
    """All series of one cluster."""

    def __init__(self, called_s: float) -> None:
        self._called_s = called_s
        self._curves = Curves()
        self._metrics: dict[str, _Metric] = {}
        self._count = 0

    def add(self, reports: Iterable[MetricsReported]) -> None:
        """Add reports."""
        for report in reports:
            on_curve = self._curves.points(report)
            time_s = round(report.time_s - self._called_s, 3)
            for metric, value in report.metrics.items():
                if metric not in self._metrics and len(self._metrics) >= MAX_METRICS:
                    continue
                own, of_epoch = self._metrics.setdefault(metric, _Metric()), metric not in on_curve
                own.compare(report, value, of_epoch=of_epoch)
                series = own.epochs if of_epoch else own.curves
                if report.node not in series:
                    self._count += 1
                    series[report.node] = _Series()
                point = (time_s, report.step, float(value) if math.isfinite(value) else None)
                series[report.node].add(point, max(_MIN_POINTS, min(MAX_POINTS, MAX_ALL_POINTS // self._count)))

    def series(self) -> list[SeriesPoints]:
        """Return all points of all series, one for all nodes where they agree."""
        found = []
        for name, metric in self._metrics.items():
            agree, nodes = metric.agree, [*metric.curves]
            for node in [metric.furthest] if agree else nodes:
                epochs = metric.epochs[node].all() if node in metric.epochs else []
                whose = several_text(nodes, len(nodes)) if agree else node
                found.append(SeriesPoints(metric=name, node=whose, points=metric.curves[node].all(), epochs=epochs))
        return found


def all_series(reports: Sequence[MetricsReported], called_s: float) -> list[SeriesPoints]:
    """Return the series of these reports."""
    book = SeriesBook(called_s)
    book.add(reports)
    return book.series()


def series_before(run_dir: str | Path | None, name: str) -> list[SeriesPoints]:
    """Return the series of the previous run of this name, one for each metric; none where there is none here."""
    # Which run that is depends on the code in this run's own record, which is written a moment after it began.
    if run_dir is None or "://" in str(run_dir) or not RunDir(Path(run_dir)).may_hold_run:
        return []
    return _series_before(Path(run_dir), name)


@functools.lru_cache(maxsize=16)
def _series_before(run_dir: Path, name: str) -> list[SeriesPoints]:
    run = previous_run(run_dir, name)
    return all_series(leading_reports(run), run.started_s) if run is not None else []


# ---- the bands of a large cluster ------------------------------------------------------------------------------------

# Of a whole run: so many reports are looked at, and so many moments are drawn.
_MAX_REPORTS = 24_000
_MOMENTS = 120


def bands_now(view: ClusterView, now_s: float) -> list[MetricsReported]:
    """Return the bands of what the nodes have reported last: the largest, the median and the least of their values."""
    return _bands([node for node in view.nodes if node.metrics], now_s)


def bands_of(reports: Sequence[MetricsReported]) -> list[MetricsReported]:
    """Return the bands of a whole run, moment by moment."""
    some = on_curves(reports)[:: max(1, len(reports) // _MAX_REPORTS)]
    size = max(1, math.ceil(len(some) / _MOMENTS))
    moments = (some[start : start + size] for start in range(0, len(some), size))
    return [band for moment in moments for band in _bands(moment, moment[-1].time_s)]


def _bands(told: Sequence[NodeView | MetricsReported], now_s: float) -> list[MetricsReported]:
    """Return one report for each band, at the median step."""
    steps = sorted(one.step for one in told if one.step is not None)
    if not steps:
        return []
    values: dict[str, list[float]] = {}
    for one in told:
        for name, value in one.metrics.items():
            values.setdefault(name, []).append(value)
    ordered = {name: sorted(filter(math.isfinite, all_values)) for name, all_values in values.items()}
    ordered = {name: finite for name, finite in ordered.items() if finite and name != EPOCH}
    middle = steps[len(steps) // 2]
    return [
        MetricsReported(
            time_s=now_s,
            node=band,
            step=middle,
            total_steps=None,
            metrics={name: finite[min(int(share * len(finite)), len(finite) - 1)] for name, finite in ordered.items()},
        )
        for band, share in zip(BANDS, (1.0, 0.5, 0.0), strict=True)
    ]
