"""The card of a run, drawn once: named parts of HTML, the whole of it, and the same facts as lines of text.

The live page morphs the parts that have changed into place (``extensions/dashboard/src/morph.ts``). Front ends without
widgets show the whole card, and the saved cell keeps the last one: it needs neither a kernel nor a network. It is
self-contained (escaped text, one ``<style>``), so that it survives saving, reopening, ``nbconvert`` and mail; where
a front end strips the style, plain tables and ``<details>`` remain. The picture of a run that goes on shows when it was
taken; a small script in it asks the Jupyter server for the current state.
"""

from __future__ import annotations

import bisect
import itertools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from tfos_lab.core.markup import Html, PlainTable, h, join
from tfos_lab.core.paths import short_path
from tfos_lab.core.states import Tone
from tfos_lab.driver.state.events import BANDS, ClusterView, FeedView, MetricsReported, NodeView
from tfos_lab.driver.state.phases import told_spans
from tfos_lab.errors import NodeFailed, TfosError
from tfos_lab.notebook.display import WatchedCluster, summary
from tfos_lab.notebook.display.assets import inline_script, read_asset, unique_id
from tfos_lab.notebook.display.charts import hue_at, render_charts, render_usage
from tfos_lab.notebook.display.columns import node_columns, text_of
from tfos_lab.notebook.display.error_messages import error_lines
from tfos_lab.notebook.display.kernel import link_to
from tfos_lab.notebook.display.log_text import Run, count_lines, html_text, last_lines, plain_text, render_log
from tfos_lab.notebook.display.series import all_series, bands_of, series_before
from tfos_lab.notebook.display.shown import LIVE_BYTES, SAVED_BYTES, render_shown, shown_names
from tfos_lab.notebook.display.summary import several_text
from tfos_lab.notebook.display.table import (
    LiveTable,
    is_large,
    listed,
    only_listed,
    render_bar,
    render_state,
    render_table,
)
from tfos_lab.texts import format_count, format_seconds

# Returns the last lines of a node's log.
TailReader = Callable[[str, int], str]
# Returns the link to a node's log, or None where it cannot be opened.
Linker = Callable[[str], "str | None"]

_MAX_LINE_CHARS = 1_000

# Drawings that go on may take this share of the time, however large the cluster is, and so much of the connection to a
# page each: views of four nodes go five times a second, those of 64 twice.
_SHARE = 0.05
_PAGE_BYTES_PER_S = 60_000
# The picture of a run that goes on is drawn at this interval.
PICTURE_EVERY_S = 3.0

# A path in a note; where a note says that a run's output is.
_ABSOLUTE = re.compile(r"(?<= )/\S+")
# A line of the notebook in a traceback.
_OWN_LINE = re.compile(r"^ *(Cell In\[\d+\], line \d+.*)$", re.MULTILINE)
_OUTPUT = re.compile(r" in \S*?([^/\s]+)/output$")


def no_link(_node: str) -> str | None:
    """Return no link."""
    return None


def traits(view: ClusterView, now_s: float, table: LiveTable, run_dir: str, log_of: Linker = no_link) -> dict[str, Any]:
    """Return the values of the widget's traits that a view gives: parts of the live card by their names, and ``view``.

    ``view`` is what the page does not show, but goes by: ``View`` in ``extensions/dashboard/src/model.ts``.
    ``log_of(node)`` returns the path of a node's log at the Jupyter server, or None where that does not serve it.
    """
    shown = summary.with_endings(view)
    places, nodes = shown.places, listed(shown, now_s).nodes
    ordered = sorted(nodes, key=lambda node: places[node.name])
    return {
        "head": join(head(shown, now_s), _actions(shown), _announcement(shown, nodes)),
        "course": course(shown, now_s, table.throughput),
        "nodes": table.render(view, now_s),
        "tabs": _tabs(ordered, log_of),
        "view": {
            "id": shown.cluster_id,
            "name": shown.name,
            "state": shown.state.value,
            "ended": shown.state.ended,
            "run_dir": run_dir,
            "hues": {node.name: hue_at(places[node.name]) for node in nodes},
        },
    }


def _tabs(nodes: Sequence[NodeView], log_of: Linker) -> Html:
    """Return what readers choose a log by: that of all nodes, or of one."""
    tabs = [
        _tab(node.name, node.name, log_of(node.name), data_tone=node.state.look.tone, data_going=not node.state.ended)
        for node in nodes
    ]
    return join(_tab("all", "All", None) if len(tabs) > 1 else None, *tabs)


