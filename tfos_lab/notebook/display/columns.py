"""The columns of the node table, for HTML as for text: what each says of a node, and of nodes that agree. Pure.

To add a column, add a `Column` to one of the tables at `node_columns`.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tfos_lab.core.messages import NodeActivity
from tfos_lab.core.states import NodeState
from tfos_lab.driver.metrics import by_weight
from tfos_lab.driver.state.events import ClusterView, FeedView, NodeView, RunFacts
from tfos_lab.notebook.display.summary import Throughput, hangs, several_text, sign_of, step_text, whole_seconds
from tfos_lab.texts import format_bytes, format_metric, format_rate, format_seconds, format_step

# So many metrics have a column, and so many of them one that is shown unless others are chosen.
_MAX_METRICS = 24
_SHOWN_METRICS = 3
# The ranks of columns that pages of less than 680 pixels have no room for, and of those that only wide ones have.
_NARROW, _WIDE = 3, 9
# The keys of columns of metrics begin with this.
METRIC = "metric "


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


# ---- what nodes do --------------------------------------------------------------------------------------------------

# What a node may spend its time on, in a sentence about it and beside its bar; in the order of the bars, by the keys of
# their colours.
SHARE_KINDS = {
    "rows": ("waits for rows", "rows"),
    "data": ("waits for tf.data", "tf.data"),
    "peers": ("waits for peers", "peers"),
    "compute": ("computes", "compute"),
    "python": ("is in Python", "Python"),
}
# Shares below this are not told in words.
_SMALL = 0.005


def shares(*nodes: NodeView) -> dict[str, float]:
    """Return the mean shares of the nodes' time, by the keys of `SHARE_KINDS`; nothing where they are not known."""
    known = [node.activity for node in nodes if node.activity is not None and node.activity.is_known]
    parts = [(one.waits_rows, one.waits_data, one.waits_peers, one.computes, one.python) for one in known]
    return dict(zip(SHARE_KINDS, map(statistics.fmean, zip(*parts, strict=True)), strict=True)) if parts else {}


def _shares_text(*nodes: NodeView) -> str:
    """Return the shares in words, the largest first: ``"computes 61 %, waits for rows 34 %, is in Python 5 %"``."""
    known = sorted(shares(*nodes).items(), key=lambda part: -part[1])
    return ", ".join(f"{SHARE_KINDS[kind][0]} {_percent(share)}" for kind, share in known if share >= _SMALL)


def own_step_time_text(node: NodeView) -> str:
    """Return how long the last steps of a node took."""
    return "" if node.activity is None or node.activity.step_s is None else format_step(node.activity.step_s)


def straggler_text(node: NodeView) -> str:
    """Return such as ``"2.1× slower"`` for a node that holds its peers up, else nothing."""
    slower = node.activity.slower if node.activity is not None else None
    return f"{slower:.1f}× slower" if slower is not None else ""


def _step_time_text(node: NodeView) -> str:
    return ", ".join(filter(None, [own_step_time_text(node), straggler_text(node)]))


def _gpu_text(activity: NodeActivity) -> str:
    """Return how busy a node's GPUs are, and what they hold."""
    if activity.gpu is None:
        return ""
    memory = f", {format_bytes(activity.gpu_memory_bytes)}" if activity.gpu_memory_bytes else ""
    return f"{_percent(activity.gpu)}{memory}"


def _host_text(activity: NodeActivity) -> str:
    """Return how busy a node's host is, by whomever: ``"CPU 98 %, memory 41 %"``."""
    if not activity.host_memory:
        return ""
    return f"CPU {_percent(activity.host_cpu)}, memory {_percent(activity.host_memory)}"


def _last_sign_text(activity: NodeActivity) -> str:
    """Return the last sign of the function, where it is some time ago: ``"step 41, 64 s ago"``."""
    ago = f", {activity.idle_s:.0f} s ago" if activity.idle_s >= 5 else ""
    return f"{activity.last_sign}{ago}" if activity.last_sign else ""


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _seconds_text(run: RunFacts) -> str:
    if run.seconds is None:
        return ""
    return whole_seconds(run.seconds) if run.going else format_seconds(run.seconds)


# ---- the columns ----------------------------------------------------------------------------------------------------


