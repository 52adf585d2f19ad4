"""The same as `startup`, on a real Spark standalone cluster of two workers with two slots each."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import tfos_lab
from benchmarks.by_hand import import_in_processes, import_tensorflow_once
from benchmarks.measure import Row, median, seconds_of
from benchmarks.startup import later_clusters
from tests.support.spark import spark_session
from tests.support.standalone import standalone_cluster

_NODES = 4


def measure() -> Iterator[Row]:
    """First and later clusters of 4 nodes on 4 slots."""
    once = median([seconds_of(import_tensorflow_once) for _ in range(3)])
    by_hand = median([seconds_of(lambda: import_in_processes(_NODES)) for _ in range(2)])
    with (
        tempfile.TemporaryDirectory() as folder,
        standalone_cluster(Path(folder) / "spark") as spark_cluster,
        spark_session(spark_cluster.master_url, Path(folder) / "session") as spark,
    ):
        # As in a notebook, Spark's own first job is over when the first cell runs.
        spark.range(8).count()
        first = tfos_lab.run(_nothing, spark=spark, cluster_size=_NODES, local="off")
        first_s = first.timings["running"]
        first.wait()
        yield Row(
            "first cluster of 4, standalone (beside: one import tensorflow)",
            "s",
            first_s,
            once,
            "≤ 1.3 ×",
            first_s <= 1.3 * once,
            1,
        )
        yield from later_clusters("standalone", by_hand, running_s=1.0, empty_s=1.5, spark=spark, local="off")


def _nothing(args: object, ctx: object) -> None:
    """An empty map_fun."""
