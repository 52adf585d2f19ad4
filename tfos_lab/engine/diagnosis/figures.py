"""The figures of a cluster's training that a verdict is made from. Pure: views go in."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tfos_lab.core.roles import role_of
from tfos_lab.engine.state.activity import SHARE_NAMES, NodeActivity
from tfos_lab.engine.state.changed import changed
from tfos_lab.engine.state.events import FeedView, NodeView

# Of fewer steps, nothing can be told: the first ones are slow.
_FEWEST_STEPS = 4
# A node without a sign for longer may be hung; that is not a question of speed.
_LONGEST_IDLE_S = 15.0
# So much of a step may be the machine's moods.
_NOT_SEEN_S = 0.001


@dataclass(frozen=True)
class Figures:
    """What is known of the nodes that train, all of which have figures.

    Attributes
    ----------
    nodes : tuple of NodeView
        Those nodes.
    feeds : tuple of FeedView
        The calls of `Cluster.train` and `Cluster.inference` so far.
    """

    nodes: tuple[NodeView, ...]
    feeds: tuple[FeedView, ...] = ()

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
    return Figures(training, tuple(feeds))


def trains(node: NodeView) -> bool:
    """Whether a node trains; an independent run does."""
    return _job_trains(node.job_name)


@functools.cache
def _job_trains(job_name: str) -> bool:
    return job_name == "run" or role_of(job_name).trains


def _is_telling(activity: NodeActivity | None) -> bool:
    if activity is None or activity.step_s is None or activity.idle_s > _LONGEST_IDLE_S:
        return False
    return (activity.step or 0) >= _FEWEST_STEPS and activity.is_known


def own_s(activity: NodeActivity) -> float:
    """Return the seconds of a step that are a node's own: in lock-step all steps take as long, and the fast wait."""
    return (activity.step_s or 0.0) * (1.0 - activity.waits_peers)


def with_slower(nodes: Sequence[NodeView]) -> tuple[NodeView, ...]:
    """Return the nodes; those that train also say how much slower than their peers they are, where that is known.

    Where less than a millisecond of a step makes the difference, they are as fast as their peers.
    """
    telling = [
        (place, own_s(activity))
        for place, node in enumerate(nodes)
        if (activity := node.activity) is not None and trains(node) and _is_telling(activity)
    ]
    if len(telling) < 2:
        return tuple(nodes)
    usual_s_of = _MedianOfOthers([seconds for _, seconds in telling])
    told = list(nodes)
    for place, seconds in telling:
        usual_s = usual_s_of(seconds)
        slower = seconds / usual_s if usual_s > 0 else None
        if slower is not None and abs(seconds - usual_s) < _NOT_SEEN_S:
            slower = 1.0
        told[place] = changed(told[place], activity=changed(told[place].activity, slower=slower))
    return tuple(told)


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
