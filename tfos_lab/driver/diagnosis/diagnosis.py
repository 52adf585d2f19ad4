"""What `Cluster.diagnose` returns: figures of all nodes, and what follows from them."""

from __future__ import annotations

import math
import statistics
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tfos_lab.core.markup import h
from tfos_lab.core.messages import NodeActivity
from tfos_lab.driver.diagnosis.verdict import Kind, Verdict, has_passed, judge, slower_nodes, trains
from tfos_lab.driver.metrics import by_weight
from tfos_lab.driver.state.events import (
    BANDS,
    ClusterView,
    FeedView,
    NodeView,
    Spread,
    UsageView,
    changed,
    usage_lines,
)


@dataclass(frozen=True)
class Diagnosis:
    """Why training is as slow as it is.

    Attributes
    ----------
    kind : str
        What limits it: ``"separate"`` (each node trains a model of its own, or at a rate of its own), ``"rows"``,
        ``"tf.data"``, ``"straggler"``, ``"cores"``, ``"peers"``, ``"compute"``, ``"python"``, ``"healthy"``, or
        ``"unknown"``.
    verdict : str
        The same in words, with the figures and what to do; "" where it is not known.
    nodes : dict of str to NodeActivity
        What each node does; only those that have sent figures.
    progress : float or None
        Which part of the training is done, 0 to 1.
    seconds_left : float or None
        How long the rest will take.
    """

    kind: str = Kind.UNKNOWN.value
    verdict: str = ""
    nodes: dict[str, NodeActivity] = field(default_factory=dict)
    progress: float | None = None
    seconds_left: float | None = None

    def __str__(self) -> str:
        return self.verdict or "What limits training cannot be told from what the nodes have measured."

    def _repr_html_(self) -> str:
        return h("p", str(self))


# A node is called slower when it was in so many of its figures, one after the other.
_UPDATES = 3


class Stragglers:
    """Judges which nodes are slower than their peers, from moment to moment: the one judgement that displays show.

    A node's figures come about once a second.
    """

    def __init__(self) -> None:
        self._seen: dict[str, NodeActivity | None] = {}
        self._updates: dict[str, int] = {}

    def note(self, nodes: Sequence[NodeView]) -> dict[str, float]:
        """Return those that hold their peers up, with how many times slower than they they are."""
        found, updates = slower_nodes(nodes), {}
        for node in nodes:
            if node.name in found:
                is_new = self._seen.get(node.name) is not node.activity
                updates[node.name] = self._updates.get(node.name, 0) + is_new
        self._updates, self._seen = updates, {node.name: node.activity for node in nodes}
        return {node: found[node] for node, count in updates.items() if count >= _UPDATES}


# What a schedule computes may differ in its last bits. So many epochs of each node are remembered.
_SAME_RATE = 1e-4
_EPOCHS = 8


class LearningRates:
    """Compares the learning rates with which nodes have ended the same epoch, which they report at different moments.

    With different ones, each trains a model of its own, as it updates that itself.
    """

    def __init__(self) -> None:
        # Of each process of a node: it counts its own epochs.
        self._known: dict[str, tuple[int, dict[int, float]]] = {}

    def note(self, nodes: Sequence[NodeView]) -> dict[str, float]:
        """Return the rates of two nodes that differ most, if they do in the last epoch that all have ended."""
        for node in nodes:
            pid, known = self._known.get(node.name, (0, {}))
            if pid != node.pid and known:
                self._known[node.name] = node.pid, {}
            seen = node.activity
            if seen is None or seen.learning_rate is None or node.job_name == "run" or not trains(node):
                continue
            _, known = self._known.setdefault(node.name, (node.pid, {}))
            known[seen.epochs] = seen.learning_rate
            while len(known) > _EPOCHS:
                del known[min(known)]
        epochs = [known for _, known in self._known.values()]
        shared = set.intersection(*map(set, epochs)) if epochs else set()
        if not shared:
            return {}
        rates = {name: known[max(shared)] for name, (_, known) in self._known.items()}
        low, high = min(rates, key=rates.__getitem__), max(rates, key=rates.__getitem__)
        if math.isclose(rates[low], rates[high], rel_tol=_SAME_RATE):
            return {}
        return {node.name: rates[node.name] for node in nodes if node.name in (low, high)}