def _tab(value: str, text: str, log: str | None, **look: object) -> Html:
    # JupyterLab's shortcuts for arrow keys are those of whatever has the focus.
    choice = h("input", type="radio", name="log", value=value, data_log=log, data_lm_suppress_shortcuts="true")
    return h("label", choice, text, cls="tfos-tab", data_key=value, **look)


# ---- state and progress ---------------------------------------------------------------------------------------------


def head(view: ClusterView, now_s: float) -> Html:
    """Return the state, the name and how far the run is, in a line."""
    name = h("strong", view.name, cls="tfos-name")
    facts = h("span", f"{summary.headline(view)} · {summary.took_text(view, now_s)}", cls="tfos-facts")
    progress = None
    if view.progress is not None and (text := summary.progress_text(view)):
        bar = render_bar(view.progress, "Progress of the training")
        progress = join(" ", h("span", bar, " ", text, cls="tfos-overall"))
    return h("div", render_state(view.state), " ", name, " ", facts, progress, cls="tfos-header")


def _actions(view: ClusterView) -> Html:
    """Return the links and the button of a live page, which knows the server's address and asks for the stop."""
    opens = {"cls": "tfos-button tfos-away", "target": "_blank", "rel": "noopener noreferrer"}
    tensorboard = h("a", "TensorBoard", **opens, data_do="tensorboard") if view.tensorboard else None
    has_ui = view.spark_ui.startswith(("http://", "https://"))
    spark_ui = h("a", "Spark UI", **opens, href=view.spark_ui) if has_ui else None
    label = "Force stop" if view.state.stop_requested else "Stop"
    stop = h("button", label, cls="tfos-button tfos-stop", data_do="stop", aria_label=f"{label} {view.name}")
    return h("div", tensorboard, spark_ui, None if view.state.ended else stop, cls="tfos-actions")


def _announcement(view: ClusterView, nodes: Sequence[NodeView]) -> Html:
    """Return what screen readers say when it changes: the state, or which nodes hang."""
    hung = ", ".join(node.name for node in nodes if summary.hangs(node))
    told = f"{hung} hangs" if hung else view.state
    return h("span", f"{view.name}: {told}", cls="tfos-hidden", role="status")


# ---- what is told of a run ------------------------------------------------------------------------------------------


def course(view: ClusterView, now_s: float, throughput: summary.Throughput | None = None) -> Html:
    """Return why the run ended, what there is to know of it, where its seconds went, and what was fed."""
    return join(what_is_told(view), _timeline(view, now_s), _feeds(view, throughput))


def what_is_told(view: ClusterView) -> Html:
    """Return why the run ended, and what there is to know of it."""
    parts = [h("div", view.reason, cls="tfos-reason", data_tone=view.state.look.tone)] if view.reason else []
    for note in view.notes:
        # With short paths, and the run's folder named as the run is; hovering shows them in full.
        short = _ABSOLUTE.sub(lambda found: short_path(found[0]), _OUTPUT.sub(r" in \1/output", note))
        parts.append(h("div", short, cls="tfos-note", title=note if short != note else None))
    if alarm := _alarm(view):
        parts.append(h("div", alarm, cls="tfos-alarm", role="alert"))
    # Once nodes report what they spend time on, the verdict's line is there, so that nothing below jumps.
    if view.verdict or (not view.state.ended and any(node.activity is not None for node in view.nodes)):
        parts.append(h("div", view.verdict, cls="tfos-verdict"))
    return join(*parts)


def _alarm(view: ClusterView) -> str:
    """Return that a metric is not a number, unless the run has ended for it and its reason says so."""
    return "" if "is NaN" in view.reason else view.alarm


def _timeline(view: ClusterView, now_s: float) -> Html | None:
    if view.of_runs or not view.timings:
        return None
    spans = told_spans(view, now_s)
    whole_s = max(span.end_s for span in spans) or 1.0
    tracks = max(span.track for span in spans)
    bars, legend = [], []
    for span in spans:
        seconds = span.end_s - span.start_s
        position = f"left:{100 * span.start_s / whole_s:.2f}%;width:{100 * seconds / whole_s:.2f}%"
        track = f";--tfos-track:{span.track}" if span.track else ""
        bars.append(h("span", cls="tfos-span", data_span=span.kind, title=span.name, style=position + track))
        text = f"{span.name} {'…' if span.open else format_seconds(seconds)}"
        legend.append(h("span", text, data_span=span.kind))
    return join(
        h("div", *bars, cls="tfos-timeline", style=f"--tfos-tracks:{tracks}", aria_hidden="true"),
        h("div", *legend, cls="tfos-phases"),
    )


