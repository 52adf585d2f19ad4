"""All clusters of this process, so that they can be listed, found by name, and stopped when Python leaves."""

from __future__ import annotations

import atexit
import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfos_lab.engine.cluster import Cluster

_lock = threading.Lock()
_clusters: list[Cluster] = []


def register(cluster: Cluster) -> None:
    """Add a cluster; Python's exit stops it if it still lives."""
    with _lock:
        if not _clusters:
            atexit.register(stop_all)
        _clusters.append(cluster)


def clusters() -> list[Cluster]:
    """Return all clusters of this process, oldest first, ended ones included."""
    with _lock:
        return list(_clusters)


def stop_all() -> None:
    """Stop every cluster that still lives, at once, and let none be found any more."""
    for cluster in clusters():
        with contextlib.suppress(Exception):  # the next one must still be stopped
            if not cluster.ended:
                cluster.stop(grace_s=0.0)
        with contextlib.suppress(Exception):
            if cluster.publisher is not None:
                cluster.publisher.close()
