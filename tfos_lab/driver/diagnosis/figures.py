"""The figures of a cluster's training that a verdict is made from. Pure: views go in."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tfos_lab.core.messages import NodeActivity
from tfos_lab.core.roles import role_of
from tfos_lab.driver.state.events import SHARE_NAMES, FeedView, NodeView

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
    """What is known of the nodes that train, all of which have figures.

    Attributes
    ----------
    nodes : tuple of NodeView
        Those nodes.
    feeds : tuple of FeedView
        The calls of `Cluster.train` and `Cluster.inference` so far.
    helpers : int
        How many nodes there are that do not train.
    """

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


def own_s(activity: NodeActivity) -> float:
    """Return the seconds of a step that are a node's own: in lock-step all steps take as long, and the fast wait."""
    return (activity.step_s or 0.0) * (1.0 - activity.waits_peers)


def slower_nodes(nodes: Sequence[NodeView]) -> dict[str, float]:
    """Return the nodes that hold their peers up at this moment, each with how many times slower than they it is.

    What counts is the part of a step that is a node's own. It must be longer than the others' by a factor, and by more
    than the figures of a moment are off.
    """
    telling = [node for node in nodes if trains(node) and _is_telling(node.activity)]
    if len(telling) < 2:
        return {}
    own = [own_s(node.activity) for node in telling if node.activity is not None]
    usual_s_of = _MedianOfOthers(own)
    busy = _busy_shared_hosts(telling)
    found = {}
    for node, seconds in zip(telling, own, strict=True):
        assert node.activity is not None
        assert node.activity.step_s is not None
        usual_s = max(usual_s_of(seconds), _LEAST * node.activity.step_s)
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


class _MedianOfOthers:
    """The median of all values but one of them, in no more time for thousands of them than for two."""

    def __init__(self, values: Sequence[float]) -> None:
        ordered = sorted(values)
        count = len(ordered) - 1
        low, high = (count - 1) // 2, count // 2
        # Without a value before, the middle is one further to the right.
        self._low, self._high = ordered[low], ordered[high]
        self._low_after, self._high_after = ordered[low + 1], ordered[high + 1]

    def __call__(self, value: float) -> float:
        """Return the median of the others; ``value`` is one of those given."""
        low = self._low_after if value <= self._low else self._low
        high = self._high_after if value <= self._high else self._high
        return (low + high) / 2
