"""What a cluster record says of nodes and their progress."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from tfos_lab.core.recorded_cluster import RecordedActivity, RecordedFigures, RecordedNode
from tfos_lab.core.states import NodeState
from tfos_lab.engine.state.activity import NodeActivity
from tfos_lab.engine.state.events import ClusterView, NodeView

_LOSS = "loss"


class NodeProgress(Protocol):
    """What the figures of a cluster need of each node."""

    @property
    def state(self) -> str:
        """State of the node."""
        ...

    @property
    def step(self) -> int | None:
        """The step that it reported last."""
        ...

    @property
    def total_steps(self) -> int | None:
        """The number of steps that it will take."""
        ...

    @property
    def metrics(self) -> Mapping[str, float | None]:
        """Its last metrics."""
        ...


def recorded(view: NodeView) -> RecordedNode:
    """Return what the record says of one node."""
    return RecordedNode(
        node=view.node,
        state=view.state,
        host=view.host,
        detail=view.detail,
        pid=view.pid,
        gpus=view.gpus,
        step=view.step,
        total_steps=view.total_steps,
        rows=view.rows,
        metrics=dict(view.metrics),
        hung=view.hung,
        activity=_activity(view.activity),
    )


def _activity(activity: NodeActivity | None) -> RecordedActivity | None:
    if activity is None:
        return None
    return RecordedActivity(**{name: getattr(activity, name) for name in RecordedActivity.__struct_fields__})


def figures_of(view: ClusterView) -> RecordedFigures:
    """Return how far a cluster is; of a search, the best value so far, as its runs have no step in common."""
    if view.search is not None:
        return best_of(view.search.metric, view.search.best)
    figures = RecordedFigures() if view.of_runs else figures_of_nodes(view.nodes)
    return msgspec.structs.replace(figures, progress=view.progress, seconds_left=view.seconds_left)


def best_of(metric: str, value: float | None) -> RecordedFigures:
    """Return the best value that a search has found."""
    return RecordedFigures(metric=f"best {metric}".strip(), value=value)


def figures_of_nodes(nodes: Iterable[NodeProgress]) -> RecordedFigures:
    """Return the step of the slowest node that goes on, and the loss, or another metric, of the first that has one."""
    nodes = list(nodes)
    stepping = [node for node in nodes if node.step is not None]
    slowest = min([node for node in stepping if _goes_on(node)] or stepping, key=_step, default=None)
    metrics = next((node.metrics for node in nodes if node.metrics), {})
    metric = _LOSS if _LOSS in metrics else next(iter(metrics), "")
    return RecordedFigures(
        step=slowest.step if slowest else None,
        total_steps=slowest.total_steps if slowest else None,
        metric=metric,
        value=metrics.get(metric),
    )


def _step(node: NodeProgress) -> int:
    return node.step or 0


def _goes_on(node: NodeProgress) -> bool:
    return not any(state.ended for state in NodeState if state == node.state)
