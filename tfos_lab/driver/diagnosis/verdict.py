"""Why training is as slow as it is, in words, from what the nodes have measured. Pure: figures go in.

Where the figures allow no certain answer, there is none. A verdict has at most fifteen words, and at most one piece of
advice: what to try first. The order of the rules is that of what helps most: one slow node explains the waiting of all
others, and waiting explains why nodes compute little.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tfos_lab.core.messages import NodeActivity
from tfos_lab.core.roles import role_of
from tfos_lab.driver.state.events import SHARE_NAMES, FeedView, NodeView
from tfos_lab.texts import format_metric, format_step

# Waiting for less than this share of the time is not worth a word, and for less than the first one no verdict.
_MUCH = 0.3
_LITTLE = 0.2
_MOSTLY = 0.5
_NEARLY_ALWAYS = 0.8
_BUSY_GPU = 0.8
# Nobody asks why shorter steps are slow.
_SHORT_STEP_S = 0.05
# A table of fewer partitions for each node is delivered by fewer tasks than could.
_PARTITIONS = 2


class Kind(StrEnum):
    """What limits the speed of training."""

    SEPARATE = "separate"
    ROWS = "rows"
    DATA = "tf.data"
    STRAGGLER = "straggler"
    CORES = "cores"
    PEERS = "peers"
    COMPUTE = "compute"
    PYTHON = "python"
    HEALTHY = "healthy"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Verdict:
    """What limits training, and the same in words with what to do; unknown is silent."""

    kind: Kind
    text: str = ""


def judge(nodes: Sequence[NodeView], feeds: Sequence[FeedView], rates: Mapping[str, float]) -> Verdict:
    """Return what limits training, or that it is not what was meant; ``rates`` are learning rates that differ."""
    if _train_apart(nodes):
        text = "Each node trains a model of its own. Build it under ctx.strategy().scope()."
        return Verdict(Kind.SEPARATE, text)
    if rates:
        told = ", ".join(f"{node} {format_metric(rate)}" for node, rate in rates.items())
        return Verdict(Kind.SEPARATE, f"Learning rates differ ({told}). Give all nodes the same callbacks.")
    figures = figures_of(nodes, feeds)
    if figures is None:
        return Verdict(Kind.UNKNOWN)
    rules: tuple[Callable[[Figures], Verdict | None], ...]
    rules = (_straggler, _rows, _data, _cores, _peers, _python, _compute, _healthy)
    found = (verdict for rule in rules if (verdict := rule(figures)) is not None)
    return next(found, Verdict(Kind.UNKNOWN))


def _train_apart(nodes: Sequence[NodeView]) -> bool:
    """Whether several nodes train, and each of them a model that the others know nothing of; independent runs may."""
    training = [node for node in nodes if trains(node) and node.job_name != "run"]
    return len(training) > 1 and all(node.activity is not None and node.activity.trains_alone for node in training)


# ---- one node -------------------------------------------------------------------------------------------------------


def _straggler(figures: Figures) -> Verdict | None:
    slow = [node for node in figures.nodes if _slower(node)]
    others = [node for node in figures.nodes if not _slower(node)]
    if not slow or not others:
        return None
    slowest = max(slow, key=_slower)
    if len(slow) > 1:
        names = " and ".join(node.name for node in slow) if len(slow) == 2 else f"{len(slow)} nodes"
        return Verdict(Kind.STRAGGLER, f"{names} are up to {_slower(slowest):.1f}× slower than the others.")
    return Verdict(Kind.STRAGGLER, f"{slowest.name} is {_slower(slowest):.1f}× slower{_why_slow(slowest, others)}")


def _slower(node: NodeView) -> float:
    return node.activity.slower or 0.0 if node.activity is not None else 0.0


def _has_busiest_host(node: NodeView, others: list[NodeView]) -> bool:
    """Whether a node's host is busy and those of the others are not; nodes measure one host at different moments."""
    elsewhere = [_host_cpu(other) for other in others if other.host != node.host]
    return bool(elsewhere) and _host_cpu(node) >= BUSY_HOST and statistics.median(elsewhere) < BUSY_HOST - 0.1


