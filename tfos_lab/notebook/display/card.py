"""The card of a run, drawn once: named parts of HTML. Pure: a view goes in, HTML comes out.

The live page morphs the parts that have changed into place (``extensions/dashboard/src/parts.ts``), front ends without
widgets show the whole card, and the saved cell keeps the last one.
"""

from __future__ import annotations

import re
from typing import Any

from tfos_lab.core.markup import Html, h, join
from tfos_lab.driver.state.events import ClusterView
from tfos_lab.driver.state.phases import Span, spans_of
from tfos_lab.notebook.display import messages, summary
from tfos_lab.notebook.display.feed_lines import feed_lines, feed_progress, feed_shares
from tfos_lab.notebook.display.printed_output import Linker, no_link
from tfos_lab.notebook.display.table import LiveTable, render_bar, render_state
from tfos_lab.notebook.display.throughput import Throughput
from tfos_lab.texts import format_seconds

# Where a note says that a run's output is.
_OUTPUT = re.compile(r" in \S*?([^/\s]+)/output$")


def traits(view: ClusterView, now_s: float, table: LiveTable, run_dir: str, log_of: Linker = no_link) -> dict[str, Any]:
    """Return the values of the widget's traits that a view gives: the parts of the card, and ``view``."""
    return {**parts(view, now_s, table), "view": _beside(view, run_dir, table, log_of)}


def _beside(view: ClusterView, run_dir: str, table: LiveTable, log_of: Linker) -> messages.View:
    """Return what the page does not show, but goes by."""
    view = summary.with_endings(view)
    places = view.places
    shown = table.listing.of(view).nodes
    rows = [
        messages.Row(
            node=one.name,
            place=places[one.name],
            log=log_of(one.name) or "",
            state=one.state.value,
            ended=one.state.ended,
        )
        for one in shown
    ]
    return {
        "id": view.cluster_id,
        "name": view.name,
        "state": view.state.value,
        "ended": view.state.ended,
        "spark_ui": view.spark_ui,
        "tensorboard": view.tensorboard,
        "run_dir": run_dir,
        "rows": rows,
        "hung": [node.name for node in shown if summary.hangs(node)],
    }


def parts(view: ClusterView, now_s: float, table: LiveTable) -> dict[str, str]:
    """Return the parts of the live card by their names, which are those of the widget's traits.

    Parameters
    ----------
    view : ClusterView
        The cluster as it is.
    now_s : float
        The time, in seconds since the epoch.
    table : LiveTable
        Draws the nodes.
    """
    shown = summary.with_endings(view)
    return {
        "head": head(shown, now_s),
        "course": course(shown, now_s, table.throughput),
        "nodes": table.render(view, now_s),
    }


# ---- state and progress ---------------------------------------------------------------------------------------------


def head(view: ClusterView, now_s: float) -> Html:
    """Return the state, the name and how far the run is, in a line."""
    facts = f"{summary.headline(view)} · {summary.took_text(view, now_s)}"
    return h(
        "div",
        render_state(view.state),
        " ",
        h("strong", view.name, cls="tfos-name"),
        " ",
        h("span", facts, cls="tfos-facts"),
        _progress(view),
        cls="tfos-header",
    )


def _progress(view: ClusterView) -> Html | None:
    text = summary.progress_text(view)
    if not text or view.progress is None:
        return None
    bar = render_bar(view.progress, "Progress of the training")
    return join(" ", h("span", bar, " ", text, cls="tfos-overall"))


# ---- what is told of a run ------------------------------------------------------------------------------------------


def course(view: ClusterView, now_s: float, throughput: Throughput | None = None) -> Html:
    """Return why the run ended, what there is to know of it, where its seconds went, and what was fed."""
    return join(
        h("div", view.reason, cls="tfos-reason") if view.reason else None,
        *map(_note, view.notes),
        h("div", view.alarm, cls="tfos-alarm", role="alert") if view.alarm else None,
        _verdict(view),
        _timeline(view, now_s),
        _feeds(view, throughput),
    )


def _note(note: str) -> Html:
    """Return a note in which the run's folder is named as the run is; what it is in full is said on hovering."""
    short = _OUTPUT.sub(r" in \1/output", note)
    return h("div", short, cls="tfos-note", title=note if short != note else None)


def _verdict(view: ClusterView) -> Html | None:
    # Once nodes report what they spend time on, its line is there, so that nothing below jumps.
    is_awaited = not view.state.ended and any(node.activity is not None for node in view.nodes)
    return h("div", view.verdict, cls="tfos-verdict") if view.verdict or is_awaited else None


def _timeline(view: ClusterView, now_s: float) -> Html | None:
    if view.of_runs or not view.timings:
        return None
    spans = spans_of(view, now_s)
    whole_s = max(span.end_s for span in spans) or 1.0
    tracks = max(span.track for span in spans)
    bars = (_bar(span, whole_s) for span in spans)
    legend = (h("span", f"{span.name} {_span_text(span)}", data_span=span.kind) for span in spans)
    return join(
        h("div", *bars, cls="tfos-timeline", style=f"--tfos-tracks:{tracks}", aria_hidden="true"),
        h("div", *legend, cls="tfos-phases"),
    )


def _span_text(span: Span) -> str:
    return "…" if span.open else format_seconds(span.end_s - span.start_s)


def _bar(span: Span, whole_s: float) -> Html:
    left, width = 100 * span.start_s / whole_s, 100 * (span.end_s - span.start_s) / whole_s
    position = f"left:{left:.2f}%;width:{width:.2f}%" + (f";--tfos-track:{span.track}" if span.track else "")
    return h("span", cls="tfos-span", data_span=span.kind, title=span.name, style=position)


def _feeds(view: ClusterView, throughput: Throughput | None) -> Html | None:
    if view.of_runs and not view.state.ended:
        return _feed(summary.runs_line(view), summary.part_ended(view), what="runs")
    if view.of_runs or not view.feeds:
        return None
    last = view.feeds[-1]
    *older, line = feed_lines(view, throughput)
    lines = (h("div", one, cls="tfos-older-feed") for one in older)
    return join(*lines, _feed(line, feed_progress(last), feed_shares(last)))


def _feed(line: str, part: float | None, shares: str = "", what: str = "feed") -> Html:
    bar = None if part is None else render_bar(part, f"Progress of the {what}", "done" if part == 1 else "running")
    facts = join(" ", h("span", shares, cls="tfos-facts")) if shares else None
    return h("div", bar, h("span", line), facts, cls="tfos-feed")
