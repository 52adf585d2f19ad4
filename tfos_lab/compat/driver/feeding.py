"""Feeds a cluster, and waits until its nodes have taken the rows: what `TFCluster.train` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfos_lab.engine.cluster import Cluster

_STEP_S = 0.05


def feed(cluster: Cluster, data: Any, epochs: int, *, feed_timeout_s: float, queue: str) -> None:
    """Feed rows to the nodes, as Python objects; return when they have taken all, or want no more.

    Raises
    ------
    NodeFailed, FeedError
        If a node fails, or takes no row for too long.
    """
    is_stream = hasattr(data, "foreachRDD")
    cluster.train(data, 1 if is_stream else epochs, objects=True, queue=queue, timeout_s=feed_timeout_s)
    if not is_stream:
        _wait_until_taken(cluster, feed_timeout_s)