def _feeds(view: ClusterView, throughput: summary.Throughput | None) -> Html | None:
    if view.of_runs and not view.state.ended:
        part = sum(node.state.ended for node in view.nodes) / max(1, len(view.nodes))
        return _feed(summary.runs_line(view), part, what="runs")
    if view.of_runs or not view.feeds:
        return None
    last = view.feeds[-1]
    *older, line = summary.feed_lines(view, throughput)
    lines = (h("div", one, cls="tfos-older-feed") for one in older)
    return join(*lines, _feed(line, _feed_progress(last), summary.feed_shares(last)))


def _feed_progress(feed: FeedView) -> float | None:
    """Return how much of a table has been fed, from 0 to 1, where Spark reports it."""
    if feed.kind != "table":
        return None
    if feed.complete:
        return 1.0
    return min(1.0, feed.partitions / feed.total_partitions) if feed.total_partitions else None


def _feed(line: str, part: float | None, shares: str = "", what: str = "feed") -> Html:
    bar = None if part is None else render_bar(part, f"Progress of the {what}", Tone.GOOD if part == 1 else Tone.BUSY)
    facts = join(" ", h("span", shares, cls="tfos-facts")) if shares else None
    return h("div", bar, h("span", line), facts, cls="tfos-feed")


# ---- as lines of text ------------------------------------------------------------------------------------------------


def render_text(view: ClusterView, run_dir: str | Path | None = None) -> str:
    """Return the card as text, for terminals and for front ends without HTML."""
    shown = summary.with_endings(view)
    top, together, _, more = listed(shown)
    shown = only_listed(shown)
    columns = [column for column in node_columns(shown) if column.shown]
    rows_of = [together] * bool(together) + [[node] for node in top]
    rows = [[text_of(column, nodes, len(view.nodes)) for column in columns] for nodes in rows_of]
    titles = [column.title.lower() for column in columns]
    facts = [str(view.state), summary.headline(view), summary.took_text(view, time.time()), summary.progress_text(view)]
    hung = {node.name: node.hung for node in top if summary.hangs(node)}
    lines = [
        f"{view.state.look.sign} {view.name}: {' · '.join(filter(None, facts))}",
        "" if view.state.ended else _seen_text(),
        view.reason,
        _alarm(view),
        view.verdict,
        summary.phase_line(view),
        *summary.feed_lines(view),
        *shown.notes,
        repr(PlainTable(titles, rows, numeric=[column.numeric for column in columns])),
        more,
        *(f"{node}: {detail}" for node, detail in [*summary.broken_nodes(shown).items(), *hung.items()]),
        f"shown: {shown_names(view.shown)}" if view.shown else "",
        f"logs: {short_path(run_dir)}" if run_dir else "",
    ]
    return "\n".join(filter(None, lines))


def _seen_text() -> str:
    return f"Seen at {time.strftime('%H:%M:%S on %d %B %Y')}, while it went on."


# ---- the whole card -------------------------------------------------------------------------------------------------


class NodeStacks(NamedTuple):
    """The stacks of a node as ``text``, or why there are none; ``time_s`` is seconds since the epoch."""

    node: str
    text: str
    time_s: float


def render_stacks(stacks: Sequence[NodeStacks], *, live: bool = False) -> Html:
    """Return the stacks of nodes as HTML to unfold; in a live page, new ones are open."""
    return join(
        *(
            h(
                "details",
                h("summary", f"Stacks of {one.node} at {time.strftime('%H:%M:%S', time.localtime(one.time_s))}"),
                h("pre", one.text, cls="tfos-log", tabindex=0),
                cls="tfos-stacks",
                data_key=f"{one.node} {one.time_s}" if live else one.node,
                open=live,
            )
            for one in stacks
        )
    )


def bundle_of(
    cluster: WatchedCluster,
    *,
    raises: bool,
    folds_error: bool = False,
    stacks: Sequence[NodeStacks] = (),
    asks: bool = True,
) -> dict[str, str]:
    """Return the MIME bundle of a cluster as it is now.

    It has the error of a failed cluster unless the cell itself ``raises`` it, and where the threads of nodes were when
    somebody asked. With ``folds_error``, as another call will raise the error, a line of the notebook stands for it,
    which unfolds to the rest. With ``asks``, the picture of a run that goes on asks the Jupyter server for the current
    state.
    """
    reports, _ = cluster.reports_after(0)
    view = cluster.view()
    error = cluster.failure() if view.state == "failed" and not raises else None
    return make_bundle(
        view,
        lambda node, lines: cluster.logs(node, tail=lines),
        cluster.run_dir,
        reports,
        "" if error is None else _told_beside(view.reason, error),
        error_line=_own_line(error) if folds_error else "",
        link_of=lambda node: link_to(cluster.log_path(node)),
        stacks=stacks,
        asks=asks,
    )


