"""All clusters of this process: to list them, find them by name, and stop them when Python exits."""

from __future__ import annotations

import atexit
import contextlib
import threading

from tfos_lab.engine.cluster import Cluster, runtime_of

_lock = threading.Lock()
_clusters: list[Cluster] = []


def register(cluster: Cluster) -> None:
    """Add a cluster; it is stopped when Python exits."""
    with _lock:
        if not _clusters:
            atexit.register(stop_all)
        _clusters.append(cluster)


def clusters() -> list[Cluster]:
    """Return all clusters of this process, oldest first, ended ones included."""
    with _lock:
        return list(_clusters)


def stop_all() -> None:
    """Stop every cluster at once, and remove what other processes see of them."""
    for cluster in clusters():
        with contextlib.suppress(Exception):  # the next one must still be stopped
            runtime_of(cluster).close()
