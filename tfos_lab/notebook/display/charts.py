"""Small line charts in inline SVG: one for each metric, with a line for each node, or for each of several runs. Pure.

In the live page ``extensions/dashboard/src/tips.ts`` shows the values at the pointer, which stand beside each line.
Colours (``hues.css``), dashes and shapes tell nodes apart, and runs, which have letters, too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tfos_lab.core.markup import Html, h
from tfos_lab.driver.metrics import EPOCH, VALIDATION, by_weight, steps_go_on
from tfos_lab.driver.state.events import BANDS, ClusterView, usage_lines
from tfos_lab.notebook.display.series import Point, SeriesPoints
from tfos_lab.texts import format_metric, needs_exponent, with_exponent

Positions = list[tuple[float, float | None]]


# ---- colours, dashes and shapes of lines ----------------------------------------------------------------------------

# So many colours there are; farther nodes have them again, with other dashes and shapes.
HUES = 16
# Dashes of lines, in pixels; nodes that have the same one have colours that anybody can tell apart.
DASHES = ("", "6 2.5", "2 2", "8 2 2 2")
# Corners of marks around a point: square, circle (which has none), triangle, diamond.
_CORNERS = ("-3,-3 3,-3 3,3 -3,3", "", "0,-4 4,3 -4,3", "0,-4.2 4.2,0 0,4.2 -4.2,0")


def hue_at(place: int) -> int:
    """Return the number of a place's colour."""
    return place % HUES