def _why_slow(node: NodeView, others: list[NodeView]) -> str:
    activity = node.activity
    assert activity is not None
    if _has_busiest_host(node, others):
        return f": its host {node.host} is at {_percent(activity.host_cpu)} CPU."
    if activity.waits_rows >= _MUCH:
        return ": it waits for rows. Repartition the DataFrame evenly."
    if activity.waits_data >= _MUCH:
        return ": it waits for its tf.data pipeline. Look at its disk."
    if activity.python >= _MOSTLY:
        return f", in Python ({activity.where}). Try %tfos profile {node.name}."
    equal = "hosts and batches" if any(other.host != node.host for other in others) else "batches"
    return f": it computes longer. Give all nodes equal {equal}."


# ---- all nodes ------------------------------------------------------------------------------------------------------


def _rows(figures: Figures) -> Verdict | None:
    waits = figures.mean("waits_rows")
    if waits < _MUCH or waits < figures.mean("waits_data"):
        return None
    feeds = [feed for feed in figures.feeds if feed.kind != "inference" and not feed.split]
    if feeds and feeds[-1].kind == "stream":
        return Verdict(Kind.HEALTHY, f"Keeps up with the stream: waits for its rows {_percent(waits)} of the time.")
    what = f"Waits for rows {_percent(waits)} of the time"
    if feeds and feeds[-1].complete:
        return Verdict(Kind.ROWS, f"{what}, though all have arrived. Raise batch_size.")
    partitions = feeds[-1].total_partitions if feeds else None
    cure = "Use more partitions." if (partitions or 0) < _PARTITIONS * len(figures.nodes) else "Cache the DataFrame."
    rate = f": Spark delivers {_number(figures.rows_s)} rows/s" if figures.rows_s > 0 else ""
    return Verdict(Kind.ROWS, f"{what}{rate}. {cure}")


def _data(figures: Figures) -> Verdict | None:
    waits = figures.mean("waits_data")
    if waits < _MUCH:
        return None
    what = f"Waits for its tf.data pipeline {_percent(waits)} of the time"
    if max(map(_host_cpu, figures.nodes)) >= BUSY_HOST:
        return Verdict(Kind.DATA, f"{what}, on busy cores. Try cache().")
    return Verdict(Kind.DATA, f"{what}. Try num_parallel_calls=tf.data.AUTOTUNE.")


def _cores(figures: Figures) -> Verdict | None:
    """Find nodes that share too few cores: that makes them wait for one another, and slow."""
    hosts: dict[str, list[NodeView]] = {}
    for node in figures.nodes:
        hosts.setdefault(node.host, []).append(node)
    crowded = [host for host, nodes in hosts.items() if _is_crowded(nodes)]
    if not crowded:
        return None
    nodes = hosts[crowded[0]]
    cores = _host_cores(nodes[0])
    what = f"{len(nodes)} nodes share {cores} busy {'core' if cores == 1 else 'cores'}"
    if len(hosts) > 1:
        return Verdict(Kind.CORES, f"{what} of {crowded[0]}. Fewer nodes per host would be as fast.")
    if any(node.job_name == "run" for node in nodes):
        return Verdict(Kind.CORES, f"{what}.")
    return Verdict(Kind.CORES, f"{what}. cluster_size={cores + figures.helpers} would be as fast.")


def _is_crowded(nodes: list[NodeView]) -> bool:
    """Whether the nodes of a host are more than its cores, and keep these busy themselves."""
    activities = [node.activity for node in nodes if node.activity is not None]
    cores = _host_cores(nodes[0])
    if not 0 < cores < len(nodes) or any(activity.gpu is not None for activity in activities):
        return False
    is_busy = statistics.fmean(activity.host_cpu for activity in activities) >= BUSY_HOST
    return is_busy and sum(activity.cpu for activity in activities) >= _MOSTLY * cores


def _peers(figures: Figures) -> Verdict | None:
    waits = figures.mean("waits_peers")
    if waits < _MUCH:
        return None
    what = f"The nodes wait for one another {_percent(waits)} of the time"
    return Verdict(Kind.PEERS, f"{what}. Try larger batches.")


