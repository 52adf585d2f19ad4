"""What there is to say about a cluster, in words: states, counts, phases and the columns of the node table.

The live dashboard, the static bundle and the plain lines all say it with these words. Pure: a view goes in, text comes
out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tfos_lab.engine.events import ClusterView, NodeView

ENDED_STATES = frozenset({"done", "failed", "stopped"})
BROKEN_STATES = frozenset({"failed", "lost"})

# A sign beside the word, so that a state never hangs on its colour alone.
STATE_SIGNS = {
    "waiting": "○", "launching": "○", "reserving": "◔", "reserved": "◔", "importing": "◑", "starting": "◑",
    "running": "●", "serving": "●", "stopping": "◌", "done": "✓", "failed": "✗", "lost": "✗", "stopped": "■",
}  # fmt: skip

# States of a node whose function has begun.
_UP = {"running", "serving", "done"}

_MAX_METRICS = 3


@dataclass(frozen=True)
class Column:
    """One column of the node table; ``numeric`` ones are set to the right, low ``rank`` ones stay when it is narrow."""

    key: str
    title: str
    text: Callable[[NodeView], str]
    numeric: bool = False
    rank: int = 0


def node_columns(view: ClusterView) -> list[Column]:
    """Return the columns that have something to say about this cluster; node and state always do."""
    metrics = [_metric_column(name, rank) for rank, name in enumerate(metric_names(view))]
    columns = [*_FIRST_COLUMNS, *metrics, *_LAST_COLUMNS]
    always = ("node", "state")
    return [column for column in columns if column.key in always or any(column.text(node) for node in view.nodes)]


def metric_names(view: ClusterView, at_most: int = _MAX_METRICS) -> list[str]:
    """Return the names of the metrics that have room in the table: the loss first, those of validation last."""
    names = dict.fromkeys(name for node in view.nodes for name in node.metrics)
    return _by_weight(names)[:at_most]


def broken_nodes(view: ClusterView) -> list[tuple[str, str]]:
    """Return failed and lost nodes with what happened, where the cluster's own reason does not say it."""
    return [
        (node.node, node.detail)
        for node in view.nodes
        if node.state in BROKEN_STATES and node.detail and node.detail not in view.reason
    ]


def headline(view: ClusterView) -> str:
    """Return how far the nodes are, such as ``"3/4 nodes reserved"``."""
    if view.state in ENDED_STATES:
        word, states = "done", {"done"}
    elif view.state in ("launching", "reserving"):
        word, states = "reserved", {"reserved", "importing", "starting", *_UP}
    else:
        word, states = "running", _UP
    count = sum(node.state in states for node in view.nodes)
    return f"{count}/{len(view.nodes)} nodes {word}"


def phases(view: ClusterView) -> list[tuple[str, float]]:
    """Return the phases passed so far with the seconds since the call, in order of time; the last says how it ended."""
    end = view.state if view.state in ENDED_STATES else "done"
    timings = {end if phase == "done" else phase: seconds for phase, seconds in view.timings.items()}
    return sorted(timings.items(), key=lambda item: item[1])


def phase_line(view: ClusterView) -> str:
    """Return the phases as one line, such as ``"launched 0.12 s → reserved 0.5 s"``."""
    return " → ".join(f"{phase} {format_seconds(seconds)}" for phase, seconds in phases(view))


def elapsed_s(view: ClusterView, now_s: float) -> float:
    """Return how long the cluster has been or was there."""
    return max(0.0, (view.ended_s or now_s) - view.started_s)


def progress(node: NodeView) -> float | None:
    """Return how much of its steps a node has done, from 0 to 1, where that is known."""
    if not node.total_steps or node.step is None:
        return None
    return min(1.0, max(0.0, node.step / node.total_steps))


def format_seconds(seconds: float) -> str:
    """Return a duration as people read it: ``0.12 s``, ``12.3 s``, ``4:05``, ``1:02:03``."""
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def format_metric(value: float) -> str:
    """Return a metric with four significant digits; ``nan`` and ``inf`` as words."""
    if not math.isfinite(value):
        return str(value)
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.3e}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def format_metrics(metrics: dict[str, float], at_most: int = _MAX_METRICS) -> str:
    """Return the metrics that have room in a line, the loss first."""
    return " · ".join(f"{name} {format_metric(metrics[name])}" for name in _by_weight(metrics)[:at_most])


def _by_weight(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (name.startswith("val_"), "loss" not in name))


def _metric_column(name: str, rank: int) -> Column:
    def text(node: NodeView) -> str:
        return format_metric(node.metrics[name]) if name in node.metrics else ""

    return Column(f"metric {name}", name, text, numeric=True, rank=min(2, rank))


def _step_text(node: NodeView) -> str:
    if node.step is None:
        return ""
    return f"{node.step:,}/{node.total_steps:,}" if node.total_steps else f"{node.step:,}"


def _rows_text(node: NodeView) -> str:
    return f"{node.rows:,}" if node.rows else ""


_FIRST_COLUMNS = (
    Column("node", "Node", lambda node: node.node),
    Column("state", "State", lambda node: node.state),
    Column("step", "Step", _step_text, numeric=True),
)
_LAST_COLUMNS = (
    Column("rows", "Rows", _rows_text, numeric=True, rank=2),
    Column("host", "Host", lambda node: node.host, rank=2),
    Column("executor", "Executor", lambda node: node.executor, rank=3),
    Column("gpus", "GPUs", lambda node: ", ".join(node.gpus), rank=2),
    Column("address", "Address", lambda node: node.address, rank=4),
    Column("pid", "PID", lambda node: str(node.pid or ""), numeric=True, rank=3),
)
