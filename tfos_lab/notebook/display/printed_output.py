"""The nodes' output in the saved cell: short output in full, the last lines of long output folded.

Every node that has printed something is listed, however many there are. The lines per node are limited, so that a
notebook does not grow with its clusters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tfos_lab.core.markup import Html, h, join
from tfos_lab.driver.state.events import ClusterView, NodeView
from tfos_lab.notebook.display.charts import hue_at
from tfos_lab.notebook.display.log_text import Run, count_lines, html_text, last_lines, plain_text, render_log
from tfos_lab.notebook.display.summary import several_text
from tfos_lab.texts import format_count

TailReader = Callable[[str, int], str]
Linker = Callable[[str], "str | None"]

# Output of up to this many lines is shown in full, up to this many lines of all nodes together.
SHORT_LINES = 10
OPEN_LINES = 60
# Lines kept of longer logs: of each failed node, of each other node, and of all nodes together.
FAILED_LINES = 60
OTHER_LINES = 20
ALL_LINES = 400
_LEAST_LINES = 3
# This many log files are linked by name; longer logs have a link of their own as well.
_MAX_FILES = 12
_MAX_LINE_CHARS = 1_000
# What differs between nodes that do the same: how long steps take, and when TensorFlow has warned.
_TIMES = re.compile(r"\b\d+(?:\.\d+)?(?:ms|us|µs|s)\b|\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?")


@dataclass(frozen=True)
class _Printed:
    """The last lines of a node's log, or of several that printed alike; ``whole`` if there are no others."""

    node: NodeView
    by: str
    hue: str
    runs: list[Run]
    lines: int
    whole: bool
    link: str | None
    nodes: int = 1
    title: str | None = None


def no_link(_node: str) -> str | None:
    """Return no link."""
    return None


def render_printed(view: ClusterView, read_tail: TailReader, link_of: Linker = no_link) -> list[str]:
    """Return what each node has printed, broken nodes first, as HTML.

    ``read_tail(node, lines)`` returns the last lines of a node's log as text, ``link_of(node)`` a link to its file, or
    None where that cannot be opened.
    """
    every = [one for one in _read_all(view, read_tail, link_of) if one is not None]
    printed = list(_together(every, len(view.nodes)))
    shown, folded = _choose_shown([one for one in printed if one.whole and one.lines <= SHORT_LINES])
    parts = [_full(shown, named=len(view.nodes) > 1)] if shown else []
    if folded:
        more = format_count(sum(one.nodes for one in folded), "more run" if view.of_runs else "more node")
        parts.append(h("details", h("summary", more), _full(folded, named=True), cls="tfos-tail"))
    quick = {one.node.name for one in (*shown, *folded)}
    return [*parts, *(_tail(one) for one in printed if one.node.name not in quick)]


def render_where(view: ClusterView, run_dir: str | Path | None, link_of: Linker = no_link) -> str:
    """Return where the logs are, with links to those that can be opened."""
    if not run_dir:
        return ""
    names = [node.name for node in view.nodes[:_MAX_FILES]]
    files = [(name, link) for name, link in zip(names, map(link_of, names), strict=True) if link]
    links = [part for name, link in files for part in (" · ", h("a", name, href=link))]
    name = str(run_dir).rstrip("/").rpartition("/")[2]
    return h("div", "Logs: ", h("span", name, cls="tfos-path", title=run_dir), *links, cls="tfos-where")


def _read_all(view: ClusterView, read_tail: TailReader, link_of: Linker) -> list[_Printed | None]:
    hues = {node: f"tfos-hue{hue_at(place)}" for node, place in view.places.items()}
    broken = [node for node in view.nodes if node.state.is_broken]
    others = [node for node in view.nodes if not node.state.is_broken]
    lines_per_other = max(_LEAST_LINES, min(OTHER_LINES, ALL_LINES // max(1, len(others))))
    lines_per_failed = max(_LEAST_LINES, min(FAILED_LINES, ALL_LINES // max(1, len(broken))))
    wanted = [*((node, lines_per_failed) for node in broken), *((node, lines_per_other) for node in others)]
    return [_read(node, lines, hues[node.name], read_tail, link_of) for node, lines in wanted]


def _read(node: NodeView, lines: int, hue: str, read_tail: TailReader, link_of: Linker) -> _Printed | None:
    runs = render_log(read_tail(node.name, lines + 1), _MAX_LINE_CHARS)
    count = count_lines(runs)
    kept = last_lines(runs, lines)
    if not plain_text(kept).strip():
        return None
    return _Printed(node, node.name, hue, kept, min(count, lines), whole=count <= lines, link=link_of(node.name))


def _together(printed: Sequence[_Printed], of_all: int) -> Iterator[_Printed]:
    """Yield once what several nodes have printed alike, but for times; nodes that broke stand by themselves."""
    alike: dict[object, list[_Printed]] = {}
    for one in printed:
        key = one.node.name if one.node.state.is_broken else (_TIMES.sub("", plain_text(one.runs)), one.whole)
        alike.setdefault(key, []).append(one)
    for several in alike.values():
        first, names = several[0], [one.node.name for one in several]
        if len(several) == 1:
            yield first
            continue
        by = several_text(names, of_all)
        differ = any(plain_text(one.runs) != plain_text(first.runs) for one in several)
        title = f"{', '.join(names)}{f'; times are those of {names[0]}' if differ else ''}"
        yield replace(first, by=by, hue="tfos-hue-all", nodes=len(names), title=title)


def _choose_shown(short: Sequence[_Printed]) -> tuple[list[_Printed], list[_Printed]]:
    """Return the nodes whose output is shown, and those whose output does not fit."""
    shown: list[_Printed] = []
    lines_left = OPEN_LINES
    for one in short:
        if one.lines > lines_left:
            break
        lines_left -= one.lines
        shown.append(one)
    return shown, list(short[len(shown) :])


def _full(printed: Sequence[_Printed], *, named: bool) -> Html:
    rows = (
        h(
            "div",
            h("span", one.by, cls="tfos-speaker", title=one.title) if named else None,
            h("pre", html_text(one.runs), cls="tfos-log"),
            cls=f"tfos-said {one.hue}",
            data_tone=one.node.state.look.tone,
        )
        for one in printed
    )
    return h("div", *rows, cls="tfos-printed")


def _tail(one: _Printed) -> Html:
    label = f"last {one.lines} lines" if not one.whole else f"{one.lines} lines" if one.lines > 1 else "1 line"
    whole = "whole log" if one.nodes == 1 else f"whole log of {one.node.name}"
    link = join(" · ", h("a", whole, href=one.link)) if one.link and not one.whole else None
    summary = h("summary", h("span", one.by, title=one.title), " ", h("span", label, link, cls="tfos-facts"))
    log = h("pre", html_text(one.runs), cls="tfos-log")
    return h("details", summary, log, cls="tfos-tail", data_tone=one.node.state.look.tone)
