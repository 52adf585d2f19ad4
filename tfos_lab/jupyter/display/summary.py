"""What there is to say about a cluster, in words: states, counts, phases and the columns of the node table.

The live dashboard, the static bundle and the plain lines all say it with these words. Pure: a view goes in, text comes
out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tfos_lab.core.states import NodeState, RunState
from tfos_lab.engine.metrics import by_weight
from tfos_lab.engine.state.events import ClusterView, FeedView, NodeView
from tfos_lab.engine.state.feed_views import feed_name, recent_feeds
from tfos_lab.jupyter.display.throughput import Throughput

_MAX_METRICS = 3
# More nodes than this are summed up.
_MAX_SHARES = 8


@dataclass(frozen=True)
class Column:
    """One column of the node table; ``numeric`` ones are set to the right, low ``rank`` ones stay when it is narrow."""

    key: str
    title: str
    text: Callable[[NodeView], str]
    numeric: bool = False
    rank: int = 0


def with_endings(view: ClusterView) -> ClusterView:
    """Return the view as it is told: nodes that are still there when their cluster has failed or stops are stopping.

    A cell shows its error at once, while those nodes have the rest of their grace; and its picture stays.
    """
    if not (view.state is RunState.FAILED or view.state.stop_requested):
        return view
    nodes = tuple(replace(node, state=NodeState.STOPPING) if node.state.is_present else node for node in view.nodes)
    return replace(view, nodes=nodes)


def node_columns(view: ClusterView, throughput: Throughput | None = None) -> list[Column]:
    """Return the columns that have something to say about this cluster; node and state always do."""
    metrics = [_metric_column(name, rank) for rank, name in enumerate(metric_names(view))]
    rates = [_rate_column(throughput)] if throughput is not None else []
    columns = [*_FIRST_COLUMNS, *metrics, _rows_column(view.feeds), *rates, *_LAST_COLUMNS]
    always = ("node", "state")
    return [column for column in columns if column.key in always or any(column.text(node) for node in view.nodes)]


def metric_names(view: ClusterView, at_most: int = _MAX_METRICS) -> list[str]:
    """Return the names of the metrics that have room in the table: the loss first, those of validation last."""
    names = dict.fromkeys(name for node in view.nodes for name in node.metrics)
    return by_weight(names)[:at_most]


def broken_nodes(view: ClusterView) -> list[tuple[str, str]]:
    """Return failed and lost nodes with what happened, where the cluster's own reason does not say it."""
    return [
        (node.node, node.detail)
        for node in view.nodes
        if node.state.is_broken and node.detail and node.detail not in view.reason
    ]


def headline(view: ClusterView) -> str:
    """Return how far the nodes are, such as ``"3/4 nodes reserved"``."""
    if view.state.ended:
        word, count = "done", sum(node.state is NodeState.DONE for node in view.nodes)
    elif view.state.order < RunState.STARTING.order:
        word, count = "reserved", sum(node.state.is_present or node.state.is_up for node in view.nodes)
    else:
        word, count = "running", sum(node.state.is_up for node in view.nodes)
    return f"{count}/{len(view.nodes)} nodes {word}"


def phases(view: ClusterView) -> list[tuple[str, float]]:
    """Return the phases passed so far with the seconds since the call, in order of time; the last says how it ended."""
    end = view.state.value if view.state.ended else "done"
    timings = {end if phase == "done" else phase: seconds for phase, seconds in view.timings.items()}
    return sorted(timings.items(), key=lambda item: item[1])


def phase_line(view: ClusterView) -> str:
    """Return the phases as one line, such as ``"launched 0.12 s → reserved 0.5 s"``."""
    return " → ".join(f"{phase} {format_seconds(seconds)}" for phase, seconds in phases(view))


def elapsed_s(view: ClusterView, now_s: float) -> float:
    """Return how long the cluster has been or was there."""
    return max(0.0, (view.ended_s or now_s) - view.started_s)