# The figures of a node that a verdict, and the badge of a slower node, are made from.
_JUDGED = ("step_s", "waits_rows", "waits_data", "waits_peers", "computes", "python", "slower")


class Assessor:
    """Judges a cluster from moment to moment, and remembers the last verdict. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._time_left = TimeLeft()
        self._usage = UsageLog()
        self._stragglers = Stragglers()
        self._rates = LearningRates()
        self._last = Verdict(Kind.UNKNOWN)
        # What it was made from: of nodes that end, the last figures are of how they save and wait.
        self._told: dict[str, NodeActivity | None] = {}

    def assess(self, view: ClusterView, now_s: float) -> ClusterView:
        """Return the view, with what its nodes' figures tell; of a run that is over, what they told last."""
        progress = progress_of(view.nodes, view.feeds)
        with self._lock:
            slower = self._stragglers.note(view.nodes)
            nodes = tuple(
                changed(node, activity=changed(node.activity, slower=slower[node.name]))
                if node.name in slower
                else node
                for node in view.nodes
            )
            verdict = self._judge(replace(view, nodes=nodes))
            if self._is_kept(view):
                nodes = tuple(map(self._as_told, nodes))
            # How long a node will hang, nobody knows.
            is_known = not view.state.is_settled and not any(node.hung and node.state.is_present for node in view.nodes)
            left_s = self._time_left.note(progress if is_known else None, now_s)
            usage = self._usage.note(view.nodes, now_s - view.started_s)
        return replace(
            view,
            nodes=nodes,
            progress=progress,
            seconds_left=left_s,
            verdict=verdict.text,
            alarm=_nan_text(nodes),
            usage=usage,
        )

    def _as_told(self, node: NodeView) -> NodeView:
        """Return a node that has ended with those figures that the last verdict was made from."""
        told = self._told.get(node.name)
        if node.activity is None or told is None or not node.state.ended:
            return node
        return changed(node, activity=changed(node.activity, **{name: getattr(told, name) for name in _JUDGED}))

    def _is_kept(self, view: ClusterView) -> bool:
        """Whether the last verdict is that of the run: nodes have begun to end."""
        is_over = view.state.is_settled or any(node.state.ended for node in view.nodes if trains(node))
        return is_over and self._last.kind is not Kind.UNKNOWN and not has_passed(view.nodes)

    def _judge(self, view: ClusterView) -> Verdict:
        if self._is_kept(view):
            verdict = self._last
        else:
            verdict = judge(view.nodes, view.feeds, self._rates.note(view.nodes))
            if verdict.kind is not Kind.UNKNOWN:
                self._last, self._told = verdict, {node.name: node.activity for node in view.nodes}
        # No speed helps a model that learns no more.
        learns = verdict.kind is Kind.SEPARATE or not any("loss" in node.nan_since for node in view.nodes)
        return verdict if learns else Verdict(Kind.UNKNOWN)

    def diagnose(self, view: ClusterView) -> Diagnosis:
        """Return what an assessed view tells."""
        with self._lock:
            verdict = self._judge(view)
        return Diagnosis(
            kind=verdict.kind.value,
            verdict=verdict.text,
            nodes={node.name: node.activity for node in view.nodes if node.activity is not None},
            progress=view.progress,
            seconds_left=view.seconds_left,
        )


# The speed is that of the last half minute: the first steps are slow, as TensorFlow traces functions.
_WINDOW_S = 30.0
_SAMPLE_EVERY_S = 1.0
# Of less than this, no speed can be told.
_SHORTEST_S = 2.0


