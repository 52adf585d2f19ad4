"""Charts that compare runs: one for each metric, a curve for each run, in inline SVG without scripts.

A run's curve has a colour, dashes and, at its end, a letter, so that none depends on colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from tfos_lab.core.markup import Html, h, join
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


def render_curves(runs: Sequence[Run], only: Sequence[str] | None = None) -> Html:
    """Return one chart for each metric that a run has reported, or for ``only`` some; nothing where there is none."""
    points = [_points_by_metric(run) for run in runs]
    names = by_weight(dict.fromkeys(key for one in points for key in one))
    names = [name for name in names if name not in UNPLOTTED and (only is None or name in only)]
    charts = [_render_chart(name, {at: one[name] for at, one in enumerate(points) if name in one}) for name in names]
    more = len(charts) - MAX_CHARTS
    rest = h("div", f"and {more} more metrics", cls="tfos-note") if more > 0 else None
    return join(h("div", *charts[:MAX_CHARTS], cls="tfos-compared"), rest) if charts else Html("")


def line_sample(number: int) -> Html:
    """Return a short line as the ``number``-th run's curves are drawn, for the legend."""
    path = h("path", cls="tfos-curve", d="M0 4H28", stroke_dasharray=_dashes(number))
    return h("svg", path, viewBox="0 0 28 8", width=28, height=8, aria_hidden="true")


def hue(number: int) -> str:
    """Return the class that gives the ``number``-th run its colour."""
    return f"tfos-run{number % HUES}"


def _dashes(number: int) -> str | None:
    # From the second round of colours on, the dashes are others.
    return _DASHES[(number + number // HUES) % len(_DASHES)] or None


def _points_by_metric(run: Run) -> dict[str, list[Point]]:
    series = all_series(leading_reports(run), run.started_s)
    return {one["metric"]: one["points"] for one in series}


def _render_chart(name: str, points: Mapping[int, Sequence[Point]]) -> Html:
    by_step = all(steps_go_on(step for _, step, _ in one) for one in points.values())
    most = _MAX_POINTS if len(points) > 1 else _MAX_POINTS // 2
    lines = {at: _thin(_positions(one, by_step=by_step), most) for at, one in points.items()}
    across = _Scale([x for line in lines.values() for x, _ in line], LEFT, WIDTH - RIGHT)
    up = _Scale([y for line in lines.values() for _, y in line if y is not None], HEIGHT - BOTTOM, TOP)
    ends = {at: next((y for _, y in reversed(line) if y is not None), None) for at, line in lines.items()}
    told = ", ".join(f"{LETTERS[at]} {'nan' if value is None else format_metric(value)}" for at, value in ends.items())
    unit = "step" if by_step else "seconds"
    svg = h(
        "svg",
        *_render_axes(across, up, whole=by_step),
        *(_render_line(at, line, across, up) for at, line in lines.items()),
        *(_render_letters(ends, up) if len(lines) > 1 else ()),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        width=WIDTH,
        role="img",
        aria_label=f"{name}, last values: {told}",
    )
    return h("figure", h("figcaption", h("b", name), " ", h("span", f"by {unit}", cls="tfos-facts")), svg)


def _positions(points: Sequence[Point], *, by_step: bool) -> Line:
    return [(float(step) if by_step and step is not None else time_s, value) for time_s, step, value in points]


def _thin(line: Line, most: int) -> Line:
    """Return about so many points as can be seen: the lowest and the highest of each section, and the last."""
    if len(line) <= most:
        return line
    section = math.ceil(2 * len(line) / most)
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


def _render_axes(across: _Scale, up: _Scale, *, whole: bool) -> Iterator[Html]:
    for value in up.ticks:
        y = up(value)
        yield h("path", cls="tfos-grid", d=f"M{LEFT} {y}H{WIDTH - RIGHT}", stroke="currentColor", opacity=".15")
        yield h("text", _tick(value), cls="tfos-tick", x=LEFT - 6, y=y + 3, text_anchor="end")
    for value in across.ticks:
        if not whole or value == int(value):
            yield h("text", _tick(value), cls="tfos-tick", x=across(value), y=HEIGHT - 8, text_anchor="middle")


def _tick(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 and value == int(value) else f"{value:g}"


def _render_line(number: int, line: Line, across: _Scale, up: _Scale) -> Html | None:
    path, pen, drawn = [], "M", 0
    for x, y in line:
        if y is None:
            pen = "M"
            continue
        path.append(f"{pen}{across(x):g} {up(y):g}")
        pen, drawn = "L", drawn + 1
    if not drawn:
        return None
    if drawn == 1:
        left, top = path[0].removeprefix("M").split()
        return h("circle", cls=f"tfos-dot {hue(number)}", cx=left, cy=top, r=2.5)
    return h("path", cls=f"tfos-curve {hue(number)}", d="".join(path), stroke_dasharray=_dashes(number))


def _render_letters(ends: Mapping[int, float | None], up: _Scale) -> Iterator[Html]:
    """Yield each run's letter beside the end of its curve; letters that would cover one another move apart."""
    wanted = sorted((up(value), at) for at, value in ends.items() if value is not None)
    free = TOP - _LETTER_HEIGHT
    highest = HEIGHT - BOTTOM - _LETTER_HEIGHT * (len(wanted) - 1)
    for order, (y, at) in enumerate(wanted):
        free = max(free + _LETTER_HEIGHT, min(y, highest + _LETTER_HEIGHT * order))
        yield h("text", LETTERS[at], cls=f"tfos-end {hue(at)}", x=WIDTH - RIGHT + 6, y=f"{free + 3.5:.1f}")
