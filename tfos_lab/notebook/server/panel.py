"""What JupyterLab's panel shows of live clusters and ended runs: the card, without what takes much room. Pure.

The page morphs it into place (``extensions/jupyterlab/src/panel.ts``); buttons say in ``data-do`` what they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tfos_lab.core.markup import Html, h, join
from tfos_lab.core.states import RunState
from tfos_lab.driver.runs.run import Run
from tfos_lab.driver.state.events import ClusterView
from tfos_lab.notebook.display import summary
from tfos_lab.notebook.display.card import head, what_is_told
from tfos_lab.notebook.display.summary import format_metrics
from tfos_lab.notebook.display.table import MANY_NODES, render_table
from tfos_lab.texts import format_metric

_HOW = {
    RunState.DONE: "is done",
    RunState.FAILED: "failed",
    RunState.STOPPED: "was stopped",
    RunState.LOST: "was lost",
}


@dataclass(frozen=True)
class Listed:
    """A run in the panel, and the notebook with its cell: a path below the server's root, or ""."""

    run: Run
    notebook: str = ""
    has_tensorboard: bool = False


def render_panel(live: Sequence[Listed], ended: Sequence[Listed], now_s: float) -> Html:
    """Return the cards of live clusters, and below them the runs that have ended, each in some lines."""
    cards = h("ul", *(_live(one, now_s) for one in live), aria_label="Running clusters")
    runs = h("ul", *(_ended(one, now_s) for one in ended), aria_label="Ended runs")
    title = h("summary", f"Ended runs ({len(ended)})")
    past = h("details", title, runs, cls="tfos-lab-ended", open=True) if ended else None
    hint = ("No cluster runs. A cell that begins with ", h("code", "%%tfos"), " starts one.")
    return join(None if live else h("div", *hint, cls="tfos-lab-panel-note"), cards, past)


def state_line(view: ClusterView) -> str:
    """Return how a live cluster is, such as ``"running, 3/4 nodes running"``."""
    return f"{view.state}, {summary.headline(view)}"


def end_note(one: Listed, now_s: float) -> str:
    """Return the end of a run as a sentence: ``"mnist failed after 3:20 (train.ipynb): worker:1: ValueError: …"``."""
    run = one.run
    where = f" ({one.notebook})" if one.notebook else ""
    what = _metric_text(run) if run.state is RunState.DONE else _reason(run)
    how = f"{run.name} {_HOW.get(run.state, 'has ended')} after {summary.took_text(run.view(), now_s)}{where}"
    return f"{how}: {what}" if what else how


# ---- a run ----------------------------------------------------------------------------------------------------------


def _live(one: Listed, now_s: float) -> Html:
    run, view = one.run, summary.with_endings(one.run.record.view)
    stops = view.state.stop_requested
    look = {"cls": "tfos-button tfos-stop", "disabled": stops}
    stop = _button("Stopping…" if stops else "Stop", "stop", run.id, f"Stop {view.name}", **look)
    shown = replace(view, nodes=view.nodes[:MANY_NODES]) if view.of_runs else view
    left = len(view.nodes) - len(shown.nodes)
    table = render_table(shown, f"{left:,} more are not listed here" if left else "")
    return _item(one, run.id, [head(view, now_s), stop], "", what_is_told(view), table)


def _ended(one: Listed, now_s: float) -> Html:
    run = one.run
    when = summary.when_text(run.ended_s or now_s, now_s)
    facts = " · ".join(part for part in (when, _metric_text(run)) if part)
    reason = h("div", why, cls="tfos-reason", data_tone=run.state.look.tone) if (why := _reason(run)) else None
    return _item(one, f"{run.id} {run.run_dir}", [head(run.view(), now_s)], facts, reason)


def _item(one: Listed, key: str, top: Sequence[Html], facts: str, *parts: Html | None) -> Html:
    """Return a run: as the card has it, with what leads to its cell and to TensorBoard."""
    run, path = one.run, one.notebook
    where = f"{run.record.view.launcher}, process {run.record.process.pid}, files in {run.run_dir}"
    file = path.rpartition("/")[2]
    to_cell = _button(file, "cell", run.id, f"Show the cell of {run.name} in {path}", title=path) if path else None
    opens = _button("TensorBoard", "tensorboard", run.id, f"TensorBoard of {run.name}") if one.has_tensorboard else None
    return h(
        "li",
        h("div", *top, cls="tfos-top-line", title=where),
        h("div", h("span", facts), to_cell, opens, cls="tfos-lab-ways tfos-facts"),
        *parts,
        cls="tfos tfos-lab-run",
        data_key=key,
    )


def _metric_text(run: Run) -> str:
    search = run.record.view.search
    if search is not None:
        return "" if search.best is None else f"best {search.metric} {format_metric(search.best)}"
    return format_metrics({} if run.record.view.of_runs else run.last_metrics, at_most=1)


def _reason(run: Run) -> str:
    """Return why a run has failed, or was stopped, or lost; of one that is done, what is wrong all the same."""
    if told := summary.error_text(run):
        return told
    if run.state is RunState.LOST:
        return "its kernel ended before it"
    return "" if run.state is RunState.DONE else run.record.view.reason


def _button(text: str, does: str, run_id: str, label: str, **attributes: object) -> Html:
    look = {"type": "button", "cls": "tfos-button", "aria_label": label, **attributes}
    return h("button", text, data_do=does, data_run=run_id, **look)
