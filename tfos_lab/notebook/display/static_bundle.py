"""The output that stays in the notebook: a picture of the cluster that needs neither a kernel nor a network.

The HTML is self-contained (escaped text, one ``<style>``, no script), so it survives saving, reopening, ``nbconvert``
and mail. Where a front end strips the style, plain tables and ``<details>`` remain. The picture of a run that goes on
shows when it was taken; a small script in it asks the Jupyter server for the current state, and does nothing elsewhere.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence
from pathlib import Path

from tfos_lab.core.markup import h
from tfos_lab.driver.state.events import ClusterView, MetricsReported
from tfos_lab.notebook.display import card, summary
from tfos_lab.notebook.display.assets import inline_script, read_style_sheet
from tfos_lab.notebook.display.bands import BANDS, bands_of
from tfos_lab.notebook.display.base import WatchedCluster
from tfos_lab.notebook.display.error_messages import render_error
from tfos_lab.notebook.display.listing import is_large, only_notable
from tfos_lab.notebook.display.log_files import link_to
from tfos_lab.notebook.display.log_text import render_log
from tfos_lab.notebook.display.metric_charts import render_charts
from tfos_lab.notebook.display.printed_output import Linker, TailReader, no_link, render_printed, render_where
from tfos_lab.notebook.display.runs import html_text, plain_text
from tfos_lab.notebook.display.series import all_series, series_before
from tfos_lab.notebook.display.shown import LIVE_BYTES, SAVED_BYTES, render_shown
from tfos_lab.notebook.display.stacks import NodeStacks, render_stacks
from tfos_lab.notebook.display.static_text import render_text, seen_text
from tfos_lab.notebook.display.table import render_table

_MAX_LINE_CHARS = 1_000

# The picture of a run that goes on is drawn at this interval.
PICTURE_EVERY_S = 3.0
# Drawing pictures may take this share of the time, however large the cluster is.
PICTURE_SHARE = 0.05
# So much of the connection to a page is for pictures; for charts, and for what nodes show, there is as much.
PAGE_BYTES_PER_S = 60_000

_numbers = itertools.count(1)


def bundle_of(
    cluster: WatchedCluster, *, raises: bool, stacks: Sequence[NodeStacks] = (), asks: bool = True
) -> dict[str, str]:
    """Return the MIME bundle of a cluster as it is now.

    Parameters
    ----------
    cluster : WatchedCluster
        The cluster to draw.
    raises : bool
        Whether the cell itself raises the error of a failed cluster; if not, the picture has it.
    stacks : list of NodeStacks
        Where the threads of nodes were when somebody asked.
    asks : bool
        Whether the picture of a run that goes on asks the Jupyter server for the current state.
    """
    reports, _ = cluster.reports_after(0)
    view = cluster.view()
    return make_bundle(
        view,
        lambda node, lines: cluster.logs(node, tail=lines),
        cluster.run_dir,
        reports,
        "" if raises or view.state != "failed" else "\n".join(render_error(cluster.failure())),
        link_of=lambda node: link_to(cluster.log_path(node)),
        stacks=stacks,
        asks=asks,
    )


def pause_after(began_s: float, size: int) -> float:
    """Return the seconds until the next picture: one of so many characters was begun then, and is done now."""
    return max(PICTURE_EVERY_S, (time.monotonic() - began_s) / PICTURE_SHARE, size / PAGE_BYTES_PER_S)


def make_bundle(
    view: ClusterView,
    read_tail: TailReader,
    run_dir: str | Path | None = None,
    reports: Sequence[MetricsReported] = (),
    error: str = "",
    *,
    link_of: Linker = no_link,
    stacks: Sequence[NodeStacks] = (),
    files: Path | None = None,
    asks: bool = True,
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
    files : pathlib.Path, optional
        Where the run's files are on this machine, if not in ``run_dir``.
    asks : bool
        Whether the picture of a run that goes on asks the Jupyter server for the current state.

    Returns
    -------
    dict
        ``text/html``, one self-contained ``<div>``, and ``text/plain``; never a widget, which would be missing in a
        reopened notebook.
    """
    view = summary.with_endings(view)
    shown, is_banded, now_s = only_notable(view), is_large(view), time.time()
    drawn = bands_of(reports) if is_banded else reports
    lines = BANDS if is_banded else sorted(view.places, key=view.places.__getitem__)
    parts = [
        f"<style>{read_style_sheet('summary.css')}</style>",
        f'<div class="tfos tfos-static" data-state="{view.state}">',
        card.head(view, now_s),
        _seen(view, asks=asks),
        card.course(shown, now_s),
        render_table(shown, view.places),
        render_stacks(stacks),
        render_charts(all_series(drawn, view.started_s), lines, before=series_before(files or run_dir, view.name)),
        render_shown(view.shown, files or run_dir, SAVED_BYTES if view.state.ended else LIVE_BYTES),
        _error(error),
        *render_printed(shown, read_tail, link_of),
        render_where(shown, run_dir, link_of),
        "</div>",
    ]
    return {
        "text/html": "\n".join(part for part in parts if part),
        "text/plain": "\n".join([render_text(view, run_dir), *([_plain_error(error)] if error else [])]),
    }


def _seen(view: ClusterView, *, asks: bool) -> str:
    """Return when the picture of a run that goes on was taken, with a script that asks for the current state."""
    if view.state.ended:
        return ""
    if not asks:
        return h("div", seen_text(), cls="tfos-seen")
    element = f"tfos-seen-{os.getpid()}-{next(_numbers)}"
    script = inline_script("seen_note.js", {"element": element, "run": view.cluster_id})
    return f'<div class="tfos-seen" id="{element}">{seen_text()}</div>{script}'


def _error(text: str) -> str:
    if not text:
        return ""
    log = h("pre", html_text(render_log(text, _MAX_LINE_CHARS)), cls="tfos-log")
    return h("details", h("summary", "Why it failed"), log, cls="tfos-tail", data_state="failed", open=True)


def _plain_error(text: str) -> str:
    return plain_text(render_log(text)).rstrip()