def furthest(view: ClusterView) -> str:
    """Return where the node is that has come furthest, such as ``"12/40 · loss 0.43 · accuracy 0.9"``."""
    node = max(view.nodes, key=lambda node: (node.step or 0, node.rows), default=None)
    if node is None:
        return ""
    rows = f"{_counted(node.rows, 'row')}" if node.rows else ""
    return " · ".join(part for part in (_step_text(node) or rows, format_metrics(node.metrics, 2)) if part)


def progress_column(view: ClusterView) -> str:
    """Return the key of the column that holds the progress bars: steps where their totals are known, else rows."""
    return "step" if any(node.total_steps for node in view.nodes) else "rows"


def progress(node: NodeView, feeds: Sequence[FeedView] = ()) -> float | None:
    """Return how much of its steps, or else of its rows, a node has done, from 0 to 1, where that is known."""
    if node.total_steps and node.step is not None:
        return min(1.0, max(0.0, node.step / node.total_steps))
    total = total_rows(node, feeds)
    return min(1.0, node.rows / total) if total else None


def total_rows(node: NodeView, feeds: Sequence[FeedView]) -> int | None:
    """Return how many rows a node will have taken at the end of all feeds, where that is known by now."""
    if not all(feed.kind == "table" and feed.complete for feed in feeds):
        return None
    return sum(feed.rows.get(node.node, 0) * feed.epochs for feed in feeds) or None


def feed_progress(feed: FeedView) -> float | None:
    """Return how much of a table has been fed, from 0 to 1, where Spark tells."""
    if feed.kind != "table":
        return None
    if feed.complete:
        return 1.0
    return min(1.0, feed.partitions / feed.total_partitions) if feed.total_partitions else None


def feed_lines(view: ClusterView, throughput: Throughput | None = None) -> list[str]:
    """Return a line for each feed, stream and inference: short ones for what was before, the whole story of the last.

    ``["feed 1: 1,797 rows in 0.31 s", "feed 2: 900 rows fed · 2/4 partitions · 0.2 MB"]``; of very many, the first ones
    are summed up in one line.
    """
    if not view.feeds:
        return []
    earlier, (*older, last) = recent_feeds(view.feeds)
    sum_line = [f"{len(earlier)} earlier ones: {_counted(sum(map(_rows_of, earlier)), 'row')}"] if earlier else []
    return [*sum_line, *map(_short_feed_line, older), feed_line(last, throughput, alone=len(view.feeds) == 1)]


def feed_line(feed: FeedView, throughput: Throughput | None = None, *, alone: bool = True) -> str:
    """Return what was fed as one line: ``"1,797 rows fed · 4/4 partitions · 0.5 MB in 0.31 s (5,800 rows/s)"``."""
    which = "" if alone and feed.kind == "table" else f"{feed_name(feed)}: "
    parts = [f"{which}{_counted(_rows_of(feed), 'row')} {'answered' if feed.kind == 'inference' else 'fed'}"]
    if feed.kind == "stream":
        parts.append(_counted(feed.micro_batches, "micro-batch", "micro-batches"))
    else:
        parts.append(_partitions_text(feed))
    if feed.kind != "inference":
        parts += _amounts(feed, throughput)
    if feed.epochs > 1:
        parts.append(f"{feed.epochs} epochs")
    return " · ".join(parts)


def _short_feed_line(feed: FeedView) -> str:
    parts = [_counted(_rows_of(feed), "row")]
    if feed.kind == "stream":
        parts.append(_counted(feed.micro_batches, "micro-batch", "micro-batches"))
    if feed.epochs > 1:
        parts.append(f"{feed.epochs} epochs")
    if feed.kind == "table" and feed.ended_s is not None:
        parts[0] += f" in {format_seconds(feed.ended_s - feed.started_s)}"
    return f"{feed_name(feed)}: {' · '.join(parts)}"


def _rows_of(feed: FeedView) -> int:
    return sum(feed.rows.values())