def _python(figures: Figures) -> Verdict | None:
    share = figures.mean("python")
    if share < _MOSTLY or figures.step_s < _SHORT_STEP_S:
        return None
    where = next((activity.where for activity in figures.activities if activity.where), "")
    at = f" ({where})" if where else ""
    what = f"Spends {_percent(share)} of its time in Python{at}"
    # Code that sleeps, or waits for a disk or a network, would do so within a tf.function, too. On a busy host, code
    # that computes gets a part of a core.
    is_busy = max(map(_host_cpu, figures.nodes)) >= BUSY_HOST
    if statistics.fmean(activity.cpu for activity in figures.activities) < (_LITTLE if is_busy else _MOSTLY * share):
        return Verdict(Kind.PYTHON, f"{what}, mostly waiting.")
    return Verdict(Kind.PYTHON, f"{what}. Try tf.function.")


def _compute(figures: Figures) -> Verdict | None:
    share = figures.mean("computes")
    gpus = [activity.gpu for activity in figures.activities if activity.gpu is not None]
    # GPUs are busy while they wait for those of other nodes.
    if any(activity.has_gpu_peers for activity in figures.activities):
        return None
    if share < _NEARLY_ALWAYS or figures.step_s < _SHORT_STEP_S:
        return None
    if gpus and statistics.fmean(gpus) < _BUSY_GPU:
        return None
    what = f"Compute bound: {_percent(share)} of each step of {format_step(figures.step_s)}"
    if gpus:
        return Verdict(Kind.COMPUTE, f"{what}, GPUs at {_percent(statistics.fmean(gpus))}. More would help.")
    if statistics.fmean(map(_host_cpu, figures.nodes)) >= BUSY_HOST:
        return Verdict(Kind.COMPUTE, f"{what}, on busy cores.")
    return Verdict(Kind.COMPUTE, f"{what}. More nodes would help.")


def _healthy(figures: Figures) -> Verdict | None:
    waits, works = figures.mean("waits_rows", "waits_data", "waits_peers"), figures.mean("computes")
    is_short = figures.step_s < _SHORT_STEP_S
    if waits >= _LITTLE or any(activity.has_gpu_peers for activity in figures.activities):
        return None
    if not is_short:
        text = f"Healthy: computes {_percent(works)} of the time."
        return Verdict(Kind.HEALTHY, text) if works >= _MOSTLY else None
    text = f"Healthy: steps of {format_step(figures.step_s)}"
    if figures.mean("python") < _NEARLY_ALWAYS:
        return Verdict(Kind.HEALTHY, f"{text}.")
    return Verdict(Kind.HEALTHY, f"{text}, mostly Python. Larger batches take more rows per second.")


# ---- words ----------------------------------------------------------------------------------------------------------


def _host_cpu(node: NodeView) -> float:
    return node.activity.host_cpu if node.activity is not None else 0.0


def _host_cores(node: NodeView) -> int:
    return node.activity.host_cores if node.activity is not None else 0


def _percent(share: float) -> str:
    return f"{100 * min(share, 1.0):.0f} %"


def _number(value: float) -> str:
    """Return a number in two significant digits, as more are not measured."""
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


# ---- the figures that a verdict is made from -------------------------------------------------------------------------


# Of fewer steps, or of less time, nothing can be told: the first ones are slow, and nobody asks why a run of a few
# seconds is.
_FEWEST_STEPS = 4
_SHORTEST_S = 3.0
# A node without a sign for longer may be hung; that is not a question of speed.
_LONGEST_IDLE_S = 15.0
# A node is slower than the others if its own part of a step takes so many times longer than theirs …
_SLOWER = 1.4
# … and that is so much of the step, which is more than samples of the last seconds are off. Nodes that share a busy
# host take turns at its cores: their own parts differ by more from moment to moment.
_SEEN_S = 0.005
_SEEN = 0.25
_SEEN_ON_A_BUSY_HOST = 0.5
# No node is more than a hundred times slower.
_LEAST = 0.01
BUSY_HOST = 0.9