class Pace:
    """Draws something again and again, no faster than time and the connection to a page allow."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._due_s = 0.0

    def draw(self, draw: Callable[[], int]) -> None:
        """Draw if it is time to; ``draw`` returns how many characters go to the page."""
        began_s, size = time.monotonic(), 0
        if began_s < self._due_s:
            return
        try:
            size = draw()
        finally:
            ended_s = time.monotonic()
            self._due_s = ended_s + max(self._every_s, (ended_s - began_s) / _SHARE, size / _PAGE_BYTES_PER_S)

    @property
    def wait_s(self) -> float:
        """The seconds until it is time to."""
        return max(0.0, self._due_s - time.monotonic())

    def hasten(self) -> None:
        """Draw as soon as there is somebody to."""
        self._due_s = 0.0


def make_bundle(
    view: ClusterView,
    read_tail: TailReader,
    run_dir: str | Path | None = None,
    reports: Sequence[MetricsReported] = (),
    error: str = "",
    *,
    error_line: str = "",
    link_of: Linker = no_link,
    stacks: Sequence[NodeStacks] = (),
    files: Path | None = None,
    asks: bool = True,
    comes_back: bool = True,
) -> dict[str, str]:
    """Return the MIME bundle of a run: ``text/html``, one self-contained ``<div>``, and ``text/plain``; never a widget.

    An ``error_line`` of the notebook stands for the ``error``, which it unfolds to.
    ``read_tail(node, lines)`` returns the last lines of a node's log, ``link_of(node)`` a link to it. What nodes have
    shown is read from the folder ``files``, by default ``run_dir``. A picture of a run that goes on tells whether the
    live view ``comes_back`` when the kernel is free, and ``asks`` the Jupyter server for the current state.
    """
    view = summary.with_endings(view)
    is_banded, now_s = is_large(view), time.time()
    nodes = listed(view).nodes if is_banded else view.nodes
    drawn = bands_of(reports) if is_banded else reports
    lines = BANDS if is_banded else sorted(view.places, key=view.places.__getitem__)
    parts = [
        f"<style>{read_asset('summary.css')}</style>",
        '<div class="tfos tfos-static">',
        head(view, now_s),
        _seen(view, asks=asks, comes_back=comes_back),
        course(view, now_s),
        render_table(view),
        render_stacks(stacks),
        render_charts(all_series(drawn, view.started_s), lines, before=series_before(files or run_dir, view.name)),
        render_usage(view),
        render_shown(view.shown, files or run_dir, SAVED_BYTES if view.state.ended else LIVE_BYTES),
        _why_failed(error, error_line),
        *render_printed(view, nodes, read_tail, link_of),
        render_where(nodes, run_dir, link_of),
        "</div>",
    ]
    return {
        "text/html": "\n".join(part for part in parts if part),
        "text/plain": "\n".join(filter(None, [render_text(view, run_dir), plain_text(render_log(error)).rstrip()])),
    }


def _seen(view: ClusterView, *, asks: bool, comes_back: bool) -> str:
    """Return when the picture of a run that goes on was taken, with a script that asks for the current state."""
    if view.state.ended:
        return ""
    if not asks:
        return h("div", _seen_text(), cls="tfos-seen")
    element = unique_id("seen")
    options = {"element": element, "run": view.cluster_id, "comesBack": comes_back}
    return h("div", _seen_text(), cls="tfos-seen", id=element) + inline_script("seen_note.js", options)


def _told_beside(reason: str, error: TfosError) -> str:
    """Return the lines of an error, unless its only one says what the reason does."""
    lines = error_lines(error)
    said = (str(error), f"feed: {type(error).__name__}: {error}")
    is_said = len(lines) == 1 and reason.rstrip(".") in [one.rstrip(".") for one in said if one]
    return "" if is_said else "\n".join(lines)


def _own_line(error: TfosError | None) -> str:
    """Return the last line of the notebook in the traceback of a node's function, if there is one."""
    if not isinstance(error, NodeFailed) or error.has_stacks:
        return ""
    return next(reversed(_OWN_LINE.findall(error.traceback)), "")