def _partitions_text(feed: FeedView) -> str:
    if feed.total_partitions:
        one = feed.total_partitions == 1
        return f"{feed.partitions:,}/{feed.total_partitions:,} {'partition' if one else 'partitions'}"
    return _counted(feed.partitions, "partition")


def _amounts(feed: FeedView, throughput: Throughput | None) -> list[str]:
    """Return bytes and rates: on the whole when all is fed, of the last seconds before."""
    seconds = feed.ended_s - feed.started_s if feed.kind == "table" and feed.ended_s is not None else 0.0
    if seconds:
        rates = f"{format_rate(_rows_of(feed) / seconds)} rows/s, {format_bytes(feed.size_bytes / seconds)}/s"
        return [f"{format_bytes(feed.size_bytes)} in {format_seconds(seconds)} ({rates})"]
    parts = [format_bytes(feed.size_bytes)]
    if throughput is not None and not feed.complete and throughput.fed_rows_per_s is not None:
        parts += [
            f"{format_rate(throughput.fed_rows_per_s)} rows/s",
            f"{format_bytes(throughput.fed_bytes_per_s or 0)}/s",
        ]
    return parts


def feed_shares(feed: FeedView) -> str:
    """Return each node's rows, or their range where there are many nodes."""
    if len(feed.rows) <= _MAX_SHARES:
        return " · ".join(f"{node} {rows:,}" for node, rows in feed.rows.items())
    low, high = min(feed.rows.values()), max(feed.rows.values())
    each = f"{low:,} rows each" if low == high else f"{low:,} to {high:,} rows"
    return f"{len(feed.rows)} nodes with {each}"


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one}" if count == 1 else f"{count:,} {many or one + 's'}"


def format_rate(per_s: float) -> str:
    """Return a rate with three significant digits, as a whole number from 100 on."""
    if per_s >= 100:
        digits = max(0, len(str(int(per_s))) - 3)
        return f"{round(per_s, -digits):,.0f}"
    return f"{per_s:.3g}"


def format_bytes(count: float) -> str:
    """Return a size as people read it: ``812 B``, ``14.6 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" or count >= 99.95 else f"{count:.3g} {unit}"


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
    return " · ".join(f"{name} {format_metric(metrics[name])}" for name in by_weight(metrics)[:at_most])


def _metric_column(name: str, rank: int) -> Column:
    def text(node: NodeView) -> str:
        return format_metric(node.metrics[name]) if name in node.metrics else ""

    return Column(f"metric {name}", name, text, numeric=True, rank=min(2, rank))


def _step_text(node: NodeView) -> str:
    if node.step is None:
        return ""
    return f"{node.step:,}/{node.total_steps:,}" if node.total_steps else f"{node.step:,}"


def _rows_column(feeds: Sequence[FeedView]) -> Column:
    def text(node: NodeView) -> str:
        total = total_rows(node, feeds)
        rows = f"{node.rows:,}" if node.rows else ""
        return f"{node.rows:,}/{total:,}" if total and node.rows else rows

    return Column("rows", "Rows", text, numeric=True, rank=1)


def _rate_column(throughput: Throughput) -> Column:
    def text(node: NodeView) -> str:
        rate = throughput.rows_per_s(node.node) if node.state is NodeState.RUNNING else None
        return "" if rate is None else format_rate(rate)

    return Column("rate", "Rows/s", text, numeric=True, rank=2)


def _port_text(node: NodeView) -> str:
    return node.address.rpartition(":")[2]


_FIRST_COLUMNS = (
    Column("node", "Node", lambda node: node.node),
    Column("state", "State", lambda node: node.state.value),
    Column("step", "Step", _step_text, numeric=True),
)
_LAST_COLUMNS = (
    Column("host", "Host", lambda node: node.host, rank=2),
    Column("executor", "Executor", lambda node: node.executor, rank=3),
    Column("gpus", "GPUs", lambda node: ", ".join(node.gpus), rank=2),
    Column("port", "Port", _port_text, numeric=True, rank=3),
    Column("pid", "PID", lambda node: str(node.pid or ""), numeric=True, rank=3),
)
