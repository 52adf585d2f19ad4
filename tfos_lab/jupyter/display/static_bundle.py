"""The output that stays in the notebook: a picture of the cluster that needs neither a kernel nor a network.

The HTML is self-contained (escaped text, one ``<style>``, no script), so it survives saving, reopening, ``nbconvert``
and mail. Where a front end strips the style, plain tables and ``<details>`` remain. The picture of a run that goes on
shows when it was taken; a small script in it asks the Jupyter server for the current state, and does nothing elsewhere.
"""

from __future__ import annotations

import html
import itertools
import os
import time
from collections.abc import Sequence
from pathlib import Path

from tfos_lab.engine.state.events import ClusterView, MetricsReported
from tfos_lab.engine.state.phases import Span, spans_of
from tfos_lab.jupyter.display import summary
from tfos_lab.jupyter.display.assets import inline_script, read_style_sheet
from tfos_lab.jupyter.display.bands import BANDS, bands_of
from tfos_lab.jupyter.display.feed_lines import feed_lines, feed_shares
from tfos_lab.jupyter.display.listing import is_large, only_notable
from tfos_lab.jupyter.display.log_text import render_log
from tfos_lab.jupyter.display.messages import SeenNoteOptions
from tfos_lab.jupyter.display.metric_charts import render_charts
from tfos_lab.jupyter.display.printed_output import Linker, TailReader, no_link, render_printed, render_where
from tfos_lab.jupyter.display.runs import html_text, plain_text
from tfos_lab.jupyter.display.series import all_series
from tfos_lab.jupyter.display.stacks import NodeStacks, render_stacks
from tfos_lab.jupyter.display.states import state_tables
from tfos_lab.jupyter.display.static_table import render_state, render_table
from tfos_lab.jupyter.display.static_text import render_text, seen_text
from tfos_lab.texts import format_seconds

_MAX_LINE_CHARS = 1_000

_numbers = itertools.count(1)


def make_bundle(
    view: ClusterView,
    read_tail: TailReader,
    run_dir: str | Path | None = None,
    reports: Sequence[MetricsReported] = (),
    error: str = "",
    *,
    link_of: Linker = no_link,
    stacks: Sequence[NodeStacks] = (),
) -> dict[str, str]:
    """Return the MIME bundle that replaces the live dashboard.

    Parameters
    ----------
    view : ClusterView
        The cluster at its end, or now.
    read_tail : callable
        ``read_tail(node, lines)`` returns the last lines of a node's log as text.
    run_dir : path, optional
        Where the complete logs are; shown in the output.
    reports : list of MetricsReported
        What the nodes have reported; drawn as charts.
    error : str
        Why the cluster failed, as a traceback, unless the cell itself raises it.
    link_of : callable, optional
        ``link_of(node)`` returns a link to the node's log file, or None where it cannot be opened.
    stacks : list of NodeStacks
        Where the threads of nodes were when somebody asked.

    Returns
    -------
    dict
        ``text/html`` and ``text/plain``; never a widget, which would be missing in a reopened notebook.
    """
    view = summary.with_endings(view)
    return {
        "text/html": render_html(view, read_tail, run_dir, reports, error, link_of=link_of, stacks=stacks),
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
    stacks: Sequence[NodeStacks] = (),
) -> str:
    """Return the cluster as one self-contained ``<div>``."""
    shown, is_banded = only_notable(view), is_large(view)
    drawn = bands_of(reports) if is_banded else reports
    lines = BANDS if is_banded else sorted(view.places, key=view.places.__getitem__)
    parts = [
        f"<style>{read_style_sheet('summary.css')}</style>",
        f'<div class="tfos tfos-static" data-state="{_escape(view.state)}">',
        _header(view),
        _seen(view),
        _notes(shown),
        _alarm(view.alarm),
        _verdict(view),
        _timeline(view),
        _feed(view),
        render_table(shown, view.places),
        render_stacks(stacks),
        render_charts(all_series(drawn, view.started_s), lines),
        _error(error),
        *render_printed(shown, read_tail, link_of),
        render_where(shown, run_dir, link_of),
        "</div>",
    ]
    return "\n".join(part for part in parts if part)


def _header(view: ClusterView) -> str:
    seconds = format_seconds(summary.elapsed_s(view, time.time()))
    facts = [summary.headline(view), seconds, summary.progress_text(view)]
    return (
        f'<div class="tfos-header">{render_state(view.state)} <strong class="tfos-name">{_escape(view.name)}</strong> '
        f'<span class="tfos-facts">{_escape(" · ".join(fact for fact in facts if fact))}</span></div>'
    )


def _seen(view: ClusterView) -> str:
    """Return when the picture of a run that goes on was taken, with a script that asks for the current state."""
    if view.state.ended:
        return ""
    element = f"tfos-seen-{os.getpid()}-{next(_numbers)}"
    nodes = state_tables()["nodes"]
    ended, up = ([state for state, traits in nodes.items() if traits[trait]] for trait in ("ended", "up"))
    options = SeenNoteOptions(element=element, run=view.cluster_id, ended=ended, up=up)
    return f'<div class="tfos-seen" id="{element}">{seen_text()}</div>{inline_script("seen_note.js", options)}'


def _timeline(view: ClusterView) -> str:
    if not view.timings:
        return ""
    spans = spans_of(view)
    whole_s = max(span.end_s for span in spans) or 1.0
    tracks = max(span.track for span in spans)
    bars = "".join(_bar(span, whole_s) for span in spans)
    legend = " ".join(
        f'<span data-span="{span.kind}">{span.name} {format_seconds(span.end_s - span.start_s)}</span>'
        for span in spans
    )
    return (
        f'<div class="tfos-timeline" style="--tfos-tracks:{tracks}" aria-hidden="true">{bars}</div>'
        f'<div class="tfos-phases">{legend}</div>'
    )


def _bar(span: Span, whole_s: float) -> str:
    left, width = 100 * span.start_s / whole_s, 100 * (span.end_s - span.start_s) / whole_s
    position = f"left:{left:.2f}%;width:{width:.2f}%" + (f";--tfos-track:{span.track}" if span.track else "")
    return f'<span class="tfos-span" data-span="{span.kind}" title="{span.name}" style="{position}"></span>'


def _feed(view: ClusterView) -> str:
    if not view.feeds:
        return ""
    *older, last = feed_lines(view)
    shares = feed_shares(view.feeds[-1])
    before = "".join(f'<div class="tfos-older-feed">{_escape(line)}</div>' for line in older)
    facts = f'<span class="tfos-facts">{_escape(shares)}</span>'
    return f'{before}<div class="tfos-feed"><span>{_escape(last)}</span> {facts}</div>'


def _notes(view: ClusterView) -> str:
    reason = [f'<div class="tfos-reason">{_escape(view.reason)}</div>'] if view.reason else []
    return "".join([*reason, *(f'<div class="tfos-note">{_escape(note)}</div>' for note in view.notes)])


def _alarm(text: str) -> str:
    return f'<div class="tfos-alarm">{_escape(text)}</div>' if text else ""


def _verdict(view: ClusterView) -> str:
    return f'<div class="tfos-verdict">{_escape(view.verdict)}</div>' if view.verdict else ""


def _error(text: str) -> str:
    if not text:
        return ""
    return (
        '<details class="tfos-tail" data-state="failed" open><summary>Why it failed</summary>'
        f'<pre class="tfos-log">{html_text(render_log(text, _MAX_LINE_CHARS))}</pre></details>'
    )


def _plain_error(text: str) -> str:
    return plain_text(render_log(text)).rstrip()


def _escape(text: str) -> str:
    return html.escape(text)