def _why_failed(text: str, line: str) -> str:
    if not text:
        return ""
    log = h("pre", html_text(render_log(text, _MAX_LINE_CHARS)), cls="tfos-log")
    title = f"Why it failed: {line}" if line else "Why it failed"
    return h("details", h("summary", title), log, cls="tfos-tail", data_tone="bad", open=not line)


# ---- what nodes have printed -----------------------------------------------------------------------------------------

# Short output in full, the last lines of long output folded, of each node that has a row and has printed something; the
# lines per node are limited, so that a notebook does not grow with its clusters.

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
# So many nodes that broke alike are named.
_MAX_NAMED = 4
# What differs between nodes that do the same: when and on which thread TensorFlow has warned, and how long steps take.
# How long a node took until it broke may be why.
_WHEN = re.compile(
    r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?|(?<=\b[IWEF]0000 00:00:)[\d.]+ +\d+|\b\d+s \d+[muµ]?s/step\b"
)
_WHEN_AND_HOW_LONG = re.compile(rf"\b\d+(?:\.\d+)?(?:ms|us|µs|s)\b|{_WHEN.pattern}")


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

    @property
    def is_short(self) -> bool:
        return self.whole and self.lines <= SHORT_LINES


def render_printed(view: ClusterView, nodes: Sequence[NodeView], read_tail: TailReader, link_of: Linker) -> list[str]:
    """Return what these nodes have printed, broken ones first, as HTML."""
    printed = list(_together(_read_all(nodes, view.places, read_tail, link_of), len(view.nodes)))
    short = [one for one in printed if one.is_short]
    lines = list(itertools.accumulate(one.lines for one in short))
    fits = bisect.bisect_right(lines, OPEN_LINES)
    parts = [_full(short[:fits], named=len(view.nodes) > 1)] if fits else []
    if folded := short[fits:]:
        more = format_count(sum(one.nodes for one in folded), "more run" if view.of_runs else "more node")
        parts.append(h("details", h("summary", more), _full(folded, named=True), cls="tfos-tail"))
    return [*parts, *(_tail(one) for one in printed if not one.is_short)]


def render_where(nodes: Sequence[NodeView], run_dir: str | Path | None, link_of: Linker) -> str:
    """Return where the logs are, with links to those that can be opened."""
    if not run_dir:
        return ""
    names = [node.name for node in nodes[:_MAX_FILES]]
    files = [(name, link) for name, link in zip(names, map(link_of, names), strict=True) if link]
    links = [part for name, link in files for part in (" · ", h("a", name, href=link))]
    name = str(run_dir).rstrip("/").rpartition("/")[2]
    return h("div", "Logs: ", h("span", name, cls="tfos-path", title=run_dir), *links, cls="tfos-where")


def _read_all(
    nodes: Sequence[NodeView], places: Mapping[str, int], read_tail: TailReader, link_of: Linker
) -> Iterator[_Printed]:
    broken = [node for node in nodes if node.state.is_broken]
    others = [node for node in nodes if not node.state.is_broken]
    for some, most in ((broken, FAILED_LINES), (others, OTHER_LINES)):
        keep = max(_LEAST_LINES, min(most, ALL_LINES // max(1, len(some))))
        for node in some:
            runs = render_log(read_tail(node.name, keep + 1), _MAX_LINE_CHARS)
            count, kept = count_lines(runs), last_lines(runs, keep)
            if plain_text(kept).strip():
                hue = f"tfos-hue{hue_at(places[node.name])}"
                link = link_of(node.name)
                yield _Printed(node, node.name, hue, kept, min(count, keep), whole=count <= keep, link=link)


def _together(printed: Iterable[_Printed], of_all: int) -> Iterator[_Printed]:
    """Yield once what several nodes have printed alike, but for times: nodes that broke, and others."""
    alike: dict[object, list[_Printed]] = {}
    for one in printed:
        is_broken = one.node.state.is_broken
        times = _WHEN if is_broken else _WHEN_AND_HOW_LONG
        key = is_broken, times.sub("", plain_text(one.runs)), one.whole
        alike.setdefault(key, []).append(one)
    for several in alike.values():
        first, names = several[0], [one.node.name for one in several]
        if len(several) == 1:
            yield first
            continue
        is_named = first.node.state.is_broken and len(names) <= _MAX_NAMED and len(names) < of_all
        by = ", ".join(names) if is_named else several_text(names, of_all)
        differ = any(plain_text(one.runs) != plain_text(first.runs) for one in several)
        title = f"{', '.join(names)}{f'; times are those of {names[0]}' if differ else ''}"
        yield replace(first, by=by, hue="tfos-hue-all", nodes=len(names), title=title)


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
