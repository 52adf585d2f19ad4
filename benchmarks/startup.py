"""How soon the user's first line runs on this machine: the first cluster of a session, and every later one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import tfos_lab
from benchmarks.by_hand import import_in_processes, import_tensorflow_once
from benchmarks.measure import Row, median, seconds_of

_NODES = 4
_RUNS = 7
_FIRST = (
    "import time; t = time.perf_counter(); import tfos_lab;"
    f"c = tfos_lab.run(lambda args, ctx: None, cluster_size={_NODES}, local='processes');"
    "print(time.perf_counter() - t); c.stop()"
)


def measure() -> Iterator[Row]:
    """Start a first cluster in fresh interpreters, and later ones here; by hand: processes that import TensorFlow."""
    first, once = [], []
    for _ in range(3):
        once.append(seconds_of(import_tensorflow_once))
        printed = subprocess.run([sys.executable, "-c", _FIRST], capture_output=True, text=True, check=True).stdout
        first.append(float(printed))
    yield Row(
        "first cluster of 4, local (beside: one import tensorflow)",
        "s",
        median(first),
        median(once),
        "≤ 1.3 ×",
        median(first) <= 1.3 * median(once),
        len(first),
    )
    by_hand = median([seconds_of(lambda: import_in_processes(_NODES)) for _ in range(2)])
    yield from later_clusters("local", by_hand, running_s=0.5, empty_s=1.0, local="processes")


def later_clusters(
    where: str, by_hand_s: float, *, running_s: float, empty_s: float, **options: object
) -> Iterator[Row]:
    """Measure clusters after the first one."""
    tfos_lab.run(_nothing, cluster_size=_NODES, **options).wait()
    running, whole = [], []
    for _ in range(_RUNS):
        clusters = []
        whole.append(seconds_of(lambda kept=clusters: kept.append(_run_and_wait(options))))
        running.append(clusters[0].timings["running"])
    yield Row(
        f"second cluster of 4, {where}: call to first user line",
        "s",
        median(running),
        by_hand_s,
        f"≤ {running_s} s",
        median(running) <= running_s,
        _RUNS,
    )
    yield Row(
        f"run and wait of an empty map_fun, {where}",
        "s",
        median(whole),
        by_hand_s,
        f"≤ {empty_s} s",
        median(whole) <= empty_s,
        _RUNS,
    )


def _run_and_wait(options: dict[str, object]) -> tfos_lab.Cluster:
    cluster = tfos_lab.run(_nothing, cluster_size=_NODES, **options)
    cluster.wait()
    return cluster


def _nothing(args: object, ctx: object) -> None:
    """An empty map_fun."""
