"""What stays in the notebook when a cell has ended: a picture of the cluster that needs neither a kernel nor a network.

The HTML is whole in itself (escaped text, one ``<style>``, no script), so it survives saving, reopening, ``nbconvert``
and mail. Where a front end strips the style, plain tables and ``<details>`` remain. The picture of a run that goes on
says when it was taken; it has a small script that asks the Jupyter server how the run is by now, and does nothing
elsewhere.
"""

from __future__ import annotations

import html
import itertools
import json
import os
import re
import time
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from tfos_lab.engine.state.events import ClusterView, MetricsReported, NodeView
from tfos_lab.engine.state.phases import Span, spans_of
from tfos_lab.jupyter.display import summary
from tfos_lab.jupyter.display.log_text import html_text, plain_text, render_log
from tfos_lab.jupyter.display.metric_charts import render_charts
from tfos_lab.jupyter.display.outputs import script
from tfos_lab.jupyter.display.printed_output import Linker, TailReader, no_link, render_printed, render_where
from tfos_lab.jupyter.display.series import all_series

_MAX_LINE_CHARS = 1_000

_numbers = itertools.count(1)

STYLE_SHEETS = ("theme.css", "summary.css")


def make_bundle(
    view: ClusterView,
    read_tail: TailReader,
    run_dir: str | Path | None = None,
    reports: Sequence[MetricsReported] = (),
    error: str = "",
    *,
    link_of: Linker = no_link,
) -> dict[str, str]:
    """Return the MIME bundle that replaces the live dashboard.

    Parameters
    ----------
    view : ClusterView
        The cluster as it ended (or as it is).
    read_tail : callable
        ``read_tail(node, lines)`` returns the last lines of a node's log as text.
    run_dir : path, optional
        Where the whole logs are; named in the output.
    reports : list of MetricsReported
        What nodes have reported; drawn as charts.
    error : str
        Why the cluster failed, as a traceback, where the cell itself does not raise it.
    link_of : callable, optional
        ``link_of(node)`` returns a link to the node's log file, or None where it cannot be opened.

    Returns
    -------
    dict
        ``text/html`` and ``text/plain``; never a widget, which a reopened notebook could not find.
    """
    view = summary.with_endings(view)
    return {
        "text/html": render_html(view, read_tail, run_dir, reports, error, link_of=link_of),
        "text/plain": "\n".join([render_text(view, run_dir), *([_plain_error(error)] if error else [])]),
    }


def render_html(
    view: ClusterView,
    read_tail: TailReader,
    run_dir: str | Path | None = None,
    reports: Sequence[MetricsReported] = (),
    error: str = "",
    *,
    link_of: Linker = no_link,
) -> str:
    """Return the cluster as one self-contained ``<div>``."""
    parts = [
        f"<style>{style_sheet(*STYLE_SHEETS)}</style>",
        f'<div class="tfos tfos-static" data-state="{_escape(view.state)}">',
        _header(view),
        _seen(view),
        _notes(view),
        _timeline(view),
        _feed(view),
        _table(view),
        render_charts(all_series(reports, view.started_s), [node.node for node in view.nodes]),
        _error(error),
        *render_printed(view, read_tail, link_of),
        render_where(view, run_dir, link_of),
        "</div>",
    ]
    return "\n".join(part for part in parts if part)


def render_text(view: ClusterView, run_dir: str | Path | None = None) -> str:
    """Return the cluster as text, for terminals and for front ends without HTML."""
    columns = summary.node_columns(view)
    rows = [[column.title.lower() for column in columns]]
    rows += [[_cell_text(column, node) for column in columns] for node in view.nodes]
    lines = [
        _headline_text(view),
        *([] if view.state in summary.ENDED_STATES else [_seen_text()]),
        *([view.reason] if view.reason else []),
        *([summary.phase_line(view)] if view.timings else []),
        *summary.feed_lines(view),
        *view.notes,
        *_aligned(rows, [column.numeric for column in columns]),
        *(f"{node}: {detail}" for node, detail in summary.broken_nodes(view)),
        *([f"logs: {run_dir}"] if run_dir else []),
    ]
    return "\n".join(lines)


@cache
def style_sheet(*names: str) -> str:
    """Return style sheets of ``static/`` as one, without comments and needless space."""
    folder = resources.files("tfos_lab.jupyter.display") / "static"
    text = "".join((folder / name).read_text("utf-8") for name in names)
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"\s+", " ", text)
    return re.sub(r" ?([{};,]) ?", r"\1", text).strip()


def _headline_text(view: ClusterView) -> str:
    sign = summary.STATE_SIGNS.get(view.state, "·")
    seconds = summary.format_seconds(summary.elapsed_s(view, time.time()))
    return f"{sign} {view.name}: {view.state} · {summary.headline(view)} · {seconds}"


def _header(view: ClusterView) -> str:
    seconds = summary.format_seconds(summary.elapsed_s(view, time.time()))
    return (
        f'<div class="tfos-header">{_state(view.state)} <strong class="tfos-name">{_escape(view.name)}</strong> '
        f'<span class="tfos-facts">{_escape(summary.headline(view))} · {seconds}</span></div>'
    )


