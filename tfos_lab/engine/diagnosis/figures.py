"""The figures of a cluster's training that a verdict is made from. Pure: views go in."""

from __future__ import annotations

import bisect
import functools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tfos_lab.core.roles import role_of
from tfos_lab.engine.state.activity import NodeActivity
from tfos_lab.engine.state.changed import changed
from tfos_lab.engine.state.events import FeedView, NodeView

# Of fewer steps, nothing can be told: the first ones are slow.
_FEWEST_STEPS = 4
# A node without a sign for longer may be hung; that is not a question of speed.
_LONGEST_IDLE_S = 15.0


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

    @property
    def activities(self) -> list[NodeActivity]:
        """What they do, in the same order."""
        return [node.activity for node in self.nodes if node.activity is not None]

    def mean(self, *names: str) -> float:
        """Return the sum of some shares, as the mean over the nodes."""
        return statistics.fmean(sum(getattr(activity, name) for name in names) for activity in self.activities)

    @property
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
    if activity is None or not activity.is_known or activity.step_s is None:
        return False
    return (activity.step or 0) >= _FEWEST_STEPS and activity.idle_s <= _LONGEST_IDLE_S


def own_s(activity: NodeActivity) -> float:
    """Return the seconds of a step that are a node's own: in lock-step all steps take as long, and the fast wait."""
    return (activity.step_s or 0.0) * (1.0 - activity.waits_peers)


def with_slower(nodes: Sequence[NodeView]) -> tuple[NodeView, ...]:
    """Return the nodes; those that train also say how much slower than their peers they are, where that is known."""
    peers = [node for node in nodes if trains(node) and _is_telling(node.activity)]
    if len(peers) < 2:
        return tuple(nodes)
    ordered = sorted(own_s(peer.activity) for peer in peers if peer.activity is not None)
    return tuple(_with_slower(node, ordered) for node in nodes)


def _with_slower(node: NodeView, ordered: Sequence[float]) -> NodeView:
    """Return a node with how much slower it is; ``ordered`` has the seconds of all, its own among them."""
    if node.activity is None or not trains(node) or not _is_telling(node.activity):
        return node
    usual_s = _median_without(ordered, own_s(node.activity))
    slower = own_s(node.activity) / usual_s if usual_s > 0 else None
    return changed(node, activity=changed(node.activity, slower=slower))


def _median_without(ordered: Sequence[float], value: float) -> float:
    """Return the median of sorted values but one of them, in no more time for thousands of them than for two."""
    left_out, count = bisect.bisect_left(ordered, value), len(ordered) - 1
    low, high = (ordered[at + (at >= left_out)] for at in ((count - 1) // 2, count // 2))
    return (low + high) / 2
