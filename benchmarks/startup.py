"""How soon the user's first line runs on this machine: in a new session, in a restarted one, and every later time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import tfos_lab
from benchmarks.by_hand import import_in_processes, import_tensorflow_once
from benchmarks.measure import Row, median, seconds_of

_NODES = 4
_RUNS = 7
_RESTARTED_S = 0.6
# An empty map_fun, sent by value as a cell's is: one of this module would have each node import the module first.
_NOTHING = eval("lambda args, ctx: None", {"__name__": "__main__"})
# Until a user runs the next cell; fork servers put their memory into huge pages then.
_NEXT_CELL_S = 10.0
_FIRST = (
    "import time; t = time.perf_counter(); import tfos_lab;"
    f"c = tfos_lab.run(lambda args, ctx: None, cluster_size={_NODES}, local='processes');"
    "print(time.perf_counter() - t); c.stop()"
)
_END = "from tfos_lab.driver.warm_servers import end_warm_servers; end_warm_servers()"
# In a kernel, the magics have imported the package before the first cell.
_RESTARTED = (
    "import time, tfos_lab; tfos_lab.run; t = time.perf_counter();"
    f"c = tfos_lab.run(lambda args, ctx: None, cluster_size={_NODES}, local='processes');"
    "print(time.perf_counter() - t); c.wait()"
)


def measure() -> Iterator[Row]:
    """Start a first cluster in fresh interpreters, and later ones here; by hand: processes that import TensorFlow."""
    first, once = [], []
    for _ in range(3):
        once.append(seconds_of(import_tensorflow_once))
        first.append(_printed_s(_FIRST))
    yield Row(
        "first cluster of 4, local (beside: one import tensorflow)",
        "s",
        median(first),
        median(once),
        "≤ 1.3 ×",
        median(first) <= 1.3 * median(once),
        len(first),
    )
    yield _restarted(median(once))
    by_hand = median([seconds_of(lambda: import_in_processes(_NODES)) for _ in range(2)])
    yield from later_clusters("local", by_hand, running_s=0.5, empty_s=1.0, local="processes")


def _restarted(import_s: float) -> Row:
    """Start the first clusters of kernels that find what an earlier one has left."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        environ = {"TFOS_LAB_FORK_SERVER": "user", "TMPDIR": folder}
        _printed_s(_FIRST, **environ)
        seconds = [_printed_s(_RESTARTED, **environ) for _ in range(_RUNS)]
        subprocess.run([sys.executable, "-c", _END], env=os.environ | environ, check=True)
    found = median(seconds)
    what = "first cluster of 4 after a restart of the kernel (beside: one import tensorflow)"
    return Row(what, "s", found, import_s, f"≤ {_RESTARTED_S} s", found <= _RESTARTED_S, _RUNS)


def _printed_s(program: str, **environ: str) -> float:
    """Run a program in an interpreter of its own; return the seconds that it prints."""
    command, env = [sys.executable, "-c", program], os.environ | environ
    return float(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)


def later_clusters(
    where: str, by_hand_s: float, *, running_s: float, empty_s: float, **options: object
) -> Iterator[Row]:
    """Measure clusters after the first one."""
    tfos_lab.run(_NOTHING, cluster_size=_NODES, **options).wait()
    time.sleep(_NEXT_CELL_S)
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
    cluster = tfos_lab.run(_NOTHING, cluster_size=_NODES, **options)
    cluster.wait()
    return cluster
