"""The charts of the card: small line charts in inline SVG. Pure.

In the live page ``extensions/dashboard/src/tips.ts`` shows the values at the pointer, which stand beside each line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tfos_lab.core.markup import Html, h
from tfos_lab.engine.metrics import by_weight, steps_go_on
from tfos_lab.jupyter.display.bands import BANDS
from tfos_lab.jupyter.display.formats import format_metric
from tfos_lab.jupyter.display.marks import dash_at, draw_line, draw_mark, draw_sample, hue_at
from tfos_lab.jupyter.display.series import Point, SeriesPoints

WIDTH, HEIGHT = 320, 130
LEFT, RIGHT, TOP, BOTTOM = 46, 8, 6, 20

MAX_LINES = 64
# From so many lines on, each is drawn thin and light; more charts than that scroll in the live page.
_MANY_LINES = 17
_MANY_CHARTS = 7
# For all lines of a card together.
_MAX_POINTS = 5_000
_LINE_POINTS = (16, 160)

Positions = list[tuple[float, float | None]]


def render_charts(series: Sequence[SeriesPoints], nodes: Sequence[str], *, with_values: bool = False) -> Html:
    """Return one chart for each metric, or nothing where nothing was reported.

    Parameters
    ----------
    series : list of SeriesPoints
        What was reported; see `tfos_lab.jupyter.display.series`.
    nodes : list of str
        All nodes of the cluster, in order: a node's position selects its colour.
    with_values : bool
        Whether the values of all points stand beside the lines, for a page that shows them.
    """
    if not series:
        return Html("")
    places = {node: place for place, node in enumerate(nodes)}
    lines: dict[str, dict[str, Sequence[Point]]] = {}
    for one in sorted(series, key=lambda one: places.get(one["node"], len(places))):
        lines.setdefault(one["metric"], {})[one["node"]] = one["points"]
    budget = max(_LINE_POINTS[0], min(_LINE_POINTS[1], _MAX_POINTS // len(series)))
    charts = [_render_chart(name, lines[name], places, budget, with_values=with_values) for name in by_weight(lines)]
    reporting = {one["node"] for one in series}
    classes = ["tfos-charts"]
    classes += ["tfos-many-lines"] if len(reporting) >= _MANY_LINES else []
    classes += ["tfos-many-charts"] if len(charts) >= _MANY_CHARTS else []
    legend = _render_legend(nodes, reporting)
    grid = h("div", *charts, cls=" ".join(classes))
    return h("details", h("summary", "Metrics"), legend, grid, cls="tfos-metrics", open=True)


def _render_chart(
    name: str, lines: Mapping[str, Sequence[Point]], places: Mapping[str, int], budget: int, *, with_values: bool
) -> Html:
    by_step = all(steps_go_on(step for _, step, _ in points) for points in lines.values())
    drawn = {
        node: _thin(_positions(points, by_step=by_step), budget) for node, points in list(lines.items())[:MAX_LINES]
    }
    across = _Scale([x for line in drawn.values() for x, _ in line], LEFT, WIDTH - RIGHT)
    up = _Scale([y for line in drawn.values() for _, y in line if y is not None], HEIGHT - BOTTOM, TOP)
    last = {node: next((y for _, y in reversed(line) if y is not None), None) for node, line in drawn.items()}
    told = ", ".join(f"{node} {_value(last[node])}" for node in list(drawn)[:8])
    svg = h(
        "svg",
        *_render_axes(across, up, by_step=by_step),
        _render_band(drawn, across, up),
        *(
            _render_line(node, line, across, up, places.get(node, 0), with_values=with_values)
            for node, line in drawn.items()
        ),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        width=WIDTH,
        role="img",
        aria_label=f"{name}: {told}",
        data_unit=("step" if by_step else "s") if with_values else None,
        data_across=across.told if with_values else None,
    )
    caption = h("figcaption", h("b", name), " ", h("span", _range_text(list(last.values())), cls="tfos-facts"))
    return h("figure", caption, svg, cls="tfos-chart", data_key=name)


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

    @property
    def told(self) -> str:
        """The lowest value, its coordinate, and the coordinates per unit."""
        return f"{self._low!r} {self._start} {self._per_unit!r}"

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


def _render_axes(across: _Scale, up: _Scale, *, by_step: bool) -> Iterator[Html]:
    for value in up.ticks:
        y = up(value)
        yield h("path", cls="tfos-grid", d=f"M{LEFT} {y}H{WIDTH - RIGHT}", stroke="currentColor", opacity=".15")
        yield _render_text(LEFT - 5, y + 3, "end", _tick(value))
    for value in across.ticks:
        if not by_step or value == int(value):
            yield _render_text(across(value), HEIGHT - 6, "middle", _tick(value))
    yield _render_text(LEFT - 14, HEIGHT - 6, "end", "step" if by_step else "s")


def _render_text(x: float, y: float, anchor: str, text: str) -> Html:
    return h("text", text, cls="tfos-tick", x=x, y=y, text_anchor=anchor)


def _render_band(lines: Mapping[str, Positions], across: _Scale, up: _Scale) -> Html | None:
    """Return where the values of all nodes of a large cluster lie."""
    if tuple(lines) != BANDS:
        return None
    high, low = (_path([point for point in lines[band] if point[1] is not None], across, up) for band in ("max", "min"))
    there, back = high, low.replace("M", "L").split("L")[:0:-1]
    return h("path", cls="tfos-band", d=f"{there}L{'L'.join(back)}Z") if there and back else None


def _path(line: Positions, across: _Scale, up: _Scale) -> str:
    """Return an SVG path; a value that is not finite leaves a gap."""
    path, pen = [], "M"
    for x, y in line:
        if y is None:
            pen = "M"
            continue
        path.append(f"{pen}{across(x):g} {up(y):g}")
        pen = "L"
    return "".join(path)


def _render_line(
    node: str, line: Positions, across: _Scale, up: _Scale, place: int, *, with_values: bool
) -> Html | None:
    """Return a node's line, with its mark at the newest value."""
    newest = next(((x, y) for x, y in reversed(line) if y is not None), None)
    if newest is None:
        return None
    path = _path(line, across, up)
    return h(
        "g",
        draw_line(place, path) if "L" in path else None,
        draw_mark(place, across(newest[0]), up(newest[1])),
        cls=f"tfos-line tfos-hue{hue_at(place)}",
        data_node=node if with_values else None,
        data_dash=dash_at(place) if with_values else None,
        data_points=" ".join(f"{x:.10g}={'' if y is None else format_metric(y)}" for x, y in line)
        if with_values
        else None,
    )


def _render_legend(nodes: Sequence[str], reporting: set[str]) -> Html | None:
    """Return each node's line beside its name, where there is more than one."""
    shown = [(place, node) for place, node in enumerate(nodes) if node in reporting]
    if len(shown) < 2:
        return None
    items = (h("span", draw_sample(place), node, cls="tfos-legend-item") for place, node in shown)
    return h("div", *items, cls="tfos-legend", role="group", aria_label="Lines of nodes")


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
