"""The state of a cluster as text: headline, phases, and where each node stands.

The live dashboard, the saved output and plain lines all use it. Pure: a view goes in, text comes out.
"""

from __future__ import annotations

from dataclasses import replace

from tfos_lab.core.states import NodeState, RunState
from tfos_lab.driver.state.events import ClusterView, NodeView, SearchFacts, changed
from tfos_lab.notebook.display.formats import format_metric, format_metrics
from tfos_lab.notebook.display.node_table import step_text
from tfos_lab.texts import format_count, format_left, format_seconds

# Stands beside "hangs", in place of the sign of a state.
HANGS_SIGN = "‖"


def with_endings(view: ClusterView) -> ClusterView:
    """Return the view as it is shown: nodes that still live when their cluster has failed or stops are stopping.

    A cell shows its error at once, while those nodes use the rest of their grace period, and the saved output keeps
    that moment.
    """
    if view.state not in ("failed", "stopping", "stopped"):
        return view
    nodes = tuple(changed(node, state=NodeState.STOPPING) if node.state.is_present else node for node in view.nodes)
    return replace(view, nodes=nodes)


def broken_nodes(view: ClusterView) -> list[tuple[str, str]]:
    """Return failed and lost nodes with what happened, unless the cluster's own reason says so already."""
    return [
        (node.name, node.detail)
        for node in view.nodes
        if node.state.is_broken and node.detail and node.detail not in view.reason
    ]


def headline(view: ClusterView) -> str:
    """Return how far the nodes are, such as ``"3/4 nodes reserved"``, or independent runs."""
    if view.of_runs:
        return _headline_of_runs(view)
    done = sum(node.state is NodeState.DONE for node in view.nodes)
    if view.state.ended:
        word, count = "done", done
    elif view.state.order < RunState.STARTING.order:
        word, count = "reserved", sum(node.state.is_present or node.state.is_up for node in view.nodes)
    else:
        word, count = "running", sum(node.state.is_up for node in view.nodes) - done
    others = f", {done} done" if done and word == "running" else ""
    return f"{count}/{len(view.nodes)} nodes {word}{others}"


def left_text(view: ClusterView) -> str:
    """Return how long the rest of the training takes, or nothing."""
    return "" if view.state.ended or view.seconds_left is None else format_left(view.seconds_left)


def progress_text(view: ClusterView) -> str:
    """Return how much of the training is done while it goes on, such as ``"62 % · 3:10 left"``, or nothing."""
    if view.state.ended or view.progress is None:
        return ""
    return " · ".join(part for part in (f"{view.progress * 100:.0f} %", left_text(view)) if part)


def hung_nodes(view: ClusterView) -> list[tuple[str, str]]:
    """Return the nodes that have given no sign for long, and since when."""
    return [(node.name, node.hung) for node in view.nodes if hangs(node)]


def hangs(node: NodeView) -> bool:
    """Whether a node is there and gives no sign."""
    return node.hung != "" and node.state.is_present


def _headline_of_runs(view: ClusterView) -> str:
    """Return such as ``"12 of 40 done, 2 failed, 4 running"``; of a search, the best trial, too."""
    states = [node.state for node in view.nodes]
    failed, running = sum(state.is_broken for state in states), sum(is_going(node) for node in view.nodes)
    stopped = states.count(NodeState.STOPPED)
    early = states.count(NodeState.STOPPED_EARLY)
    parts = [(early, "stopped early"), (failed, "failed"), (running, "running"), (stopped, "stopped")]
    told = "".join(f", {count} {word}" for count, word in parts if count)
    return f"{states.count(NodeState.DONE)} of {len(states)} done{told}{_best_text(view.search)}"


def _best_text(search: SearchFacts | None) -> str:
    if search is None or search.best is None:
        return ""
    return f" · best {search.metric} {format_metric(search.best)} ({search.trial})"


def is_going(node: NodeView) -> bool:
    """Whether a try of an independent run has begun and not ended."""
    return node.run is not None and node.run.going


def part_ended(view: ClusterView) -> float:
    """Return which part of all independent runs has ended, from 0 to 1."""
    return sum(node.state.ended for node in view.nodes) / max(1, len(view.nodes))


def runs_line(view: ClusterView) -> str:
    """Return how many independent runs have ended, and how many wait: ``"3 of 40 ended · 33 wait for a slot"``."""
    ended = sum(node.state.ended for node in view.nodes)
    waiting = sum(not node.state.ended and not is_going(node) for node in view.nodes)
    waits = f" · {format_count(waiting, 'waits', 'wait')} for a slot" if waiting else ""
    return f"{ended} of {len(view.nodes)} ended{waits}"


def phases(view: ClusterView) -> list[tuple[str, float]]:
    """Return the phases passed so far with the seconds since the call, in order of time; the last one is its end."""
    end = view.state.value if view.state.ended else "done"
    timings = {end if phase == "done" else phase: seconds for phase, seconds in view.timings.items()}
    return sorted(timings.items(), key=lambda item: item[1])


def phase_line(view: ClusterView) -> str:
    """Return the phases as one line, such as ``"launched 0.12 s → reserved 0.5 s"``."""
    return " → ".join(f"{phase} {format_seconds(seconds)}" for phase, seconds in phases(view))


def elapsed_s(view: ClusterView, now_s: float) -> float:
    """Return how long the cluster has lived."""
    return max(0.0, (view.ended_s or now_s) - view.started_s)


def took_text(view: ClusterView, now_s: float) -> str:
    """Return how long the cluster has lived, in whole seconds while it does."""
    seconds = elapsed_s(view, now_s)
    return format_seconds(seconds) if view.state.ended else whole_seconds(seconds)


def whole_seconds(seconds: float) -> str:
    """Return a time that goes on: ``"7 s"`` or ``"4:05"``."""
    return f"{seconds:.0f} s" if seconds < 59.5 else format_seconds(seconds)


def furthest(view: ClusterView) -> str:
    """Return the progress of the node that is furthest ahead, such as ``"12/40 · loss 0.43 · accuracy 0.9"``."""
    node = max(view.nodes, key=lambda node: (node.step or 0, node.rows), default=None)
    if node is None:
        return ""
    rows = f"{format_count(node.rows, 'row')}" if node.rows else ""
    return " · ".join(part for part in (step_text(node) or rows, format_metrics(node.metrics, 2)) if part)
