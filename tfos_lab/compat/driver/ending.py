"""Waits for the nodes of a cluster, and ends those that only help others: what `TFCluster.shutdown` does."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfos_lab.core.roles import Role
from tfos_lab.core.states import NodeState, RunState
from tfos_lab.errors import ShutdownTimeout, TfosError

if TYPE_CHECKING:
    from tfos_lab.driver.cluster import Cluster

logger = logging.getLogger(__name__)

_STEP_S = 0.05
_STREAM_STEP_S = 0.5
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


@dataclass(frozen=True)
class Streams:
    """Streams that feed a cluster.

    Attributes
    ----------
    context : pyspark.streaming.StreamingContext
        The streaming context.
    is_done : callable
        Whether somebody has asked for the end. It also comes when a node wants no more rows, or the cluster has ended.
    """

    context: Any
    is_done: Callable[[], bool]


def end_cluster(cluster: Cluster, deadline: Deadline, *, grace_s: float, streams: Streams | None = None) -> None:
    """Wait until all nodes that train have returned, then end the others; the cluster is stopped in any case.

    Parameters
    ----------
    cluster : Cluster
        The cluster.
    deadline : Deadline
        When to give up.
    grace_s : float
        How long an evaluator may go on after the last node that trains.
    streams : Streams, optional
        Are ended first.

    Raises
    ------
    NodeFailed, FeedError
        What went wrong, whenever it did.
    ShutdownTimeout
        If nodes still run at the deadline.
    """
    try:
        if streams is not None:
            _end_streams(cluster, streams, deadline)
        _wait_for_training(cluster, deadline)
        _end_evaluator(cluster, grace_s)
        cluster.wait()
    except TfosError:
        raise
    except Exception as error:  # a stream's, whose rows a node's failure has kept from being fed
        if cluster.state is RunState.FAILED:
            raise cluster.failure() from error
        raise
    finally:
        cluster.stop()


def _wait_for_training(cluster: Cluster, deadline: Deadline) -> None:
    cluster.feeding.end()
    while running := _running(cluster, trains=True):
        if deadline.is_over:
            cluster.stop(grace=_GRACE_S)
            raise ShutdownTimeout(waited_s=deadline.timeout_s, still_running=running)
        time.sleep(_STEP_S)


def _end_evaluator(cluster: Cluster, grace_s: float) -> None:
    """End a node that TensorFlow's cluster knows nothing of, and that may loop forever, as an evaluator does."""
    until_s = time.monotonic() + grace_s
    while _running(cluster, trains=False) and time.monotonic() < until_s:
        time.sleep(_STEP_S)
    if _running(cluster, trains=False):
        cluster.stop(grace=_GRACE_S)


def _running(cluster: Cluster, *, trains: bool) -> list[str]:
    """Return the nodes whose end is awaited: those that train, or the evaluator. Others serve until told to end."""
    head = cluster.head
    with head.lock:
        state, views = head.state.state, head.state.views
    going = [view for view in views if not view.state.ended and view.state is not NodeState.SERVING]
    roles = {view.name: Role(view.job_name) for view in going}
    return [] if state.ended else [node for node, role in roles.items() if role.trains is trains and not role.serves]


def _end_streams(cluster: Cluster, streams: Streams, deadline: Deadline) -> None:
    """Wait until streams have ended; end them, but not Spark, once no more rows are wanted."""
    context = streams.context
    while not context.awaitTerminationOrTimeout(_STREAM_STEP_S):
        is_unwanted = streams.is_done() or cluster.head.feed_state.stopped_by is not None
        if is_unwanted or cluster.ended or deadline.is_over:
            logger.info("no more rows are wanted: stopping the StreamingContext")
            context.stop(stopSparkContext=False, stopGraceFully=not deadline.is_over)
            return
