"""Charts that compare runs: one for each metric, a curve for each run, in inline SVG without scripts.

A run's curve has a colour, dashes and, at its end, a letter, so that none depends on colour alone.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

from tfos_lab.engine.metrics import UNPLOTTED, by_weight, steps_go_on
from tfos_lab.engine.runs.compare import leading_reports
from tfos_lab.engine.runs.run import Run
from tfos_lab.jupyter.display.formats import format_metric
from tfos_lab.jupyter.display.metric_charts import round_ticks
from tfos_lab.jupyter.display.series import Point, all_series

WIDTH, HEIGHT = 420, 180
LEFT, RIGHT, TOP, BOTTOM = 50, 22, 8, 24
HUES = 6
LETTERS = "ABCDEFGHIJKL"
MAX_CHARTS = 12

_MAX_POINTS = 200
_LETTER_HEIGHT = 11.0
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "5 2", "1 4")

Line = list[tuple[float, float | None]]


def render_curves(runs: Sequence[Run]) -> str:
    """Return one chart for each metric that a run has reported, or nothing where none has."""
    points = [_points_by_metric(run) for run in runs]
    names = [name for name in by_weight(dict.fromkeys(key for one in points for key in one)) if name not in UNPLOTTED]
    charts = [_render_chart(name, {at: one[name] for at, one in enumerate(points) if name in one}) for name in names]
    more = len(charts) - MAX_CHARTS
    rest = f'<div class="tfos-note">and {more} more metrics</div>' if more > 0 else ""
    return f'<div class="tfos-compared">{"".join(charts[:MAX_CHARTS])}</div>{rest}' if charts else ""


def line_sample(number: int) -> str:
    """Return a short line as the ``number``-th run's curves are drawn, for the legend."""
    return (
        '<svg viewBox="0 0 28 8" width="28" height="8" aria-hidden="true">'
        f'<path class="tfos-curve" d="M0 4H28"{_dashes(number)}/></svg>'
    )


def hue(number: int) -> str:
    """Return the class that gives the ``number``-th run its colour."""
    return f"tfos-run{number % HUES}"


def _dashes(number: int) -> str:
    # From the second round of colours on, the dashes are others.
    dashes = _DASHES[(number + number // HUES) % len(_DASHES)]
    return f' stroke-dasharray="{dashes}"' if dashes else ""


def _points_by_metric(run: Run) -> dict[str, list[Point]]:
    series = all_series(leading_reports(run), run.started_s)
    return {one["metric"]: one["points"] for one in series}


def _render_chart(name: str, points: Mapping[int, Sequence[Point]]) -> str:
    by_step = all(steps_go_on(step for _, step, _ in one) for one in points.values())
    lines = {at: _thin(_positions(one, by_step=by_step)) for at, one in points.items()}
    across = _Scale([x for line in lines.values() for x, _ in line], LEFT, WIDTH - RIGHT)
    up = _Scale([y for line in lines.values() for _, y in line if y is not None], HEIGHT - BOTTOM, TOP)
    body = "".join(_render_line(at, line, across, up) for at, line in lines.items())
    ends = {at: next((y for _, y in reversed(line) if y is not None), None) for at, line in lines.items()}
    told = ", ".join(f"{LETTERS[at]} {'nan' if value is None else format_metric(value)}" for at, value in ends.items())
    unit = "step" if by_step else "seconds"
    return (
        f'<figure><figcaption><b>{html.escape(name)}</b> <span class="tfos-facts">by {unit}</span></figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" '
        f'aria-label="{html.escape(f"{name}, last values: {told}")}">'
        f"{_render_axes(across, up, whole=by_step)}{body}{_render_letters(ends, up)}</svg></figure>"
    )


def _positions(points: Sequence[Point], *, by_step: bool) -> Line:
    return [(float(step) if by_step and step is not None else time_s, value) for time_s, step, value in points]


def _thin(line: Line) -> Line:
    """Return about so many points as can be seen: the lowest and the highest of each section, and the last."""
    if len(line) <= _MAX_POINTS:
        return line
    section = math.ceil(2 * len(line) / _MAX_POINTS)
    kept: Line = []
    for start in range(0, len(line), section):
        part = line[start : start + section]
        finite = sorted((y, number) for number, (_, y) in enumerate(part) if y is not None)
        ends = sorted({finite[0][1], finite[-1][1]}) if finite else [0]
        kept += [part[number] for number in ends]
    return kept if kept[-1] == line[-1] else [*kept, line[-1]]


class _Scale:
    """Maps values to coordinates, with round ticks."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        if low == high:
            pad = abs(low) * 0.1 or 1.0
            low, high = low - pad, high + pad
        self._low, self._start = low, start
        self._per_unit = (end - start) / (high - low)
        self.ticks = round_ticks(low, high)

    def __call__(self, value: float) -> float:
        return round(self._start + (value - self._low) * self._per_unit, 1)


def _render_axes(across: _Scale, up: _Scale, *, whole: bool) -> str:
    parts = []
    for value in up.ticks:
        y = up(value)
        parts.append(f'<path class="tfos-grid" d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="currentColor" opacity=".15"/>')
        parts.append(f'<text class="tfos-tick" x="{LEFT - 6}" y="{y + 3}" text-anchor="end">{_tick(value)}</text>')
    for value in across.ticks:
        if not whole or value == int(value):
            place = f'x="{across(value)}" y="{HEIGHT - 8}"'
            parts.append(f'<text class="tfos-tick" {place} text-anchor="middle">{_tick(value)}</text>')
    return "".join(parts)


def _tick(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 and value == int(value) else f"{value:g}"


def _render_line(number: int, line: Line, across: _Scale, up: _Scale) -> str:
    path, pen, drawn = [], "M", 0
    for x, y in line:
        if y is None:
            pen = "M"
            continue
        path.append(f"{pen}{across(x):g} {up(y):g}")
        pen, drawn = "L", drawn + 1
    if not drawn:
        return ""
    if drawn == 1:
        left, top = path[0].removeprefix("M").split()
        return f'<circle class="tfos-dot {hue(number)}" cx="{left}" cy="{top}" r="2.5"/>'
    return f'<path class="tfos-curve {hue(number)}" d="{"".join(path)}"{_dashes(number)}/>'


def _render_letters(ends: Mapping[int, float | None], up: _Scale) -> str:
    """Return each run's letter beside the end of its curve; letters that would cover one another move apart."""
    wanted = sorted((up(value), at) for at, value in ends.items() if value is not None)
    parts, free = [], TOP - _LETTER_HEIGHT
    highest = HEIGHT - BOTTOM - _LETTER_HEIGHT * (len(wanted) - 1)
    for order, (y, at) in enumerate(wanted):
        free = max(free + _LETTER_HEIGHT, min(y, highest + _LETTER_HEIGHT * order))
        parts.append(
            f'<text class="tfos-end {hue(at)}" x="{WIDTH - RIGHT + 6}" y="{free + 3.5:.1f}">{LETTERS[at]}</text>'
        )
    return "".join(parts)
