"""``tfos_lab.run`` for tests: clusters that a test starts are stopped at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tfos_lab


def run(map_fun: Callable[..., Any], args: Any = None, **options: Any) -> tfos_lab.Cluster:
    """Start a cluster as ``tfos_lab.run`` does; ``driver_ps`` as programs of TensorFlowOnSpark ask for it."""
    if not options.get("driver_ps"):
        return tfos_lab.run(map_fun, args, **options)
    # Here, as this module travels with functions to nodes that do not have it.
    from tfos_lab.driver.start import make_cluster

    spark = options.pop("spark", None)
    cluster = make_cluster(map_fun, args, spark=spark, config=tfos_lab.ClusterConfig(**options))
    try:
        cluster.launch()
        cluster.wait_until_running()
    except BaseException:
        cluster.stop(grace=0.0)
        raise
    return cluster


@contextmanager
def running_clusters(
    defaults: Mapping[str, Any], *, ranks: int | None = None
) -> Iterator[Callable[..., tfos_lab.Cluster]]:
    """Yield a function like ``tfos_lab.run``; clusters that still run at the end of the block are stopped.

    ``defaults`` are options of every cluster. One that asks for more nodes than ``ranks`` gets so many.
    """
    clusters = []

    def start(map_fun: Callable[..., Any], args: Any = None, **options: Any) -> tfos_lab.Cluster:
        options = {"cluster_size": 2, **defaults, **options}
        if ranks is not None:
            options["cluster_size"] = min(options["cluster_size"], ranks)
        cluster = run(map_fun, args, **options)
        clusters.append(cluster)
        return cluster

    try:
        yield start
    finally:
        for cluster in clusters:
            cluster.stop(grace=0.0)
