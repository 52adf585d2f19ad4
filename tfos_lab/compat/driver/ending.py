"""Waits for the nodes of a cluster, and ends those that only help others: what `TFCluster.shutdown` does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfos_lab.core.roles import Role
from tfos_lab.core.states import NodeState
from tfos_lab.engine.cluster import runtime_of
from tfos_lab.errors import ShutdownTimeout

if TYPE_CHECKING:
    from tfos_lab.engine.cluster import Cluster

_STEP_S = 0.05
# A node that is told to end gets this long before it is killed.
_GRACE_S = 5.0


class Deadline:
    """The end of a time that may be unlimited.

    Parameters
    ----------
    timeout_s : float
        From now on; 0 and less mean no limit.
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._at_s = time.monotonic() + timeout_s if timeout_s > 0 else None

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self._at_s is not None and time.monotonic() > self._at_s


def end_cluster(cluster: Cluster, deadline: Deadline, *, grace_s: float) -> None:
    """Wait until all nodes that train have returned, then end the others; the cluster is stopped in any case.

    Parameters
    ----------
    cluster : Cluster
        The cluster.
    deadline : Deadline
        When to give up.
    grace_s : float
        How long an evaluator may go on after the last node that trains.

    Raises
    ------
    NodeFailed, FeedError
        What went wrong, whenever it did.
    ShutdownTimeout
        If nodes still run at the deadline.
    """
    try:
        _wait_for_training(cluster, deadline)
        _end_evaluator(cluster, grace_s)
        cluster.wait()
    finally:
        cluster.stop()


def _wait_for_training(cluster: Cluster, deadline: Deadline) -> None:
    runtime_of(cluster).feeding.end()
    while running := _running(cluster, trains=True):
        if deadline.is_over:
            cluster.stop(grace_s=_GRACE_S)
            raise ShutdownTimeout(waited_s=deadline.timeout_s, still_running=running)
        time.sleep(_STEP_S)


def _end_evaluator(cluster: Cluster, grace_s: float) -> None:
    """End a node that TensorFlow's cluster knows nothing of, and that may loop forever, as an evaluator does."""
    until_s = time.monotonic() + grace_s
    while _running(cluster, trains=False) and time.monotonic() < until_s:
        time.sleep(_STEP_S)
    if _running(cluster, trains=False):
        cluster.stop(grace_s=_GRACE_S)


def _running(cluster: Cluster, *, trains: bool) -> list[str]:
    """Return the nodes whose end is awaited: those that train, or the evaluator. Others serve until told to end."""
    generation = runtime_of(cluster).generation
    with generation.server.lock:
        state, views = generation.cluster_state.state, generation.cluster_state.views
    going = [view for view in views if not view.state.ended and view.state is not NodeState.SERVING]
    roles = {view.node: Role(view.job_name) for view in going}
    return [] if state.ended else [node for node, role in roles.items() if role.trains is trains and not role.serves]


def end_streaming(cluster: Cluster, ssc: Any, is_done: Callable[[], bool], deadline: Deadline) -> None:
    """Wait until a StreamingContext has ended; end it, but not Spark, once no more rows are wanted.

    Parameters
    ----------
    cluster : Cluster
        The cluster that it feeds; also if that has ended, nobody takes rows any more.
    ssc : pyspark.streaming.StreamingContext
        The streaming context.
    is_done : callable
        Whether a node, or somebody else, has asked for the end.
    deadline : Deadline
        When to end it in any case.
    """
    while not ssc.awaitTerminationOrTimeout(1):
        if is_done() or cluster.ended or deadline.is_over:
            ssc.stop(stopSparkContext=False, stopGraceFully=not deadline.is_over)
            return