@dataclass(frozen=True)
class Figures:
    """What is known of the nodes that train, all of which have figures; ``helpers`` is how many others there are."""

    nodes: tuple[NodeView, ...]
    feeds: tuple[FeedView, ...] = ()
    helpers: int = 0

    @functools.cached_property
    def activities(self) -> list[NodeActivity]:
        """What they do, in the same order."""
        return [node.activity for node in self.nodes if node.activity is not None]

    @functools.cached_property
    def _means(self) -> dict[str, float]:
        return {
            name: statistics.fmean([getattr(activity, name) for activity in self.activities]) for name in SHARE_NAMES
        }

    def mean(self, *names: str) -> float:
        """Return the sum of some shares, as the mean over the nodes."""
        return sum(self._means[name] for name in names)

    @functools.cached_property
    def step_s(self) -> float:
        """Seconds of a step: the median over the nodes."""
        return statistics.median(activity.step_s or 0.0 for activity in self.activities)

    @property
    def rows_s(self) -> float:
        """Rows per second that all nodes take together."""
        return sum(activity.rows_s for activity in self.activities)


def figures_of(nodes: Sequence[NodeView], feeds: Sequence[FeedView] = ()) -> Figures | None:
    """Return the figures of the nodes that train, or None where some of them are not known (yet)."""
    training = tuple(node for node in nodes if trains(node))
    if not training or not all(_is_telling(node.activity) for node in training):
        return None
    return Figures(training, tuple(feeds), len(nodes) - len(training))


def trains(node: NodeView) -> bool:
    """Whether a node trains; an independent run does."""
    return _job_trains(node.job_name)


@functools.cache
def _job_trains(job_name: str) -> bool:
    return job_name == "run" or role_of(job_name).trains


def _is_telling(activity: NodeActivity | None) -> bool:
    if activity is None or activity.step_s is None or activity.idle_s > _LONGEST_IDLE_S:
        return False
    steps = activity.step or 0
    return steps >= _FEWEST_STEPS and steps * activity.step_s >= _SHORTEST_S and activity.is_known


def has_passed(nodes: Sequence[NodeView]) -> bool:
    """Whether the steps of nodes have become so short that what was told of the first, slow ones holds no more."""
    known = [node.activity for node in nodes if trains(node) and node.activity is not None]
    took_s = [activity.step * activity.step_s for activity in known if activity.step and activity.step_s is not None]
    return bool(took_s) and max(took_s) < _SHORTEST_S


def slower_nodes(nodes: Sequence[NodeView]) -> dict[str, float]:
    """Return the nodes that hold their peers up at this moment, each with how many times slower than they it is.

    What counts is the part of a step that is a node's own. It must be longer than the others' by a factor, and by more
    than the figures of a moment are off.
    """
    telling = [node for node in nodes if trains(node) and _is_telling(node.activity)]
    if len(telling) < 2:
        return {}
    # In lock-step all steps take as long, and the fast nodes wait.
    known = [node.activity for node in telling if node.activity is not None]
    own = [(activity.step_s or 0.0) * (1.0 - activity.waits_peers) for activity in known]
    ordered, others = sorted(own), len(own) - 1
    middle = (others - 1) // 2, others // 2
    busy = _busy_shared_hosts(telling)
    found = {}
    for node, seconds in zip(telling, own, strict=True):
        assert node.activity is not None
        assert node.activity.step_s is not None
        # The median of the others: without a value before it, the middle is one further to the right.
        median_s = statistics.fmean(ordered[at + (seconds <= ordered[at])] for at in middle)
        usual_s = max(median_s, _LEAST * node.activity.step_s)
        if seconds < max(_SLOWER * usual_s, usual_s + _SEEN_S):
            continue
        seen = _SEEN_ON_A_BUSY_HOST if node.host in busy else _SEEN
        if seconds - usual_s >= seen * node.activity.step_s:
            found[node.name] = seconds / usual_s
    return found


def _busy_shared_hosts(nodes: Sequence[NodeView]) -> set[str]:
    """Return the hosts on which several nodes keep the cores busy; nodes measure one host at different moments."""
    uses: dict[str, list[float]] = {}
    for node in nodes:
        if node.activity is not None:
            uses.setdefault(node.host, []).append(node.activity.host_cpu)
    return {host for host, seen in uses.items() if len(seen) > 1 and statistics.fmean(seen) >= BUSY_HOST}