def node_columns(view: ClusterView, throughput: Throughput | None = None) -> list[Column]:
    """Return the columns that are not empty for this cluster, node and state in any case."""
    metrics = [_metric_column(name, place) for place, name in enumerate(metric_names(view))]
    # Where steps say how far a node is, rows matter less.
    rows_rank = 1 if progress_column(view) == "rows" else _WIDE
    rates = [_rate_column(throughput)] if throughput is not None else []
    first = _trial_columns(view.search.metric) if view.search else _RUN_COLUMNS if view.of_runs else _FIRST_COLUMNS
    columns = [*first, *_TIME_COLUMNS, *metrics, _rows_column(view.feeds, rows_rank), *rates, *_LAST_COLUMNS]
    always = ("node", "state")
    return [column for column in columns if column.key in always or any(column.text(node) for node in view.nodes)]


def _of_activity(key: str, title: str, text: Callable[[NodeActivity], str], **look: Any) -> Column:
    return Column(key, title, lambda node: "" if node.activity is None else text(node.activity), **look)


def _of_run(key: str, title: str, text: Callable[[RunFacts], str], **look: Any) -> Column:
    return Column(key, title, lambda node: "" if node.run is None else text(node.run), **look)


_STATE = Column("state", "State", lambda node: "hangs" if hangs(node) else node.state.value)
_STEP = Column("step", "Step", step_text, numeric=True)
_FIRST_COLUMNS = (Column("node", "Node", lambda node: node.name), _STATE, _STEP)
_OF_RUNS = (
    _STATE,
    _of_run("tries", "Tries", lambda run: str(run.tries) if run.tries > 1 else "", numeric=True, rank=1),
    _of_run("seconds", "Seconds", _seconds_text, numeric=True),
    _STEP,
)
_RUN_COLUMNS = (
    Column("node", "Run", lambda node: node.name),
    _of_run("args", "Args", lambda run: run.args),
    *_OF_RUNS,
)
_TIME_COLUMNS = (
    Column("step_time", "Step time", _step_time_text, numeric=True, rank=1),
    Column("shares", "Time", _shares_text, rank=1),
)
_LAST_COLUMNS = (
    _of_activity("cpu", "CPU", lambda activity: f"{activity.cpu:.1f}", numeric=True, rank=_NARROW),
    _of_activity(
        "memory",
        "Memory",
        lambda activity: format_bytes(activity.memory_bytes) if activity.memory_bytes else "",
        numeric=True,
        rank=_WIDE,
    ),
    _of_activity("gpu", "GPU", _gpu_text, numeric=True, rank=_NARROW),
    Column("host", "Host", lambda node: node.host, rank=_NARROW),
    Column("gpus", "GPUs", lambda node: ", ".join(node.gpus), rank=_NARROW),
    _of_activity("host_use", "Use of the host", _host_text, shown=False),
    _of_activity("last_sign", "Last sign", _last_sign_text, shown=False),
    _of_activity("where", "At", lambda activity: activity.where, shown=False),
    Column("executor", "Executor", lambda node: node.executor, shown=False),
    Column("port", "Port", lambda node: node.address.rpartition(":")[2], shown=False),
    Column("pid", "PID", lambda node: str(node.pid or ""), shown=False),
)


def _trial_columns(metric: str) -> tuple[Column, ...]:
    def best(run: RunFacts) -> str:
        return "" if run.best is None else format_metric(run.best)

    args = _of_run("args", "Parameters", lambda run: run.args)
    trial = Column("node", "Trial", lambda node: node.name)
    return (trial, _of_run("best", f"Best {metric}", best, numeric=True), args, *_OF_RUNS)


def _metric_column(name: str, place: int) -> Column:
    def text(node: NodeView) -> str:
        value = node.metrics.get(name)
        if value is None:
            return ""
        # A record has no other word for what is infinite.
        is_infinite = math.isnan(value) and name not in node.nan_since
        return "not finite" if is_infinite else format_metric(value)

    rank = place if place < 2 else _NARROW
    return Column(f"{METRIC}{name}", name, text, numeric=True, rank=rank, shown=place < _SHOWN_METRICS)


def _rows_column(feeds: Sequence[FeedView], rank: int) -> Column:
    def text(node: NodeView) -> str:
        total = _total_rows(node, feeds)
        rows = f"{node.rows:,}" if node.rows else ""
        return f"{rows}/{total:,}" if total and rows else rows

    return Column("rows", "Rows", text, numeric=True, rank=rank)


