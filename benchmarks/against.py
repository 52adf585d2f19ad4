"""Another checkout of this project beside this one, in turns: ``python -m benchmarks.against PATH``.

What a change of the control plane must not cost: starts, the end of a run, a failure that is told, and memory. Both run
with this Python's packages.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import psutil

_ROUNDS = 3
_RUNS = 7
_NODES = 4
# Until a user runs the next cell; fork servers put their memory into huge pages then.
_NEXT_CELL_S = 10.0
_EARLIER_RUNS = 100
_MIB = 2**20
_MEASURE = "--measure"


def main() -> int:
    """Print the median of each number for the other checkout and for this one, and their ratio."""
    other, this = Path(sys.argv[1]).resolve(), Path(__file__).resolve().parent.parent
    if not (other / "tfos_lab").is_dir():
        sys.exit(f"{other} is no checkout of tfos_lab: this one would be measured twice")
    measured: dict[Path, list[dict[str, float]]] = {other: [], this: []}
    for _ in range(_ROUNDS):
        for checkout, rounds in measured.items():
            rounds.append(_in_checkout(checkout))
            print(checkout, rounds[-1], file=sys.stderr, flush=True)
    print(f"{'':46}{'other':>10}{'this':>10}{'ratio':>8}")
    for what in measured[this][0]:
        theirs, ours = (median([each[what] for each in rounds]) for rounds in measured.values())
        print(f"{what:46}{theirs:10.3f}{ours:10.3f}{ours / theirs:8.2f}")
    return 0


def _in_checkout(checkout: Path) -> dict[str, float]:
    """Run this file's measurements with the package of a checkout, from a folder and fork servers of their own."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        more = {"PYTHONPATH": str(checkout), "TMPDIR": folder, "TFOS_LAB_FORK_SERVER": "kernel"}
        # Without this folder on the path: its modules have ordinary names.
        command = [sys.executable, "-P", __file__, _MEASURE]
        done = subprocess.run(command, cwd=folder, env=os.environ | more, stdout=subprocess.PIPE, text=True, check=True)
    numbers: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return numbers


def _measure() -> dict[str, float]:
    """Return the numbers of the package that is imported here: seconds, and MiB."""
    began = time.perf_counter()
    import tfos_lab

    def start(map_fun: Callable[..., object] = _nothing, args: object = None, nodes: int = _NODES) -> tfos_lab.Cluster:
        return tfos_lab.run(map_fun, args, cluster_size=nodes, local="processes")

    def warm() -> float:
        seconds = []
        for _ in range(_RUNS):
            cluster = start()
            seconds.append(cluster.timings["running"])
            cluster.wait()
        return median(seconds)

    def empty() -> float:
        at = time.perf_counter()
        start().wait()
        return time.perf_counter() - at

    def told() -> float:
        cluster = start(_fail_at, time.time() + 0.6)
        try:
            cluster.wait()
        except Exception as error:  # noqa: BLE001 - its class is the checkout's
            return time.time() - float(str(error).partition("at ")[2].split()[0])
        finally:
            cluster.stop()
        raise AssertionError("the node did not fail")

    first = start()
    found = {"cold start of 4 nodes, s": time.perf_counter() - began}
    first.wait()
    time.sleep(_NEXT_CELL_S)
    found["warm start, empty folder, s"] = warm()
    _go_to("full")
    for number in range(30):
        Path(f"folder{number}").mkdir()
    for number in range(270):
        Path(f"file{number}.txt").touch()
    found["warm start, folder of 300 entries, s"] = warm()
    _go_to("earlier")
    for _ in range(_EARLIER_RUNS):
        start(nodes=1).wait()
    found["warm start after 100 runs in the folder, s"] = warm()
    found["run and wait of nothing, s"] = median([empty() for _ in range(_RUNS)])
    found["an exception is raised in the kernel after, s"] = median([told() for _ in range(5)])
    with start(_sleep) as cluster:
        time.sleep(2.0)
        below = [each for each in psutil.process_iter() if each.pid != os.getpid() and _is_of(each)]
        memory = [each.memory_full_info() for each in below]
        child = max(psutil.Process(node.pid).memory_info().rss for node in cluster.nodes)
    found["4 nodes, agents and fork servers, PSS, MiB"] = sum(each.pss for each in memory) / _MIB
    found["the largest child, RSS, MiB"] = child / _MIB
    found["processes besides the kernel"] = float(len(below))
    return found


def _is_of(process: psutil.Process) -> bool:
    try:
        return process.environ().get("TMPDIR") == os.environ["TMPDIR"]
    except psutil.Error:
        return False


def _go_to(name: str) -> None:
    Path(name).mkdir()
    os.chdir(name)


def _nothing(args: object, ctx: object) -> None:
    """An empty map_fun."""


def _sleep(args: object, ctx: object) -> None:
    """Use the memory that a node uses."""
    time.sleep(600)


def _fail_at(due_s: float, ctx: object) -> None:
    """Raise on one node; the message is the time."""
    if ctx.job_name == "worker" and ctx.task_index == 1:  # type: ignore[attr-defined]
        time.sleep(max(0.0, due_s - time.time()))
        raise ValueError(f"at {time.time()} ")
    time.sleep(600)


if __name__ == "__main__":
    if sys.argv[1:] == [_MEASURE]:
        print(json.dumps(_measure()))
    else:
        sys.exit(main())