def dash_at(place: int) -> int:
    """Return the number of a place's dash and shape.

    Examples
    --------
    >>> len({(hue_at(place), dash_at(place)) for place in range(64)})
    64
    """
    return (place + place // HUES) % len(DASHES)


def draw_mark(place: int, x: float, y: float) -> Html:
    """Return a node's shape at a point of an SVG drawing."""
    points = _CORNERS[dash_at(place)]
    tag, radius = ("polygon", None) if points else ("circle", "3.2")
    at = f"translate({x:g} {y:g})"
    return h(tag, points=points or None, r=radius, cls="tfos-shape", transform=at, fill="currentColor")


def draw_line(place: int, path: str) -> Html:
    """Return a node's line as an SVG path."""
    look = {"fill": "none", "stroke": "currentColor", "stroke_width": "1.4", "stroke_linejoin": "round"}
    return h("path", d=path, **look, stroke_dasharray=DASHES[dash_at(place)] or None)


def draw_sample(place: int) -> Html:
    """Return a piece of a node's line with its shape, for legends."""
    drawn = (draw_line(place, "M0 5H30"), draw_mark(place, 15, 5))
    hue = f"tfos-sample tfos-hue{hue_at(place)}"
    return h("svg", *drawn, cls=hue, viewBox="0 0 30 10", width=30, height=10, aria_hidden="true")


# ---- scales and axes ------------------------------------------------------------------------------------------------

# The size of a chart, and between what its lines are.
_WIDTH, _HEIGHT = 320, 130
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 312, 6, 110


def positions(points: Iterable[Point], *, by_step: bool) -> Positions:
    """Return points as pairs of x, which is the step or the seconds, and value."""
    return [(float(step) if by_step and step is not None else time_s, value) for time_s, step, value in points]


def thin(points: Sequence[Point], at_most: int) -> Sequence[Point]:
    """Return about ``at_most`` points: the lowest and the highest of each section, so that no peak is lost."""
    if len(points) <= at_most:
        return points
    section = math.ceil(len(points) / (at_most / 2))
    kept: list[Point] = []
    for start in range(0, len(points) - 1, section):
        part = points[start : start + section]
        finite = [point for point in part if point[2] is not None]
        ends = [min(finite, key=_height), max(finite, key=_height)] if finite else part[:1]
        kept += sorted(dict.fromkeys(ends), key=lambda point: point[0])
    return [*kept, points[-1]] if kept[-1] != points[-1] else kept


def _height(point: Point) -> float:
    return point[2] or 0.0


class Scale:
    """Maps values to coordinates, with round ticks; ``log`` ones map positive values by their logarithms."""

    def __init__(self, values: Sequence[float], start: float, end: float, *, log: bool = False) -> None:
        self._log = log
        if log:
            values = [math.log10(value) for value in values]
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        if low == high:
            pad = abs(low) * 0.1 or 1.0
            low, high = low - pad, high + pad
        self._low, self._per_unit = low, (end - start) / (high - low)
        self._start = start
        self.ticks = _log_ticks(low, high) if log else round_ticks(low, high)

    @property
    def told(self) -> str:
        """The lowest value, its coordinate, and the coordinates per unit."""
        return f"{self._low!r} {self._start} {self._per_unit!r}"

    def __call__(self, value: float) -> float:
        """Return the coordinate of a value."""
        value = math.log10(value) if self._log else value
        return round(self._start + (value - self._low) * self._per_unit, 1)


def round_ticks(low: float, high: float) -> list[float]:
    """Return some round numbers between ``low`` and ``high``.

    Examples
    --------
    >>> round_ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.75)
    digits = max(0, 1 - math.floor(math.log10(step)))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, digits) + 0.0 for number in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two powers of ten, given as exponents.

    Examples
    --------
    >>> _log_ticks(-3.0, 2.0), _log_ticks(-0.8, 1.9)
    ([0.001, 0.01, 0.1, 1.0, 10.0, 100.0], [0.2, 1.0, 5.0, 20.0])
    """
    powers = range(math.floor(low), math.ceil(high) + 1)
    for factors in ((1,), (1, 2, 5)):
        ticks = [factor * 10.0**power for power in powers for factor in factors]
        inside = [tick for tick in ticks if low <= math.log10(tick) <= high]
        if len(inside) >= 3:
            return inside[:: math.ceil(len(inside) / 6)]
    return [tick for tick in round_ticks(10**low, 10**high) if tick > 0]


def _path(line: Positions, across: Scale, up: Scale) -> str:
    """Return an SVG path; a value that is not finite leaves a gap."""
    path, pen = [], "M"
    for x, y in line:
        if y is None:
            pen = "M"
            continue
        path.append(f"{pen}{across(x):g} {up(y):g}")
        pen = "L"
    return "".join(path)


def _axes(across: Scale, up: Scale, *, by_step: bool, epochs: Mapping[int, int]) -> Iterator[Html]:
    """Yield the grid and the ticks; those of the look by epoch, too, where ``epochs`` has their last steps."""
    for value in up.ticks:
        d = f"M{_LEFT} {up(value)}H{_RIGHT}"
        yield h("path", cls="tfos-grid", d=d, stroke="currentColor", opacity=".15")
        yield _render_text(_LEFT - 5, up(value) + 3, "end", _tick(value))
    ticks = [(across(value), _tick(value)) for value in across.ticks if not by_step or value == int(value)]
    yield from _ticks_across(ticks, "step" if by_step else "s")
    if epochs:
        wanted = [int(value) for value in round_ticks(min(epochs), max(epochs) + 1) if value in epochs]
        ticks = [(across(epochs[epoch]), f"{epoch:,}") for epoch in wanted]
        yield h("g", *_ticks_across(ticks, "epoch"), cls="tfos-by-epoch", display="none")


def _ticks_across(ticks: Iterable[tuple[float, str]], unit: str) -> Iterator[Html]:
    y = _HEIGHT - 6
    for x, text in ticks:
        yield _render_text(x, y, "middle", text, across=True)
    yield _render_text(_LEFT - 14, y, "end", unit, across=True)


def _render_text(x: float, y: float, anchor: str, text: str, *, across: bool = False) -> Html:
    return h("text", text, cls="tfos-tick tfos-across" if across else "tfos-tick", x=x, y=y, text_anchor=anchor)


def _tick(value: float) -> str:
    return with_exponent(value, 6) if needs_exponent(value) else f"{value:,.10g}"


# ---- charts ---------------------------------------------------------------------------------------------------------

MAX_LINES = 64
# From so many lines on, each is drawn thin and light; more charts than that scroll in the live page.
_MANY_LINES = 17
_MANY_CHARTS = 7
# For all lines of a card together.
_MAX_POINTS = 5_000
_LINE_POINTS = (16, 160)

# Lines of other looks, which readers choose, have fewer points; so many lines have other looks.
_ALIKE_POINTS, _SMOOTH_POINTS = 36, 18
_MAX_ALIKE = 24
# How much of a smoothed value comes from those before it.
_SMOOTHING = 0.85
_LEAST_SMOOTHED = 8

_DOTTED = {"stroke_dasharray": "0.1 3.6", "stroke_linecap": "round", "stroke_width": "2"}

_LOWER = re.compile(r"loss|err|perplexity|mse|mae|rmse|divergence", re.IGNORECASE)
_HIGHER = re.compile(r"acc|auc|precision|recall|f1|score|reward|bleu|iou", re.IGNORECASE)


def render_charts(
    series: Sequence[SeriesPoints],
    nodes: Sequence[str],
    *,
    with_values: bool = False,
    before: Sequence[SeriesPoints] = (),
    in_table: Mapping[str, int] = MappingProxyType({}),
    has_looks: bool = True,
    names_lines: bool = True,
    title: str = "Metrics",
) -> Html:
    """Return one chart for each metric, or nothing where nothing was reported.

    A node's position among ``nodes`` selects its colour. ``with_values``, the values of all points stand beside the
    lines, for a page that shows them. ``before`` is the previous run of this name, which is drawn behind the others.
    The last values of metrics that are ``in_table``, which is drawn more often, stand there only, as long as the page
    has room for columns of their rank. Without ``has_looks`` there are no boxes for other looks, as always where there
    are many lines. Unless the legend ``names_lines``, what is drawn above does.
    """
    shown: dict[str, dict[str, Sequence[Point]]] = {}
    of_epochs: dict[str, dict[str, Sequence[Point]]] = {}
    places = {node: place for place, node in enumerate(nodes)}
    for one in sorted(series, key=lambda one: places.get(one["node"], len(places))):
        shown.setdefault(one["metric"], {})[one["node"]] = one["points"]
        if ends := one.get("epochs"):
            of_epochs.setdefault(one["metric"], {})[one["node"]] = ends
    # The step with which each epoch has ended, by what the first node that counts epochs has reported.
    counted = next(iter(shown.pop(EPOCH, {}).values()), ())
    epochs = {int(epoch): step for _, step, epoch in counted if step is not None and epoch is not None}
    if not shown:
        return Html("")
    is_large = tuple(nodes) == BANDS
    earlier = {one["metric"]: one["points"] for one in before}
    count = sum(len(own) for own in shown.values())
    budget = max(_LINE_POINTS[0], min(_LINE_POINTS[1], _MAX_POINTS // count))
    has_looks = has_looks and count <= _MAX_ALIKE and not is_large
    charts = [
        _Chart(
            name=name,
            lines=shown[name],
            of_epochs=of_epochs.get(name, {}),
            validation=shown.get(f"{VALIDATION}{name}", {}),
            before=earlier.get(name, ()),
            places=places,
            epochs=epochs,
            budget=budget,
            has_looks=has_looks,
            with_values=with_values,
        )
        for name in by_weight(shown)
        if not (name.startswith(VALIDATION) and name.removeprefix(VALIDATION) in shown)
    ]
    drawn = [chart.render(in_table) for chart in charts]
    classes = ["tfos-charts"]
    classes += ["tfos-many-lines"] if any(len(own) >= _MANY_LINES for own in shown.values()) else []
    classes += ["tfos-many-charts"] if len(charts) >= _MANY_CHARTS else []
    legend = _render_legend(
        [(places[node], node) for node in nodes if names_lines and any(node in own for own in shown.values())],
        together=next((name for own in shown.values() for name in own if name not in places), ""),
        has_validation=any(chart.validation for chart in charts),
        has_earlier=bool(earlier.keys() & shown.keys()),
    )
    looks = _render_looks(has_epochs=bool(epochs)) if has_looks else None
    grid = h("div", *drawn, cls=" ".join(classes))
    is_first = title == "Metrics"
    look = {"cls": "tfos-metrics", "data_key": None if is_first else title, "open": is_first}
    return h("details", h("summary", title), looks, legend, grid, **look)


# What the nodes use, as it is called on a chart, with how much one of its units is.
_USES = {
    "CPU, cores": ("cpu", 1.0),
    "memory, MB": ("memory_bytes", 1e6),
    "GPU, %": ("gpu", 0.01),
    "GPU memory, MB": ("gpu_memory_bytes", 1e6),
}


def render_usage(view: ClusterView, *, with_values: bool = False) -> Html:
    """Return charts of what the nodes have used, folded: a line for each of a few nodes, and the range of many."""
    lines = usage_lines(view.nodes)
    series: list[SeriesPoints] = []
    for name, (field, unit) in _USES.items():
        moments = [(one.time_s, spread) for one in view.usage if (spread := getattr(one, field))]
        for place, line in enumerate(lines if len(moments) > 1 else ()):
            used = ((time_s, spread[place]) for time_s, spread in moments)
            points: list[Point] = [(time_s, None, value / unit) for time_s, value in used if value is not None]
            if points:
                series.append(SeriesPoints(metric=name, node=line, points=points))
    has_gpu = any(one.gpu for one in view.usage)
    title = "CPU, GPU and memory" if has_gpu else "CPU and memory"
    in_table = dict.fromkeys(_USES, 0)
    return render_charts(series, lines, with_values=with_values, in_table=in_table, has_looks=False, title=title)


def _render_looks(*, has_epochs: bool) -> Html:
    """Return what readers choose the look of all charts by; without our style sheet it is not shown."""
    by_epoch = [("epoch", "By epoch")] if has_epochs else []
    looks = (("log", "Log axis"), *by_epoch, ("time", "By time"), ("smooth", "Smooth"))
    boxes = (h("label", h("input", type="checkbox", cls=f"tfos-look-{key}"), " ", title) for key, title in looks)
    return h("div", *boxes, cls="tfos-looks", role="group", aria_label="Look of the charts", hidden=True)


@dataclass(kw_only=True)
class _Chart:
    """The chart of one metric, in each look that it has.

    ``lines``, ``of_epochs`` and ``validation`` are its points by node: as reported, the means of epochs where these are
    of parts of them, and validation's. ``epochs`` has the last step of each epoch, ``budget`` is how many points of a
    line are drawn.
    """

    name: str
    lines: Mapping[str, Sequence[Point]]
    of_epochs: Mapping[str, Sequence[Point]]
    validation: Mapping[str, Sequence[Point]]
    before: Sequence[Point]
    places: Mapping[str, int]
    epochs: Mapping[int, int]
    budget: int
    has_looks: bool
    with_values: bool

    def __post_init__(self) -> None:
        every = [*self.lines.values(), *self.of_epochs.values(), *self.validation.values(), self.before]
        self._has_steps = all(steps_go_on(step for _, step, _ in points) for points in every)
        self._is_positive = all(value is None or value > 0 for points in every for _, _, value in points)
        smooth = {node: _smooth(line) for node, line in self.lines.items() if len(line) >= _LEAST_SMOOTHED}
        self._smooth = smooth if self.has_looks else {}
        self._validation = _thinned(self.validation, self.budget)
        self._means = _thinned(self.of_epochs, _ALIKE_POINTS) if self.has_looks else {}
        self._before = thin(self.before, _ALIKE_POINTS)

    def render(self, in_table: Mapping[str, int]) -> Html:
        last, best = _facts(self.name, self.lines, self.of_epochs)
        facts = [(last, in_table.get(self.name)), (best, None)]
        if self.validation:
            last, best = (fact and f"validation {fact}" for fact in _facts(self.name, self.validation, {}))
            facts += [(last, in_table.get(f"{VALIDATION}{self.name}")), (best, None)]
        facts = [(fact, rank) for fact, rank in facts if fact and rank != 0]
        caption = h("figcaption", h("b", self.name), " ", h("span", *_joined(facts), cls="tfos-facts"))
        lines = _thinned(self.lines, self.budget)
        plain = self._draw("line", lines, by_step=self._has_steps, log=False)
        looks = self._looks(_thinned(lines, _ALIKE_POINTS)) if self.has_looks else ()
        return h("figure", caption, plain, *looks, cls="tfos-chart", data_key=self.name)

    def _looks(self, lines: Mapping[str, Sequence[Point]]) -> Iterator[Html]:
        """Yield the chart over time and with a logarithmic axis, where these differ from the plain one.

        Values stand beside the lines that are not logarithmic: a page finds them there for those of the same x axis.
        """
        for over_time in [False, True] if self._has_steps else [False]:
            for log in [False, True] if self._is_positive else [False]:
                if over_time or log:
                    look = " ".join(["time"] * over_time + ["log"] * log)
                    svg = self._draw("line-again", lines, by_step=self._has_steps and not over_time, log=log)
                    yield h("div", svg, data_look=look, data_key=look, hidden=True)

    def _draw(self, kind: str, lines: Mapping[str, Sequence[Point]], *, by_step: bool, log: bool) -> Html:
        epochs = self.epochs if by_step else {}
        of_all = {
            kind: lines,
            "epochs": self._means if epochs else {},
            "validation": self._validation,
            "smooth": self._smooth,
        }
        drawn = {
            one: {node: positions(points, by_step=by_step) for node, points in some.items()}
            for one, some in of_all.items()
        }
        before = positions(self._before, by_step=by_step)
        scaled = [line for one in (kind, "epochs", "validation") for line in drawn[one].values()]
        every = [point for line in (*scaled, before) for point in line]
        across = Scale([x for x, _ in every], _LEFT, _RIGHT)
        up = Scale([y for _, y in every if y is not None], _BOTTOM, _TOP, log=log)
        last = _newest(self.lines, self.of_epochs)
        told = ", ".join(f"{node} {_value(last[node])}" for node in list(lines)[:8])
        has_points = self.with_values and not log
        behind = _path(before, across, up)
        look = {"fill": "none", "stroke": "currentColor", "opacity": ".3"}
        return h(
            "svg",
            *_axes(across, up, by_step=by_step, epochs=epochs),
            h("path", d=behind, cls="tfos-before", **look) if behind else None,
            _render_band(drawn[kind], across, up),
            *(
                _render_line(one, node, line, across, up, place=self.places.get(node), with_values=has_points)
                for one, some in drawn.items()
                for node, line in some.items()
            ),
            viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
            width=_WIDTH,
            role="img",
            aria_label=f"{self.name}: {told}",
            data_unit=("step" if by_step else "s") if self.with_values else None,
            data_across=across.told if self.with_values else None,
            tabindex=0 if self.with_values else None,
        )


def _thinned(lines: Mapping[str, Sequence[Point]], at_most: int) -> dict[str, Sequence[Point]]:
    return {node: thin(points, at_most) for node, points in list(lines.items())[:MAX_LINES]}


def _newest(lines: Mapping[str, Sequence[Point]], of_epochs: Mapping[str, Sequence[Point]]) -> dict[str, float | None]:
    """Return each node's last value, which is the mean of an epoch where that has just ended: as in the table."""
    newest = {}
    for node, points in lines.items():
        means = of_epochs.get(node)
        ends = means if means is not None and means[-1][0] >= points[-1][0] else points
        newest[node] = ends[-1][2]
    return newest


def _joined(facts: Sequence[tuple[str, int | None]]) -> Iterator[Html | str]:
    """Yield facts with dots between them; one with a rank is for pages that leave out columns of that rank."""
    for place, (fact, rank) in enumerate(facts):
        before = " · " if place and facts[place - 1][1] is None else ""
        after = " · " if rank is not None and place + 1 < len(facts) else ""
        told = f"{before}{fact}{after}"
        yield told if rank is None else h("span", told, cls=f"tfos-fact{rank}")


def _facts(
    name: str, lines: Mapping[str, Sequence[Point]], of_epochs: Mapping[str, Sequence[Point]]
) -> tuple[str, str]:
    """Return the last values, and the best one where the name says what is better and it is none of the last ones.

    Of a node that has ended an epoch, the best one is that of an epoch. Of several lines, it is named whose it is.
    """
    last = list(_newest(lines, of_epochs).values())
    lines = {node: of_epochs.get(node, points) for node, points in lines.items()}
    better = min if _LOWER.search(name) else max if _HIGHER.search(name) else None
    points = [(value, step, node) for node, line in lines.items() for _, step, value in line if value is not None]
    told = _range_text(last)
    if better is None or not points:
        return told, ""
    value, step, node = better(points, key=lambda point: point[0])
    if better([value, *(one for one in last if one is not None)]) in last:
        return told, ""
    where = f" at step {step:,}" if step is not None else ""
    whose = f" ({node})" if len(lines) > 1 and tuple(lines) != BANDS else ""
    return told, f"best {format_metric(value)}{where}{whose}"


def _smooth(line: Sequence[Point]) -> list[Point]:
    """Return some points of a running mean in which older values weigh less and less."""
    mean = weight = 0.0
    smooth: list[Point] = []
    for time_s, step, y in line:
        if y is not None:
            mean, weight = _SMOOTHING * mean + (1 - _SMOOTHING) * y, _SMOOTHING * weight + 1 - _SMOOTHING
            smooth.append((time_s, step, mean / weight))
    return smooth[:: -math.ceil(len(smooth) / _SMOOTH_POINTS) or -1][::-1]


def _render_band(lines: Mapping[str, Positions], across: Scale, up: Scale) -> Html | None:
    """Return where the values of all nodes of a large cluster lie."""
    if tuple(lines) != BANDS:
        return None
    high, low = (_path([point for point in lines[band] if point[1] is not None], across, up) for band in ("max", "min"))
    there, back = high, low.replace("M", "L").split("L")[:0:-1]
    return h("path", cls="tfos-band", d=f"{there}L{'L'.join(back)}Z") if there and back else None


def _render_line(
    kind: str, node: str, line: Positions, across: Scale, up: Scale, *, place: int | None, with_values: bool
) -> Html | None:
    """Return a node's line, with its mark at the newest value.

    The ``kind`` is its class: the ``line`` itself, ``line-again`` in another look, the means of ``epochs``, which take
    its place in the look by epoch, ``validation``, which is dotted, and ``smooth``.
    """
    newest = next(((x, y) for x, y in reversed(line) if y is not None), None)
    if newest is None:
        return None
    path = _path(line, across, up)
    if kind == "validation":
        drawn = [h("path", d=path if "L" in path else f"{path}h0", **_DOTTED)]
    else:
        drawn = [draw_line(place or 0, path)] if "L" in path else []
        drawn += [draw_mark(place or 0, across(newest[0]), up(newest[1]))] if kind != "smooth" else []
    values = {}
    if with_values and kind != "smooth":
        # By these a page shows the values of a line.
        points = " ".join(f"{x:.10g}={'' if y is None else format_metric(y)}" for x, y in line)
        name = f"{node}, validation" if kind == "validation" else node
        values = {"data_node": name, "data_dash": dash_at(place or 0), "data_points": points}
    cls = f"tfos-line tfos-{kind}" if kind == "validation" else f"tfos-{kind}"
    display = "none" if kind in ("epochs", "smooth") else None
    # What all nodes have in common has the colour of text.
    hue = "tfos-hue-all" if place is None else f"tfos-hue{hue_at(place)}"
    return h("g", *drawn, cls=f"{cls} {hue}", display=display, **values)


def _render_legend(
    nodes: Sequence[tuple[int, str]], *, together: str, has_validation: bool, has_earlier: bool
) -> Html | None:
    """Return what each line is, where there is more than one.

    ``nodes`` are those that have a line of their own, with their places; ``together`` is what the lines are called that
    nodes have in common, or "".
    """
    items = [h("span", draw_sample(place), node, cls="tfos-legend-item") for place, node in nodes]
    if together:
        items.append(_legend_item(h("path", d="M0 5H30"), together, cls="tfos-sample tfos-hue-all"))
    if len(items) < 2 and not together:
        items = []
    if has_validation:
        dots = h("path", d="M0 5H30", **_DOTTED)
        items.append(_legend_item(dots, "validation", cls="tfos-sample tfos-validation tfos-hue-all"))
    if has_earlier:
        items.append(_legend_item(h("path", d="M0 5H30", cls="tfos-before", opacity=".3"), "previous run"))
    return h("div", *items, cls="tfos-legend", role="group", aria_label="Lines") if items else None


def _legend_item(line: Html, text: str, *, cls: str | None = None) -> Html:
    size = {"viewBox": "0 0 30 10", "width": 30, "height": 10}
    sample = h("svg", line, **size, cls=cls, stroke="currentColor", aria_hidden="true")
    return h("span", sample, text, cls="tfos-legend-item")


def _value(value: float | None) -> str:
    return "not finite" if value is None else format_metric(value)


def _range_text(last: Sequence[float | None]) -> str:
    finite = [value for value in last if value is not None]
    if not finite:
        return "not finite"
    low, high = _value(min(finite)), _value(max(finite))
    told = low if low == high else f"{low} – {high}"
    return told if len(finite) == len(last) else f"{told}, {_value(None)}"
