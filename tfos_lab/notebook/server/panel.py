"""What JupyterLab's panel shows of live clusters and ended runs, as HTML: in the words and numbers of the card. Pure.

The page morphs it into place (``extensions/jupyterlab/src/panel.ts``); buttons say in ``data-do`` what they do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tfos_lab.core.markup import Html, h, join
from tfos_lab.core.states import NodeState, RunState, Tone
from tfos_lab.driver.runs.run import Run
from tfos_lab.driver.state.events import ClusterView, NodeView
from tfos_lab.notebook.display import summary
from tfos_lab.notebook.display.columns import Column, node_columns, straggler_text
from tfos_lab.notebook.display.listing import MANY_NODES, listed
from tfos_lab.notebook.display.summary import format_metrics, step_text
from tfos_lab.texts import format_count, format_metric

# The nodes of a card are unfolded up to so many; names of nodes in trouble are listed up to so many.
_FEW_NODES, _FEW_NAMES = 6, 3
_HOW = {
    RunState.DONE: "is done",
    RunState.FAILED: "failed",
    RunState.STOPPED: "was stopped",
    RunState.LOST: "was lost",
}


@dataclass(frozen=True)
class Listed:
    """A run in the panel.

    Attributes
    ----------
    run : Run
        The run, which lives or has ended.
    notebook : str
        The notebook with its cell, as a path below the server's root; or "".
    has_tensorboard : bool
        Whether its TensorBoard can be opened.
    """

    run: Run
    notebook: str = ""
    has_tensorboard: bool = False


def live_html(listed: Sequence[Listed], now_s: float) -> Html:
    """Return the cards of live clusters."""
    cards = [_card(one, summary.with_endings(one.run.record.view), now_s) for one in listed]
    return join(
        None if cards else _nothing(), h("ul", *cards, cls="tfos-lab-panel-list", aria_label="Running clusters")
    )


def ended_html(listed: Sequence[Listed], now_s: float) -> Html:
    """Return the lines of runs that have ended."""
    if not listed:
        return Html()
    items = (_ended(one, now_s) for one in listed)
    runs = h("ul", *items, cls="tfos-lab-panel-list", aria_label="Ended runs")
    return h("details", h("summary", f"Ended runs ({len(listed)})"), runs, cls="tfos-lab-ended", open=True)


def state_line(view: ClusterView) -> str:
    """Return how a live cluster is, such as ``"running, 3/4 nodes running"``."""
    return f"{view.state}, {summary.headline(view)}"


def end_note(one: Listed, now_s: float) -> str:
    """Return the end of a run as a sentence: ``"mnist failed after 3:20 (train.ipynb): worker:1: ValueError: …"``."""
    run = one.run
    where = f" ({one.notebook})" if one.notebook else ""
    what = _metric_text(run) if run.state is RunState.DONE else _reason(run)
    how = f"{run.name} {_HOW.get(run.state, 'has ended')} after {summary.took_text_of(run, now_s)}{where}"
    return f"{how}: {what}" if what else how


def _nothing() -> Html:
    cell = h("code", "%%tfos")
    return h("div", "No cluster runs. A cell that begins with ", cell, " starts one.", cls="tfos-lab-panel-note")


# ---- a live cluster -------------------------------------------------------------------------------------------------


def _card(one: Listed, view: ClusterView, now_s: float) -> Html:
    run, name = one.run, view.name
    files = f"{name}, process {run.record.process.pid}, files in {run.run_dir}"
    stops = view.state.stop_requested
    stop = _button("Stopping…" if stops else "Stop", "stop", run.id, aria_label=f"Stop {name}", disabled=stops)
    facts = (
        h("span", view.state, cls="tfos-lab-card-state"),
        h("span", view.launcher, cls="tfos-lab-card-where"),
        h("span", summary.took_text(view, now_s), cls="tfos-lab-card-age"),
    )
    return h(
        "li",
        h("div", _sign(view.state), _name(name, files), stop, cls="tfos-lab-card-title"),
        h("div", *facts, cls="tfos-lab-card-line"),
        _progress(view),
        _line("tfos-lab-card-figures", _figures(run), summary.left_text(view)),
        _line("tfos-lab-card-verdict", view.verdict),
        _line("tfos-lab-card-trouble", view.alarm, _trouble(view)),
        _nodes(view),
        _actions(one),
        cls="tfos-lab-card",
        data_key=run.id,
        data_state=view.state,
        data_tone=view.state.look.tone,
    )


def _progress(view: ClusterView) -> Html | None:
    part = summary.part_ended(view) if view.of_runs else view.progress
    return None if part is None else h("progress", max=1, value=f"{part:.3f}", aria_label=f"Progress of {view.name}")


def _figures(run: Run) -> str:
    """Return how far a run is: the step of the slowest node that goes on, and the metric that matters most."""
    view = run.record.view
    stepping = [node for node in view.nodes if node.step is not None and not view.of_runs]
    going = [node for node in stepping if not node.state.ended]
    slowest = min(going or stepping, key=lambda node: node.step or 0, default=None)
    step = f"step {step_text(slowest)}" if slowest else ""
    # Of a run that has taken all its steps there is nothing to say.
    is_whole = slowest is not None and view.state.ended and slowest.step == slowest.total_steps
    return " · ".join(part for part in ("" if is_whole else step, _metric_text(run)) if part)


def _metric_text(run: Run) -> str:
    search = run.record.view.search
    if search is not None:
        return "" if search.best is None else f"best {search.metric} {format_metric(search.best)}"
    metrics = {} if run.record.view.of_runs else run.last_metrics
    return format_metrics(metrics, at_most=1)


def _trouble(view: ClusterView) -> str:
    """Return who is in trouble, such as ``"worker:3 failed; 4 nodes hang"``."""
    groups: dict[str, list[str]] = {}
    for node in view.nodes:
        if node.state.is_broken or summary.hangs(node):
            groups.setdefault(_word(node), []).append(node.name)
    return "; ".join(f"{_listed(names)} {_of_many(word, len(names))}" for word, names in groups.items())


def _listed(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= _FEW_NAMES else f"{len(names):,} nodes"


def _of_many(word: str, count: int) -> str:
    return "hang" if word == "hangs" and count > 1 else word


def _word(node: NodeView) -> str:
    return "hangs" if summary.hangs(node) else node.state.value


def _tone(node: NodeView) -> Tone:
    return Tone.WARN if summary.hangs(node) else node.state.look.tone


def _nodes(view: ClusterView) -> Html:
    columns = node_columns(view)
    shown = listed(view).top[:MANY_NODES]
    squares = (h("span", data_tone=_tone(node), title=f"{node.name}: {_word(node)}") for node in shown)
    all_squares = h("span", *squares, cls="tfos-lab-squares", aria_hidden="true")
    more = len(view.nodes) - len(shown)
    rows = [_node(node, columns) for node in shown]
    if more:
        rows.append(h("li", f"{more:,} more are not listed here"))
    return h(
        "details",
        h("summary", h("span", summary.headline(view)), all_squares),
        h("ul", *rows, cls="tfos-lab-nodes", aria_label=f"Nodes of {view.name}"),
        open=len(view.nodes) <= _FEW_NODES,
    )


def _node(node: NodeView, columns: Sequence[Column]) -> Html:
    sign = summary.HANGS_SIGN if summary.hangs(node) else node.state.look.sign
    row = h(
        "summary",
        h("span", sign, cls="tfos-lab-sign", aria_hidden="true"),
        h("span", node.name, cls="tfos-lab-node-name"),
        h("span", _node_text(node), cls="tfos-lab-node-facts"),
        cls="tfos-lab-node-row",
        data_tone=_tone(node),
    )
    details = h("dl", *_facts(node, columns), cls="tfos-lab-node-details")
    return h("li", h("details", row, details), data_key=node.name)


def _node_text(node: NodeView) -> str:
    """Return what is said of a node beside its name; a narrow panel has room for little."""
    word = _word(node)
    told = [step_text(node), format_metrics(node.metrics, at_most=1)] if word == NodeState.RUNNING else [word]
    return " · ".join(part for part in (straggler_text(node), *told) if part) or word


def _facts(node: NodeView, columns: Sequence[Column]) -> Iterator[Html]:
    """Yield what the card says of a node, and why it is in the state that it is in."""
    state = " · ".join(
        part for part in (node.state.value, node.detail, node.hung if summary.hangs(node) else "") if part
    )
    for column in columns:
        text = state if column.key == "state" else column.text(node)
        if text and column.key != "node":
            yield h("div", h("dt", column.title), h("dd", text))


# ---- an ended run ---------------------------------------------------------------------------------------------------


def _ended(one: Listed, now_s: float) -> Html:
    run = one.run
    nodes = format_count(len(run.record.view.nodes), "node")
    files = f"{run.name}, {nodes}, {run.record.view.launcher}, files in {run.run_dir}"
    when = h("span", summary.when_text(run.ended_s or now_s, now_s), cls="tfos-lab-card-age")
    took = f"{run.state} after {summary.took_text_of(run, now_s)}"
    return h(
        "li",
        h("div", _sign(run.state), _name(run.name, files), when, cls="tfos-lab-card-line"),
        _line("tfos-lab-card-figures", took, _figures(run)),
        _line("tfos-lab-run-reason", _reason(run)),
        _actions(one),
        cls="tfos-lab-run",
        data_key=f"{run.id} {run.run_dir}",
        data_tone=run.state.look.tone,
    )


def _reason(run: Run) -> str:
    """Return why a run has failed, or was stopped, or lost; of one that is done, what is wrong all the same."""
    if told := summary.error_text(run):
        return told
    if run.state is RunState.LOST:
        return "its kernel ended before it"
    return "" if run.state is RunState.DONE else run.record.view.reason


# ---- parts of both --------------------------------------------------------------------------------------------------


def _sign(state: RunState) -> Html:
    return h("span", state.look.sign, cls="tfos-lab-sign", aria_hidden="true")


def _name(name: str, title: str) -> Html:
    return h("span", name, cls="tfos-lab-card-name", title=title)


def _line(cls: str, *texts: str) -> Html | None:
    text = " · ".join(text for text in texts if text)
    return h("div", text, cls=cls) if text else None


def _actions(one: Listed) -> Html:
    run, name, path = one.run, one.run.name, one.notebook
    to_cell = _button(
        path.rpartition("/")[2],
        "cell",
        run.id,
        title=f"Show the cell in {path}",
        aria_label=f"Show the cell of {name} in {path}",
    )
    opens = _button("TensorBoard", "tensorboard", run.id, aria_label=f"TensorBoard of {name}")
    return h("div", to_cell if path else None, opens if one.has_tensorboard else None, cls="tfos-lab-card-actions")


def _button(text: str, does: str, run_id: str, **attributes: object) -> Html:
    return h("button", text, type="button", data_do=does, data_run=run_id, **attributes)
