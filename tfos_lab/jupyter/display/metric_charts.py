"""The charts of the saved output: small line charts in inline SVG, without scripts.

``extensions/dashboard/src/charts.ts`` draws the same charts live, in the same size, so that nothing moves when a cell
ends.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

from tfos_lab.engine.metrics import by_weight, steps_go_on
from tfos_lab.jupyter.display.formats import format_metric
from tfos_lab.jupyter.display.marks import draw_line, draw_mark, draw_sample, hue_at
from tfos_lab.jupyter.display.series import Point, SeriesPoints

WIDTH, HEIGHT = 320, 130
LEFT, RIGHT, TOP, BOTTOM = 46, 8, 6, 20

MAX_CHARTS = 9
MAX_LINES = 32
# For all lines of a saved cell together.
_MAX_POINTS = 5_000
_LINE_POINTS = (16, 160)

Positions = list[tuple[float, float | None]]


def render_charts(series: Sequence[SeriesPoints], nodes: Sequence[str]) -> str:
    """Return one chart for each metric, or nothing where nothing was reported.

    Parameters
    ----------
    series : list of SeriesPoints
        What was reported; see `tfos_lab.jupyter.display.series`.
    nodes : list of str
        All nodes of the cluster, in order: a node's position selects its colour.
    """
    names = by_weight(dict.fromkeys(one["metric"] for one in series))
    series = sorted(series, key=lambda one: nodes.index(one["node"]) if one["node"] in nodes else len(nodes))
    if not names:
        return ""
    budget = max(_LINE_POINTS[0], min(_LINE_POINTS[1], _MAX_POINTS // len(series)))
    charts = [
        _render_chart(name, [one for one in series if one["metric"] == name][:MAX_LINES], nodes, budget)
        for name in names[:MAX_CHARTS]
    ]
    return (
        '<details class="tfos-metrics" open><summary>Metrics</summary>'
        f"{_render_legend(nodes, frozenset(one['node'] for one in series))}"
        f'<div class="tfos-charts">{"".join(charts)}</div>{_more(names[MAX_CHARTS:], series)}</details>'
    )


def _render_chart(name: str, series: Sequence[SeriesPoints], nodes: Sequence[str], budget: int) -> str:
    by_step = all(steps_go_on(step for _, step, _ in _all_points(one)) for one in series)
    lines = {one["node"]: _thin(_positions(_all_points(one), by_step=by_step), budget) for one in series}
    across = _Scale([x for line in lines.values() for x, _ in line], LEFT, WIDTH - RIGHT)
    up = _Scale([y for line in lines.values() for _, y in line if y is not None], HEIGHT - BOTTOM, TOP)
    last = {node: next((y for _, y in reversed(line) if y is not None), None) for node, line in lines.items()}
    body = "".join(
        _render_line(line, across, up, nodes.index(node) if node in nodes else 0) for node, line in lines.items()
    )
    label = f"{name}: " + ", ".join(f"{node} {_value(last[node])}" for node in list(lines)[:8])
    return (
        f'<figure class="tfos-chart"><figcaption><b>{html.escape(name)}</b> '
        f'<span class="tfos-facts">{html.escape(_range_text(list(last.values())))}</span></figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" aria-label="{html.escape(label)}">'
        f"{_render_axes(across, up, by_step=by_step)}{body}</svg></figure>"
    )


def _more(names: Sequence[str], series: Sequence[SeriesPoints]) -> str:
    """Return the newest values of the metrics that have no chart."""
    if not names:
        return ""
    newest = {name: [_newest(_all_points(one)) for one in series if one["metric"] == name] for name in names}
    told = ", ".join(f"{name} {_range_text(newest[name])}" for name in names)
    return f'<div class="tfos-note">and {len(names)} more metrics: {html.escape(told)}</div>'


def _newest(points: Sequence[Point]) -> float | None:
    return next((value for _, _, value in reversed(points) if value is not None), None)


def _all_points(one: SeriesPoints) -> list[Point]:
    return one["points"] if one["last"] is None else [*one["points"], one["last"]]


def _positions(points: Iterable[Point], *, by_step: bool) -> Positions:
    return [(float(step) if by_step and step is not None else time_s, value) for time_s, step, value in points]


def _thin(points: Positions, at_most: int) -> Positions:
    """Return about ``at_most`` points: the lowest and the highest of each section, so that no peak is lost."""
    if len(points) <= at_most:
        return points
    section = math.ceil(len(points) / (at_most / 2))
    kept: Positions = []
    for start in range(0, len(points) - 1, section):
        part = points[start : start + section]
        finite = [point for point in part if point[1] is not None]
        ends = [min(finite, key=_height), max(finite, key=_height)] if finite else part[:1]
        kept += sorted(dict.fromkeys(ends), key=lambda point: point[0])
    return [*kept, points[-1]] if kept[-1] != points[-1] else kept


def _height(point: tuple[float, float | None]) -> float:
    return point[1] or 0.0


class _Scale:
    """Maps values to coordinates, with round ticks."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        if low == high:
            pad = abs(low) * 0.1 or 1.0
            low, high = low - pad, high + pad
        self._low, self._per_unit = low, (end - start) / (high - low)
        self._start = start
        self.ticks = round_ticks(low, high)

    def __call__(self, value: float) -> float:
        return round(self._start + (value - self._low) * self._per_unit, 1)


