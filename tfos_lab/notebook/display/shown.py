"""What nodes show with `ctx.show`, as HTML: pictures, tables and confusion matrices. Reads the files of the run.

A node's words are text and its pictures are data of an image: nothing that it sends can become markup.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

from tfos_lab.core import messages as m
from tfos_lab.core.markup import Html, h, join
from tfos_lab.driver.results import LEAST_TOGETHER
from tfos_lab.driver.shown import Content, read_shown
from tfos_lab.driver.state.events import ShownView
from tfos_lab.notebook.display.table import table_box
from tfos_lab.texts import format_bytes, format_count, format_metric

# How much of a card may be drawings: in one that is sent again and again, and in one that stays.
LIVE_BYTES, SAVED_BYTES = 600_000, 4_000_000
# Smaller pictures are enlarged to about so many pixels, in whole steps.
_LEAST_PIXELS = 112


def render_shown(shown: Sequence[ShownView], folder: str | Path | None, at_most_bytes: int) -> Html:
    """Return everything that fits, the newest of each name large and earlier steps folded below it; or nothing.

    ``folder`` is the run's on this machine. Of at most so many bytes of HTML, the newest of each name have the first.
    """
    if not shown or folder is None:
        return Html("")
    titles = _titles(shown, Path(folder))
    listed = [one for series, _ in titles for one in series]
    drawn: dict[ShownView, Html] = {}
    room = at_most_bytes
    newest = {series[-1] for series, _ in titles}
    for one in sorted(listed, key=lambda one: (one not in newest, -one.time_s)):
        content = read_shown(Path(folder), one)
        html = _render(one, content) if content is not None else Html("")
        if html and len(html) <= room:
            room -= len(html)
            drawn[one] = html
    figures = [_figure(series, drawn, node=node) for series, node in titles]
    left_out = len(listed) - len(drawn)
    more = f"{left_out} more in the folder shown of the run: a cell holds {format_bytes(at_most_bytes)} of them"
    return h(
        "details",
        h("summary", "Shown"),
        h("div", *figures, cls="tfos-shown"),
        h("div", more, cls="tfos-note") if left_out else None,
        cls="tfos-shown-all",
        open=True,
    )


def _titles(shown: Sequence[ShownView], folder: Path) -> list[tuple[list[ShownView], str]]:
    """Return what each node shows under a name, and which node that is where several show something; alike, once."""

    def seen(one: ShownView) -> object:
        content = read_shown(folder, one)
        what = one.file if content is None else content.png if isinstance(content, m.Picture) else repr(content)
        return one.name, one.step, hash(what)

    alike: dict[object, list[list[ShownView]]] = {}
    several = len({one.node for one in shown}) >= LEAST_TOGETHER
    for _, of_node in itertools.groupby(shown, key=lambda one: (one.name, one.node)):
        series = list(of_node)
        alike.setdefault(tuple(map(seen, series)) if several else series[0], []).append(series)
    has_several = len({one.node for one in shown}) > 1
    titles = []
    for same in alike.values():
        if len(same) >= LEAST_TOGETHER:
            titles.append((same[0], f"{len(same)} nodes"))
        else:
            titles += [(series, series[-1].node if has_several else "") for series in same]
    return titles


def _figure(series: Sequence[ShownView], drawn: dict[ShownView, Html], *, node: str) -> Html | None:
    there = [one for one in series if one in drawn]
    if not there:
        return None
    *earlier, newest = there
    facts = " · ".join(filter(None, ["" if newest.step is None else f"step {newest.step:,}", node]))
    caption = h("figcaption", h("b", newest.name), " ", h("span", facts, cls="tfos-facts") if facts else None)
    before = h(
        "details",
        h("summary", format_count(len(earlier), "earlier step")),
        h("div", *(h("div", f"step {one.step:,}", drawn[one]) for one in reversed(earlier)), cls="tfos-earlier"),
    )
    key = f"{newest.node} {newest.name}"
    return h("figure", caption, drawn[newest], before if earlier else None, cls="tfos-one-shown", data_key=key)


def _render(one: ShownView, content: Content) -> Html:
    match content:
        case m.Picture(png=png):
            title = one.name if one.step is None else f"{one.name}, step {one.step:,}"
            # The size of a PNG stands in its header.
            width, height = int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
            times = max(1, _LEAST_PIXELS // max(width, height, 1))
            look = {"width": width * times, "cls": "tfos-pixels" if times > 1 else None}
            data = f"data:image/png;base64,{base64.b64encode(png).decode()}"
            return h("img", src=data, alt=f"{title}, shown by {one.node}", **look)
        case m.Table():
            return _table(content, one.name)
        case m.Matrix():
            return _matrix(content, one.name)
        case m.Unshown(why=why):
            return h("div", why, cls="tfos-note")


def _table(table: m.Table, name: str) -> Html:
    numeric = [all(not isinstance(row[place], str) for row in table.rows) for place in range(len(table.columns))]
    classes = ["tfos-numeric" if one else None for one in numeric]
    head = h("tr", *(h("th", name, scope="col", cls=cls) for name, cls in zip(table.columns, classes, strict=True)))
    rows = (h("tr", *(h("td", _text(cell), cls=cls) for cell, cls in zip(row, classes, strict=True)))
            for row in table.rows)  # fmt: skip
    count = format_count(table.count, "row")
    told = count if table.count <= len(table.rows) else f"the first {len(table.rows)} of {count}"
    return join(_box(name, h("thead", head), h("tbody", *rows)), h("div", told, cls="tfos-note"))


def _matrix(matrix: m.Matrix, name: str) -> Html:
    corner = h("th", "true \\ predicted", scope="col")
    head = h("tr", corner, *(h("th", label, scope="col", cls="tfos-numeric") for label in matrix.labels))
    rows = []
    for label, counts in zip(matrix.labels, matrix.counts, strict=True):
        cells = [h("th", label, scope="row")]
        for count, other in zip(counts, matrix.labels, strict=True):
            share = count / sum(counts) if sum(counts) > 0 else 0.0
            part = f"--tfos-part:{max(0.0, min(1.0, share)):.0%}"
            title = f"{100 * share:.0f} % of {label} taken for {other}"
            cells.append(h("td", _text(count), cls="tfos-numeric", style=part, title=title))
        rows.append(h("tr", *cells))
    hits, whole = sum(row[place] for place, row in enumerate(matrix.counts)), sum(map(sum, matrix.counts))
    told = h("div", f"{100 * hits / whole:.1f} % of {whole:,.10g} are right", cls="tfos-note") if whole > 0 else None
    return join(_box(name, h("thead", head), h("tbody", *rows), cls="tfos-matrix"), told)


def _box(name: str, *parts: Html, cls: str = "") -> Html:
    table = h("table", *parts, cls=f"tfos-table {cls}".strip())
    return table_box(name, table, "tfos-shown-table")


def _text(cell: str | float | None) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.0f}" if cell.is_integer() and abs(cell) < 1e15 else format_metric(cell)
    return str(cell)


def shown_names(shown: Iterable[ShownView]) -> str:
    """Return the names of what is shown."""
    return ", ".join(dict.fromkeys(one.name for one in shown))