def _rate_column(throughput: Throughput) -> Column:
    def text(node: NodeView) -> str:
        rate = throughput.per_s(node.name) if node.state is NodeState.RUNNING else None
        return "" if rate is None else format_rate(rate)

    return Column("rate", "Rows/s", text, numeric=True, rank=_NARROW)


def metric_names(view: ClusterView) -> list[str]:
    """Return the names of the metrics that may have a column: the loss first, those of validation last."""
    names = dict.fromkeys(name for node in view.nodes for name in node.metrics)
    return by_weight(names)[:_MAX_METRICS]


# ---- how far nodes are ----------------------------------------------------------------------------------------------


def progress_column(view: ClusterView) -> str:
    """Return the key of the column that holds the progress bars: steps where their totals are known, else rows."""
    return "step" if any(node.total_steps for node in view.nodes) else "rows"


def progress(node: NodeView, feeds: Sequence[FeedView] = ()) -> float | None:
    """Return which part of its steps, or else of its rows, a node has done, from 0 to 1, if that is known."""
    if node.total_steps and node.step is not None:
        return min(1.0, max(0.0, node.step / node.total_steps))
    total = _total_rows(node, feeds)
    return min(1.0, node.rows / total) if total else None


def _total_rows(node: NodeView, feeds: Sequence[FeedView]) -> int | None:
    """Return how many rows a node will have read at the end of all feeds, if that is known already.

    It is not where the node reads them in more epochs than the feed knows of, as ``fit(..., epochs=5)`` does.
    """
    feeds = [feed for feed in feeds if not feed.split]
    if not all(feed.kind == "table" and feed.complete for feed in feeds):
        return None
    total = sum(feed.rows.get(node.name, 0) * feed.epochs for feed in feeds)
    return total if 0 < total >= node.rows else None


# ---- nodes that agree -----------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"-?[\d.,]+(?:e[+-]?\d+)?")
# So many of so many.
_PART = re.compile(r"([\d,]+)/([\d,]+)")
_UNITS = {"ms": 1e-3, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def text_of(column: Column, nodes: Sequence[NodeView], of_all: int) -> str:
    """Return what a column says of a node, or of several that agree, out of so many."""
    texts = [column.text(node) for node in nodes]
    match column.key:
        case "state":
            counts = Counter(f"{sign_of(node)} {text}" for node, text in zip(nodes, texts, strict=True))
            return ", ".join(f"{count} {one}" if len(counts) > 1 else one for one, count in counts.items())
        case "node" if len(nodes) > 1:
            return several_text(texts, of_all)
        case "shares":
            return _shares_text(*nodes)
        case "host" if len({*texts} - {""}) > 1:
            return f"{len({*texts} - {''})} hosts"
        case _:
            return range_of(texts)


def range_of(texts: Sequence[str]) -> str:
    """Return what the texts of several nodes have in common, from the lowest to the highest number.

    Examples
    --------
    >>> range_of(["62 %", "58 %", "60 %"])
    '58 – 62 %'
    >>> range_of(["GPU 0", "GPU 0"])
    'GPU 0'
    >>> range_of(["5,400/5,400", "5,403/5,403"]), range_of(["410/5,400", "397/5,403"])
    ('all 5,400 – 5,403', '397 – 410 of 5,400 – 5,403')
    """
    told = list(dict.fromkeys(text for text in texts if text))
    parts = [_PART.fullmatch(text) for text in told]
    if told and all(parts):
        done, of_all = zip(*(part.groups() for part in parts if part), strict=True)
        if len({*of_all}) > 1:
            return f"all {range_of(of_all)}" if done == of_all else f"{range_of(done)} of {range_of(of_all)}"
    numbers = [_NUMBER.match(text) for text in told]
    if len(told) < 2 or not all(numbers):
        return ", ".join(told[:3]) + ", …" * (len(told) > 3)
    ordered = sorted(told, key=_amount)
    low, high = ordered[0], ordered[-1]
    number = _NUMBER.match(low)
    rest = low[number.end() :] if number else ""
    return f"{low.removesuffix(rest) if rest and high.endswith(rest) else low} – {high}"


def _amount(text: str) -> float:
    number = _NUMBER.match(text)
    if number is None:
        return 0.0
    unit, *_ = [*text[number.end() :].split(), ""]
    return float(number[0].replace(",", "")) * _UNITS.get(unit, 1.0)
