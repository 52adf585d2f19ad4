"""Feeds a cluster, and waits until its nodes have taken the rows: what `TFCluster.train` does."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from tfos_lab.core.states import RunState
from tfos_lab.driver.state.instructions import Failure
from tfos_lab.errors import ClusterEnded, FeedTimeout

if TYPE_CHECKING:
    from tfos_lab.driver.cluster import Cluster

logger = logging.getLogger(__name__)

_STEP_S = 0.05


def feed(cluster: Cluster, data: Any, epochs: int, *, feed_timeout: float, queue: str) -> None:
    """Feed rows to the nodes, as Python objects; return when they have taken all, or want no more.

    The rows of a stream are fed as they come: this returns at once.

    Raises
    ------
    NodeFailed, FeedError
        If a node fails, or if no node takes a row for too long: then all nodes are stopped.
    """
    is_stream = hasattr(type(data), "foreachRDD")
    if not is_stream:
        with cluster.head.lock:
            cluster.head.feed_state.caller_waits = True
    try:
        cluster.train(data, 1 if is_stream else epochs, objects=True, queue=queue, timeout=feed_timeout)
    except ClusterEnded:
        if cluster.head.feed_state.stopped_by is None:
            raise
        logger.info("terminate() was called, and the nodes have finished: no rows are fed")
        return
    if not is_stream:
        _wait_until_taken(cluster, feed_timeout)


def _wait_until_taken(cluster: Cluster, timeout_s: float) -> None:
    moves, moved_s = -1, 0.0
    while not cluster.ended:
        head = cluster.head
        with head.lock:
            head.feed_state.caller_waits = True  # of nodes that were started again, too
            nodes, now = head.feed_state.with_rows, head.feed_state.moves
        if not nodes:
            return
        if now != moves:
            moves, moved_s = now, time.monotonic()
        elif time.monotonic() - moved_s > timeout_s:
            error = FeedTimeout(reason=_too_slow(nodes, timeout_s))
            head.fail(Failure("feed", type(error).__name__, error.reason))
            raise error
        time.sleep(_STEP_S)
    if cluster.state is RunState.FAILED:
        raise cluster.failure()


def _too_slow(nodes: list[str], timeout_s: float) -> str:
    return (
        f"{', '.join(nodes)} took no row for {timeout_s:g} s, and there are more: see whether the function goes on "
        "calling next_batch, have it call terminate() where it wants no more, or raise feed_timeout"
    )
