"""The node table: its columns, and how far each node has come. Pure: views go in, text comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfos_lab.core.states import NodeState
from tfos_lab.driver.metrics import by_weight
from tfos_lab.driver.state.events import ClusterView, FeedView, NodeView
from tfos_lab.notebook.display.activity_text import (
    cpu_text,
    gpu_text,
    host_text,
    last_sign_text,
    memory_text,
    shares_text,
    step_time_text,
    where_text,
)
from tfos_lab.notebook.display.formats import format_metric, format_rate
from tfos_lab.notebook.display.throughput import Throughput
from tfos_lab.texts import format_seconds

# So many metrics have a column, and so many of them one that is shown unless others are chosen.
_MAX_METRICS = 24
_SHOWN_METRICS = 3


@dataclass(frozen=True)
class Column:
    """One column; ``numeric`` ones are right-aligned, those of a low ``rank`` stay when the table is narrow.

    One that is not ``shown`` stands among the details of a row.
    """

    key: str
    title: str
    text: Callable[[NodeView], str]
    numeric: bool = False
    rank: int = 0
    shown: bool = True


def shown_columns(view: ClusterView) -> list[Column]:
    """Return the columns of saved output."""
    return [column for column in node_columns(view) if column.shown]


def node_columns(view: ClusterView, throughput: Throughput | None = None) -> list[Column]:
    """Return the columns that are not empty for this cluster, node and state in any case."""
    metrics = [_metric_column(name, rank) for rank, name in enumerate(metric_names(view))]
    # Where steps say how far a node is, rows matter less.
    rows_rank = 1 if progress_column(view) == "rows" else 5
    rates = [_rate_column(throughput)] if throughput is not None else []
    first = _trial_columns(view.search.metric) if view.search else _RUN_COLUMNS if view.of_runs else _FIRST_COLUMNS
    columns = [*first, *_TIME_COLUMNS, *metrics, _rows_column(view.feeds, rows_rank), *rates, *_LAST_COLUMNS]
    always = ("node", "state")
    return [column for column in columns if column.key in always or any(column.text(node) for node in view.nodes)]


def metric_names(view: ClusterView, at_most: int = _MAX_METRICS) -> list[str]:
    """Return the names of the metrics that may have a column: the loss first, those of validation last."""
    names = dict.fromkeys(name for node in view.nodes for name in node.metrics)
    return by_weight(names)[:at_most]


def progress_column(view: ClusterView) -> str:
    """Return the key of the column that holds the progress bars: steps where their totals are known, else rows."""
    return "step" if any(node.total_steps for node in view.nodes) else "rows"


def progress(node: NodeView, feeds: Sequence[FeedView] = ()) -> float | None:
    """Return which part of its steps, or else of its rows, a node has done, from 0 to 1, if that is known."""
    if node.total_steps and node.step is not None:
        return min(1.0, max(0.0, node.step / node.total_steps))
    total = total_rows(node, feeds)
    return min(1.0, node.rows / total) if total else None


def total_rows(node: NodeView, feeds: Sequence[FeedView]) -> int | None:
    """Return how many rows a node will have read at the end of all feeds, if that is known already."""
    if not all(feed.kind == "table" and feed.complete for feed in feeds):
        return None
    return sum(feed.rows.get(node.name, 0) * feed.epochs for feed in feeds) or None


def step_text(node: NodeView) -> str:
    """Return the step of a node, with the total where it is known."""
    if node.step is None:
        return ""
    return f"{node.step:,}/{node.total_steps:,}" if node.total_steps else f"{node.step:,}"


def _metric_column(name: str, rank: int) -> Column:
    def text(node: NodeView) -> str:
        return format_metric(node.metrics[name]) if name in node.metrics else ""

    return Column(f"metric {name}", name, text, numeric=True, rank=min(2, rank), shown=rank < _SHOWN_METRICS)


def _rows_column(feeds: Sequence[FeedView], rank: int) -> Column:
    def text(node: NodeView) -> str:
        total = total_rows(node, feeds)
        rows = f"{node.rows:,}" if node.rows else ""
        return f"{node.rows:,}/{total:,}" if total and node.rows else rows

    return Column("rows", "Rows", text, numeric=True, rank=rank)


def _rate_column(throughput: Throughput) -> Column:
    def text(node: NodeView) -> str:
        rate = throughput.rows_per_s(node.name) if node.state is NodeState.RUNNING else None
        return "" if rate is None else format_rate(rate)

    return Column("rate", "Rows/s", text, numeric=True, rank=2)


def _port_text(node: NodeView) -> str:
    return node.address.rpartition(":")[2]


def _args_text(node: NodeView) -> str:
    return node.run.args if node.run is not None else ""


def _tries_text(node: NodeView) -> str:
    return str(node.run.tries) if node.run is not None and node.run.tries > 1 else ""


def _best_text(node: NodeView) -> str:
    return "" if node.run is None or node.run.best is None else format_metric(node.run.best)


def _seconds_text(node: NodeView) -> str:
    if node.run is None or node.run.seconds is None:
        return ""
    return f"{node.run.seconds:.0f} s" if node.run.going else format_seconds(node.run.seconds)


_STATE = Column("state", "State", lambda node: node.state.value)
_STEP = Column("step", "Step", step_text, numeric=True)
_FIRST_COLUMNS = (Column("node", "Node", lambda node: node.name), _STATE, _STEP)
_OF_RUNS = (
    _STATE,
    Column("tries", "Tries", _tries_text, numeric=True, rank=1),
    Column("seconds", "Seconds", _seconds_text, numeric=True),
    _STEP,
)
_RUN_COLUMNS = (Column("node", "Run", lambda node: node.name), Column("args", "Args", _args_text), *_OF_RUNS)
_TIME_COLUMNS = (
    Column("step_time", "Step time", step_time_text, numeric=True, rank=1),
    Column("shares", "Time", shares_text, rank=1),
)
_LAST_COLUMNS = (
    Column("cpu", "CPU", cpu_text, numeric=True, rank=2),
    Column("memory", "Memory", memory_text, numeric=True, rank=5),
    Column("gpu", "GPU", gpu_text, numeric=True, rank=2),
    Column("host", "Host", lambda node: node.host, rank=2),
    Column("gpus", "GPUs", lambda node: ", ".join(node.gpus), rank=2),
    Column("host_use", "Use of the host", host_text, shown=False),
    Column("last_sign", "Last sign", last_sign_text, shown=False),
    Column("where", "At", where_text, shown=False),
    Column("executor", "Executor", lambda node: node.executor, shown=False),
    Column("port", "Port", _port_text, shown=False),
    Column("pid", "PID", lambda node: str(node.pid or ""), shown=False),
)


def _trial_columns(metric: str) -> tuple[Column, ...]:
    return (
        Column("node", "Trial", lambda node: node.name),
        Column("best", f"Best {metric}", _best_text, numeric=True),
        Column("args", "Parameters", _args_text),
        *_OF_RUNS,
    )