def round_ticks(low: float, high: float, wanted: int = 4) -> list[float]:
    """Return about ``wanted`` round numbers between ``low`` and ``high``.

    Examples
    --------
    >>> round_ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.75)
    digits = max(0, 1 - math.floor(math.log10(step)))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, digits) + 0.0 for number in range(first, last + 1)]


def _render_axes(across: _Scale, up: _Scale, *, by_step: bool) -> str:
    parts = []
    for value in up.ticks:
        y = up(value)
        parts.append(f'<path class="tfos-grid" d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="currentColor" opacity=".15"/>')
        parts.append(f'<text class="tfos-tick" x="{LEFT - 5}" y="{y + 3}" text-anchor="end">{_tick(value)}</text>')
    for value in across.ticks:
        if by_step and value != int(value):
            continue
        position = f'x="{across(value)}" y="{HEIGHT - 6}"'
        parts.append(f'<text class="tfos-tick" {position} text-anchor="middle">{_tick(value)}</text>')
    unit = "step" if by_step else "s"
    parts.append(f'<text class="tfos-tick" x="{LEFT - 14}" y="{HEIGHT - 6}" text-anchor="end">{unit}</text>')
    return "".join(parts)


def _render_line(line: Positions, across: _Scale, up: _Scale, place: int) -> str:
    """Return a node's line, with its mark at the newest value."""
    path, pen = [], "M"
    for x, y in line:
        if y is None:
            pen = "M"
            continue
        path.append(f"{pen}{across(x):g} {up(y):g}")
        pen = "L"
    newest = next(((x, y) for x, y in reversed(line) if y is not None), None)
    if newest is None:
        return ""
    drawn = draw_line(place, "".join(path)) if len(path) > 1 else ""
    mark = draw_mark(place, across(newest[0]), up(newest[1]))
    return f'<g class="tfos-line tfos-hue{hue_at(place)}">{drawn}{mark}</g>'


def _render_legend(nodes: Sequence[str], reporting: frozenset[str]) -> str:
    """Return each node's line beside its name, where there is more than one."""
    shown = [(place, node) for place, node in enumerate(nodes) if node in reporting]
    if len(shown) < 2:
        return ""
    items = "".join(
        f'<span class="tfos-legend-item">{draw_sample(place)}{html.escape(node)}</span>' for place, node in shown
    )
    return f'<div class="tfos-legend">{items}</div>'


def _tick(value: float) -> str:
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:,.10g}"


def _value(value: float | None) -> str:
    return "not finite" if value is None else format_metric(value)


def _range_text(last: Sequence[float | None]) -> str:
    finite = [value for value in last if value is not None]
    if not finite:
        return "not finite"
    low, high = _value(min(finite)), _value(max(finite))
    return low if low == high else f"{low} – {high}"
