"""Charts that compare runs: one for each metric, a curve for each run, in inline SVG without scripts.

A run's curve has a colour, dashes and, at its end, a letter, so that none depends on colour alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tfos_lab.core.markup import Html, h, join
from tfos_lab.driver.metrics import EPOCH, by_weight, steps_go_on
from tfos_lab.driver.runs.compare import leading_reports
from tfos_lab.driver.runs.run import Run
from tfos_lab.notebook.display.formats import format_metric
from tfos_lab.notebook.display.metric_charts import Positions, Scale, positions, thin
from tfos_lab.notebook.display.series import Point, all_series

WIDTH, HEIGHT = 420, 180
LEFT, RIGHT, TOP, BOTTOM = 50, 22, 8, 24
HUES = 6
LETTERS = "ABCDEFGHIJKL"
MAX_CHARTS = 12

_MAX_POINTS = 200
_LETTER_HEIGHT = 11.0
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "5 2", "1 4")


def render_curves(runs: Sequence[Run], only: Sequence[str] | None = None) -> Html:
    """Return one chart for each metric that a run has reported, or for ``only`` some; nothing where there is none."""
    points = [_points_by_metric(run) for run in runs]
    names = by_weight(dict.fromkeys(key for one in points for key in one))
    names = [name for name in names if name != EPOCH and (only is None or name in only)]
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
    lines = {at: positions(thin(one, most), by_step=by_step) for at, one in points.items()}
    across = Scale([x for line in lines.values() for x, _ in line], LEFT, WIDTH - RIGHT)
    up = Scale([y for line in lines.values() for _, y in line if y is not None], HEIGHT - BOTTOM, TOP)
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


def _render_axes(across: Scale, up: Scale, *, whole: bool) -> Iterator[Html]:
    for value in up.ticks:
        y = up(value)
        yield h("path", cls="tfos-grid", d=f"M{LEFT} {y}H{WIDTH - RIGHT}", stroke="currentColor", opacity=".15")
        yield h("text", _tick(value), cls="tfos-tick", x=LEFT - 6, y=y + 3, text_anchor="end")
    for value in across.ticks:
        if not whole or value == int(value):
            yield h("text", _tick(value), cls="tfos-tick", x=across(value), y=HEIGHT - 8, text_anchor="middle")


def _tick(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 and value == int(value) else f"{value:g}"


def _render_line(number: int, line: Positions, across: Scale, up: Scale) -> Html | None:
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


def _render_letters(ends: Mapping[int, float | None], up: Scale) -> Iterator[Html]:
    """Yield each run's letter beside the end of its curve; letters that would cover one another move apart."""
    wanted = sorted((up(value), at) for at, value in ends.items() if value is not None)
    free = TOP - _LETTER_HEIGHT
    highest = HEIGHT - BOTTOM - _LETTER_HEIGHT * (len(wanted) - 1)
    for order, (y, at) in enumerate(wanted):
        free = max(free + _LETTER_HEIGHT, min(y, highest + _LETTER_HEIGHT * order))
        yield h("text", LETTERS[at], cls=f"tfos-end {hue(at)}", x=WIDTH - RIGHT + 6, y=f"{free + 3.5:.1f}")
