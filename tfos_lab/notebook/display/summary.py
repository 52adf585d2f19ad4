"""What is said of a run, as text: how far it is, its phases, and what was fed to it.

The live dashboard, the saved output, plain lines and the panel all use it. Pure: a view goes in, text comes out.
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tfos_lab.core.states import NodeState, RunState
from tfos_lab.driver.metrics import by_weight
from tfos_lab.driver.runs.run import Run
from tfos_lab.driver.state.events import ClusterView, FeedView, NodeView, changed
from tfos_lab.driver.state.phases import feed_name, is_only, recent_feeds
from tfos_lab.texts import format_bytes, format_count, format_left, format_metric, format_rate, format_seconds


def with_endings(view: ClusterView) -> ClusterView:
    """Return the view as it is shown: nodes that still live when their cluster has failed or stops are stopping.

    A cell shows its error at once, while those nodes use the rest of their grace period.
    """
    if view.state not in ("failed", "stopping", "stopped"):
        return view
    nodes = tuple(changed(node, state=NodeState.STOPPING) if node.state.is_present else node for node in view.nodes)
    return replace(view, nodes=nodes)


def broken_nodes(view: ClusterView) -> dict[str, str]:
    """Return failed and lost nodes with what happened, unless the cluster's own reason says so already."""
    broken = {node.name: node.detail for node in view.nodes if node.state.is_broken and node.detail}
    return {name: detail for name, detail in broken.items() if detail not in view.reason}


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


def progress_text(view: ClusterView) -> str:
    """Return how much of the training is done while it goes on, such as ``"62 % · 3:10 left"``, or nothing."""
    if view.state.ended or view.progress is None:
        return ""
    left = "" if view.seconds_left is None else f" · {format_left(view.seconds_left)}"
    return f"{view.progress * 100:.0f} %{left}"


def several_text(names: Sequence[str], of_all: int) -> str:
    """Return several nodes, independent runs or trials, by their names, in words.

    Examples
    --------
    >>> several_text(["chief:0", "worker:0"], 3), several_text(["trial 0", "trial 1"], 2)
    ('2 nodes', 'all 2 trials')
    """
    kind, _, number = names[0].partition(" ")
    return f"{'all ' * (len(names) == of_all)}{len(names)} {f'{kind}s' if number else 'nodes'}"


def hangs(node: NodeView) -> bool:
    """Whether a node is there and gives no sign."""
    return node.hung != "" and node.state.is_present


def sign_of(node: NodeView) -> str:
    """Return the sign that stands beside a node's state, or beside "hangs"."""
    return "‖" if hangs(node) else node.state.look.sign


def _headline_of_runs(view: ClusterView) -> str:
    """Return such as ``"12 of 40 done, 2 failed, 4 running"``; of a search, the best trial, too."""
    states = [node.state for node in view.nodes]
    failed, running = sum(state.is_broken for state in states), sum(is_going(node) for node in view.nodes)
    stopped = states.count(NodeState.STOPPED)
    early = states.count(NodeState.STOPPED_EARLY)
    parts = [(early, "stopped early"), (failed, "failed"), (running, "running"), (stopped, "stopped")]
    told = "".join(f", {count} {word}" for count, word in parts if count)
    best, search = "", view.search
    if search is not None and search.best is not None:
        best = f" · best {search.metric} {format_metric(search.best)} ({search.trial})"
    return f"{states.count(NodeState.DONE)} of {len(states)} done{told}{best}"


def is_going(node: NodeView) -> bool:
    """Whether a try of an independent run has begun and not ended."""
    return node.run is not None and node.run.going


def runs_line(view: ClusterView) -> str:
    """Return how many independent runs have ended, and how many wait: ``"3 of 40 ended · 33 wait for a slot"``."""
    ended = sum(node.state.ended for node in view.nodes)
    waiting = sum(not node.state.ended and not is_going(node) for node in view.nodes)
    waits = f" · {format_count(waiting, 'waits', 'wait')} for a slot" if waiting else ""
    return f"{ended} of {len(view.nodes)} ended{waits}"


def phase_line(view: ClusterView) -> str:
    """Return the phases passed so far, the last one is its end: ``"launched 0.12 s → reserved 0.5 s"``."""
    end = view.state.value if view.state.ended else "done"
    timings = {end if phase == "done" else phase: seconds for phase, seconds in view.timings.items()}
    passed = sorted(timings.items(), key=lambda item: item[1])
    return " → ".join(f"{phase} {format_seconds(seconds)}" for phase, seconds in passed)


