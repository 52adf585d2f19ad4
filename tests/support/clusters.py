"""``tfos_lab.run`` for tests: clusters that a test starts are stopped at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import tfos_lab

if TYPE_CHECKING:
    from tfos_lab.engine.cluster import Cluster


@contextmanager
def running_clusters(defaults: Mapping[str, Any], *, ranks: int | None = None) -> Iterator[Callable[..., Cluster]]:
    """Yield a function like ``tfos_lab.run``; clusters that still run at the end of the block are stopped.

    Parameters
    ----------
    defaults : mapping
        Options of every cluster; a call may override them.
    ranks : int, optional
        The most nodes that can run; a call that asks for more gets so many.
    """
    clusters = []

    def start(map_fun: Callable[..., Any], args: Any = None, **options: Any) -> Cluster:
        options = {"cluster_size": 2, **defaults, **options}
        if ranks is not None:
            options["cluster_size"] = min(options["cluster_size"], ranks)
        cluster = tfos_lab.run(map_fun, args, **options)
        clusters.append(cluster)
        return cluster

    try:
        yield start
    finally:
        for cluster in clusters:
            cluster.stop(grace=0.0)
