"""The metrics of a large cluster as three lines: the largest, the median and the least of all nodes' values. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tfos_lab.driver.metrics import EPOCH, on_curves
from tfos_lab.driver.state.events import ClusterView, MetricsReported

# The names of the lines, in the order of the legend.
BANDS = ("max", "median", "min")
# Of a whole run: so many reports are looked at, and so many moments are drawn.
_MAX_REPORTS = 24_000
_MOMENTS = 120


def bands_now(view: ClusterView, now_s: float) -> list[MetricsReported]:
    """Return the bands of what the nodes have reported last."""
    steps = sorted(node.step for node in view.nodes if node.step is not None and node.metrics)
    values: dict[str, list[float]] = {}
    for node in view.nodes:
        for name, value in node.metrics.items():
            values.setdefault(name, []).append(value)
    return _bands(values, steps, now_s) if steps else []


def bands_of(reports: Sequence[MetricsReported]) -> list[MetricsReported]:
    """Return the bands of a whole run, moment by moment."""
    some = on_curves(reports)[:: max(1, len(reports) // _MAX_REPORTS)]
    size = max(1, math.ceil(len(some) / _MOMENTS))
    moments = (some[start : start + size] for start in range(0, len(some), size))
    return [band for moment in moments for band in _of_moment(moment)]


def _of_moment(reports: Sequence[MetricsReported]) -> list[MetricsReported]:
    values: dict[str, list[float]] = {}
    for report in reports:
        for name, value in report.metrics.items():
            values.setdefault(name, []).append(value)
    steps = sorted(report.step for report in reports if report.step is not None)
    return _bands(values, steps, reports[-1].time_s) if steps else []


def _bands(values: dict[str, list[float]], steps: Sequence[int], now_s: float) -> list[MetricsReported]:
    """Return one report for each band, at the median step."""
    ordered = {name: sorted(filter(math.isfinite, all_values)) for name, all_values in values.items()}
    ordered = {name: finite for name, finite in ordered.items() if finite and name != EPOCH}
    at = {"max": _last, "median": _middle, "min": _first}
    return [
        MetricsReported(
            time_s=now_s,
            node=band,
            step=steps[len(steps) // 2],
            total_steps=None,
            metrics={name: at[band](finite) for name, finite in ordered.items()},
        )
        for band in BANDS
    ]


def _first(ordered: Sequence[float]) -> float:
    return ordered[0]


def _middle(ordered: Sequence[float]) -> float:
    return ordered[len(ordered) // 2]


def _last(ordered: Sequence[float]) -> float:
    return ordered[-1]