def took_text(view: ClusterView, now_s: float) -> str:
    """Return how long the cluster has lived, in whole seconds while it does."""
    seconds = max(0.0, (view.ended_s or now_s) - view.started_s)
    return format_seconds(seconds) if view.state.ended else whole_seconds(seconds)


def whole_seconds(seconds: float) -> str:
    """Return a time that goes on: ``"7 s"`` or ``"4:05"``."""
    return f"{seconds:.0f} s" if seconds < 59.5 else format_seconds(seconds)


def format_metrics(metrics: Mapping[str, float], at_most: int = 3) -> str:
    """Return the metrics that fit in a line, the loss first."""
    return " · ".join(f"{name} {format_metric(metrics[name])}" for name in by_weight(metrics)[:at_most])


def step_text(node: NodeView) -> str:
    """Return the step of a node, with the total where it is known."""
    if node.step is None:
        return ""
    return f"{node.step:,}/{node.total_steps:,}" if node.total_steps else f"{node.step:,}"


# What a row of a table of clusters has of each.
STATUS = ("state", "nodes", "progress", "on", "time")


def status_row(view: ClusterView, now_s: float) -> tuple[str, ...]:
    """Return the texts of `STATUS`; progress is that of the node that is furthest ahead: ``"12/40 · loss 0.43"``."""
    node = max(view.nodes, key=lambda node: (node.step or 0, node.rows), default=None)
    progress = ""
    if node is not None:
        steps = step_text(node) or (format_count(node.rows, "row") if node.rows else "")
        progress = " · ".join(filter(None, [steps, format_metrics(node.metrics, 2)]))
    state = f"{view.state.look.sign} {view.state}"
    return state, headline(view), progress, view.launcher, took_text(view, now_s)


# ---- of runs of the history -----------------------------------------------------------------------------------------


def when_text(time_s: float, now_s: float) -> str:
    """Return a moment as people write it: ``today 11:19``, ``14 Nov 09:05``, ``3 May 2025 17:00``."""
    moment, now = dt.datetime.fromtimestamp(time_s).astimezone(), dt.datetime.fromtimestamp(now_s).astimezone()
    clock = f"{moment:%H:%M}"
    if moment.date() == now.date():
        return f"today {clock}"
    year = "" if moment.year == now.year else f" {moment.year}"
    return f"{moment.day} {moment:%b}{year} {clock}"


def error_text(run: Run) -> str:
    """Return why the run failed, or that a metric of it is not a number, in one line."""
    return run.record.view.alarm if run.record.error is None else str(run.record.error)


# ---- what was fed ----------------------------------------------------------------------------------------------------

# The rows of more nodes than this are shown as a range.
_MAX_SHARES = 8


def feed_lines(view: ClusterView, throughput: Throughput | None = None) -> list[str]:
    """Return a line for each feed, stream and inference: short ones for earlier ones, all details for the last.

    ``["feed 1: 1,797 rows in 0.31 s", "feed 2: 900 rows fed · 2/4 partitions · 0.2 MB"]``. If there are very many, one
    line sums up the first ones.
    """
    if not view.feeds:
        return []
    earlier, (*older, last) = recent_feeds(view.feeds)
    sum_line = [f"{len(earlier)} earlier ones: {format_count(sum(map(_rows_of, earlier)), 'row')}"] if earlier else []
    return [*sum_line, *map(_short_feed_line, older), _feed_line(last, throughput, alone=is_only(last, view.feeds))]


def _feed_line(feed: FeedView, throughput: Throughput | None, *, alone: bool) -> str:
    """Return what was fed as one line: ``"1,797 rows fed · 4/4 partitions · 0.5 MB in 0.31 s (5,800 rows/s)"``."""
    which = "" if alone and feed.kind == "table" else f"{feed_name(feed)}: "
    rows = f"{which}{format_count(_rows_of(feed), 'row')} {'answered' if feed.kind == 'inference' else 'fed'}"
    if feed.kind == "stream":
        parts = _batches_text(feed)
    else:
        done, of_all = feed.tasks or (0, 0)
        # How far Spark is with what comes before the first row, such as a join.
        is_before = not feed.partitions and not feed.complete and of_all > (feed.total_partitions or 0)
        parts = [f"Spark has done {done:,} of {of_all:,} tasks"] if is_before else []
        parts.append(_partitions_text(feed))
    amounts = _amounts(feed, throughput) if feed.kind != "inference" else []
    return " · ".join([rows, *parts, *amounts, *_epochs_text(feed)])