def _seen(view: ClusterView) -> str:
    """Say of a run that goes on when it was so; a script asks how it is by now, where a Jupyter server knows."""
    if view.state in summary.ENDED_STATES:
        return ""
    element = f"tfos-seen-{os.getpid()}-{next(_numbers)}"
    options = json.dumps({"element": element, "run": view.cluster_id}).replace("<", "\\u003c")
    return (
        f'<div class="tfos-seen" id="{element}">{_seen_text()}</div>'
        f"<script>({script('seen_note.js')})({options})</script>"
    )


def _seen_text() -> str:
    return f"Seen at {time.strftime('%H:%M:%S on %d %B %Y')}, while it went on."


def _state(state: str) -> str:
    sign = summary.STATE_SIGNS.get(state, "·")
    word = _escape(state)
    return f'<span class="tfos-state" data-state="{word}"><span aria-hidden="true">{sign}</span> {word}</span>'


def _timeline(view: ClusterView) -> str:
    if not view.timings:
        return ""
    spans = spans_of(view)
    whole_s = max(span.end_s for span in spans) or 1.0
    tracks = max(span.track for span in spans)
    bars = "".join(_bar(span, whole_s) for span in spans)
    legend = " ".join(
        f'<span data-span="{span.kind}">{span.name} {summary.format_seconds(span.end_s - span.start_s)}</span>'
        for span in spans
    )
    return (
        f'<div class="tfos-timeline" style="--tfos-tracks:{tracks}" aria-hidden="true">{bars}</div>'
        f'<div class="tfos-phases">{legend}</div>'
    )


def _bar(span: Span, whole_s: float) -> str:
    left, width = 100 * span.start_s / whole_s, 100 * (span.end_s - span.start_s) / whole_s
    place = f"left:{left:.2f}%;width:{width:.2f}%" + (f";--tfos-track:{span.track}" if span.track else "")
    return f'<span class="tfos-span" data-span="{span.kind}" title="{span.name}" style="{place}"></span>'


def _feed(view: ClusterView) -> str:
    if not view.feeds:
        return ""
    *older, last = summary.feed_lines(view)
    shares = summary.feed_shares(view.feeds[-1])
    before = "".join(f'<div class="tfos-older-feed">{_escape(line)}</div>' for line in older)
    facts = f'<span class="tfos-facts">{_escape(shares)}</span>'
    return f'{before}<div class="tfos-feed"><span>{_escape(last)}</span> {facts}</div>'


def _notes(view: ClusterView) -> str:
    reason = [f'<div class="tfos-reason">{_escape(view.reason)}</div>'] if view.reason else []
    return "".join([*reason, *(f'<div class="tfos-note">{_escape(note)}</div>' for note in view.notes)])


def _table(view: ClusterView) -> str:
    columns = summary.node_columns(view)
    head = "".join(f'<th scope="col"{_column_class(column)}>{_escape(column.title)}</th>' for column in columns)
    details = dict(summary.broken_nodes(view))
    body = "".join(_row(node, index, columns, details.get(node.node, "")) for index, node in enumerate(view.nodes))
    return (
        '<div class="tfos-table-box"><table class="tfos-table">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(node: NodeView, index: int, columns: list[summary.Column], detail: str) -> str:
    cells = "".join(_cell(node, column) for column in columns)
    row = f'<tr class="tfos-hue{index % 7}">{cells}</tr>'
    if detail:
        row += f'<tr class="tfos-detail"><td colspan="{len(columns)}">{_escape(detail)}</td></tr>'
    return row


def _cell(node: NodeView, column: summary.Column) -> str:
    if column.key == "node":
        mark = '<span class="tfos-mark" aria-hidden="true"></span>'
        return f'<th scope="row"{_column_class(column)}>{mark}{_escape(node.node)}</th>'
    text = _state(node.state) if column.key == "state" else _escape(column.text(node))
    return f"<td{_column_class(column)}>{text}</td>"


def _column_class(column: summary.Column) -> str:
    numeric = " tfos-numeric" if column.numeric else ""
    return f' class="tfos-rank{column.rank}{numeric}"'


def _error(text: str) -> str:
    if not text:
        return ""
    return (
        '<details class="tfos-tail" data-state="failed" open><summary>Why it failed</summary>'
        f'<pre class="tfos-log">{html_text(render_log(text, _MAX_LINE_CHARS))}</pre></details>'
    )


def _plain_error(text: str) -> str:
    return plain_text(render_log(text)).rstrip()


def _cell_text(column: summary.Column, node: NodeView) -> str:
    text = column.text(node)
    return f"{summary.STATE_SIGNS.get(text, '·')} {text}" if column.key == "state" else text


def _aligned(rows: list[list[str]], numeric: list[bool]) -> list[str]:
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return [
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in rows
    ]


def _escape(text: str) -> str:
    return html.escape(text)