def progress_of(nodes: Sequence[NodeView], feeds: Sequence[FeedView] = ()) -> float | None:
    """Return which part of the training is done, 0 to 1, or None if that is not known.

    By steps where nodes that train have said how many there will be, else by rows where all of them have arrived.
    """
    training = [node for node in nodes if trains(node)]
    parts = [_part(node.step or 0, node.total_steps) for node in training if node.total_steps]
    if parts:
        # Nodes that do not report are as far as the others: often only the chief does.
        return sum(parts) / len(parts)
    feeds = [feed for feed in feeds if not feed.split]
    rows = sum(sum(feed.rows.values()) * feed.epochs for feed in feeds)
    if not rows or not all(feed.kind == "table" and feed.complete for feed in feeds):
        return None
    return _part(sum(node.rows for node in training), rows)


def _part(done: int, total: int) -> float:
    return max(0.0, min(1.0, done / total))


class TimeLeft:
    """Tells from the progress of the last seconds how long the rest will take."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque()

    def note(self, progress: float | None, now_s: float) -> float | None:
        """Record the progress at a time; return the seconds that are left, or None if that is not known."""
        if progress is None:
            self._samples.clear()
            return None
        if self._samples and progress < self._samples[-1][1]:
            self._samples.clear()  # the nodes have started again
        if not self._samples or now_s - self._samples[-1][0] >= _SAMPLE_EVERY_S:
            self._samples.append((now_s, progress))
        while len(self._samples) > 2 and now_s - self._samples[1][0] >= _WINDOW_S:
            self._samples.popleft()
        if progress >= 1.0:
            return 0.0
        first_s, before = self._samples[0]
        elapsed_s, done = now_s - first_s, progress - before
        return (1.0 - progress) * elapsed_s / done if elapsed_s >= _SHORTEST_S and done > 0 else None


# Of a run, so many moments are kept: twice as far apart once there are more.
_MOST_MOMENTS = 60


class UsageLog:
    """What the nodes have used in the course of time; a moment is one at which somebody looks."""

    def __init__(self) -> None:
        self._moments: list[UsageView] = []
        self._every_s = 1.0

    def note(self, nodes: Sequence[NodeView], at_s: float) -> tuple[UsageView, ...]:
        """Record what the nodes use that have not ended; return all moments."""
        last_s = self._moments[-1].time_s if self._moments else -self._every_s
        if at_s >= last_s + self._every_s and any(map(_going, nodes)):
            self._moments.append(_usage_of(nodes, at_s))
        if len(self._moments) > _MOST_MOMENTS:
            del self._moments[1::2]
            self._every_s *= 2
        return tuple(self._moments)


def _going(node: NodeView) -> NodeActivity | None:
    """Return the figures of a node that has not ended, where it has measured what it uses."""
    activity = None if node.state.ended else node.activity
    return activity if activity is not None and activity.memory_bytes else None


def _usage_of(nodes: Sequence[NodeView], at_s: float) -> UsageView:
    activities = [_going(node) for node in nodes]
    is_each = usage_lines(nodes) != BANDS

    def spread(field: str) -> Spread:
        values = [None if activity is None else getattr(activity, field) for activity in activities]
        known = [value for value in values if value is not None]
        if not known:
            return ()
        kept = values if is_each else [max(known), statistics.median(known), min(known)]
        return tuple(None if value is None else round(value, 2) for value in kept)

    cpu, memory, gpu, gpu_memory = map(spread, ("cpu", "memory_bytes", "gpu", "gpu_memory_bytes"))
    return UsageView(round(at_s, 1), cpu, memory, gpu, gpu_memory)


def _nan_text(nodes: Sequence[NodeView]) -> str:
    """Return a sentence on the loss that is NaN, or another metric: ``"loss is NaN since step 12"``; or nothing."""
    names = dict.fromkeys(name for node in nodes for name in node.nan_since)
    if not names:
        return ""
    name = by_weight(names)[0]
    bad = [node for node in nodes if name in node.nan_since]
    steps = [step for node in bad if (step := node.nan_since[name]) is not None]
    since = f" since step {min(steps):,}" if steps else ""
    reporting = sum(name in node.metrics for node in nodes)
    whose = "" if len(bad) == reporting else f" of {bad[0].name}" if len(bad) == 1 else f" of {len(bad)} nodes"
    return f"{name}{whose} is NaN{since}"