def _short_feed_line(feed: FeedView) -> str:
    rows = format_count(_rows_of(feed), "row")
    if feed.kind == "table" and feed.ended_s is not None:
        rows += f" in {format_seconds(feed.ended_s - feed.started_s)}"
    batches = _batches_text(feed) if feed.kind == "stream" else []
    return f"{feed_name(feed)}: {' · '.join([rows, *batches, *_epochs_text(feed)])}"


def _batches_text(feed: FeedView) -> list[str]:
    return [format_count(feed.micro_batches, "micro-batch", "micro-batches")]


def _epochs_text(feed: FeedView) -> list[str]:
    return [f"{feed.epochs} epochs"] if feed.epochs > 1 else []


def _rows_of(feed: FeedView) -> int:
    return sum(feed.rows.values())


def _partitions_text(feed: FeedView) -> str:
    if feed.total_partitions:
        one = feed.total_partitions == 1
        return f"{feed.partitions:,}/{feed.total_partitions:,} {'partition' if one else 'partitions'}"
    return format_count(feed.partitions, "partition")


def _amounts(feed: FeedView, throughput: Throughput | None) -> list[str]:
    """Return bytes and rates: averages once everything is fed, those of the last seconds until then."""
    seconds = feed.ended_s - feed.started_s if feed.kind == "table" and feed.ended_s is not None else 0.0
    if seconds:
        rates = f"{format_rate(_rows_of(feed) / seconds)} rows/s, {format_bytes(feed.size_bytes / seconds)}/s"
        return [f"{format_bytes(feed.size_bytes)} in {format_seconds(seconds)} ({rates})"]
    rate = None if throughput is None or feed.complete else throughput.per_s("fed rows")
    if throughput is None or rate is None:
        return [format_bytes(feed.size_bytes)] if feed.size_bytes else []
    bytes_per_s = throughput.per_s("fed bytes") or 0
    return [format_bytes(feed.size_bytes), f"{format_rate(rate)} rows/s", f"{format_bytes(bytes_per_s)}/s"]


def feed_shares(feed: FeedView) -> str:
    """Return each node's rows, or their range where there are many nodes; equal ones are said once, and none not.

    While it is fed, some nodes have had a leftover row more than others, now and then: that alone is no reason to list.
    """
    low, high = min(feed.rows.values(), default=0), max(feed.rows.values(), default=0)
    if not high:
        return ""
    differ = high - low > (0 if feed.complete else 1)
    if len(feed.rows) < 2 or (len(feed.rows) <= _MAX_SHARES and differ):
        return " · ".join(f"{node} {rows:,}" for node, rows in feed.rows.items())
    each = f"{low:,} rows each" if low == high else f"{low:,} to {high:,} rows"
    return f"{len(feed.rows)} nodes with {each}"


# ---- rates of the last seconds -------------------------------------------------------------------------------------

_WINDOW_S = 5.0
_MIN_SPAN_S = 0.5


class Throughput:
    """The rates of one cluster: rows that its nodes read, rows and bytes that are fed. The caller brings the times."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[float, float]]] = {}

    def record(self, view: ClusterView, now_s: float) -> None:
        """Add a sample of the cluster."""
        for node in view.nodes:
            self._add(node.name, now_s, node.rows)
        feed = view.feeds[-1] if view.feeds else None
        if feed is not None and feed.kind != "inference" and not feed.complete:
            self._add("fed rows", now_s, _rows_of(feed))
            self._add("fed bytes", now_s, feed.size_bytes)

    def _add(self, what: str, now_s: float, value: float) -> None:
        samples = self._samples.setdefault(what, deque())
        if samples and value < samples[-1][1]:
            samples.clear()  # counted from the start again
        samples.append((now_s, value))
        while len(samples) > 2 and samples[1][0] <= now_s - _WINDOW_S:
            samples.popleft()

    def per_s(self, what: str) -> float | None:
        """Return the rate of a node's rows, of "fed rows" or "fed bytes"; None while there are too few samples."""
        samples = self._samples.get(what)
        if not samples or not samples[-1][1]:
            return None
        (first_s, first), (last_s, last) = samples[0], samples[-1]
        return (last - first) / (last_s - first_s) if last_s - first_s >= _MIN_SPAN_S else None
