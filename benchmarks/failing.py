"""How soon an exception on a node is raised here, and how soon no process is left after a stop."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psutil

import tfos_lab
from benchmarks.measure import Row, median, seconds_of
from tfos_lab.errors import NodeFailed

_NODES = 4
_RUNS = 5


def measure() -> Iterator[Row]:
    """Fail and stop clusters of 4 nodes on this machine."""
    tfos_lab.run(_sleep, cluster_size=_NODES, local="processes").stop()
    failing = [_time_to_failure() for _ in range(_RUNS)]
    yield Row("an exception on one node is in the cell after", "s", median(failing), None, "≤ 2 s",
              max(failing) <= 2.0, _RUNS)  # fmt: skip
    stopping = [_time_to_nobody() for _ in range(_RUNS)]
    yield Row("stop leaves no process of the nodes after", "s", median(stopping), None, "≤ 2 s",
              max(stopping) <= 2.0, _RUNS)  # fmt: skip


def _time_to_failure() -> float:
    cluster = tfos_lab.run(_fail_at, time.time() + 1.0, cluster_size=_NODES, local="processes")
    try:
        cluster.wait()
    except NodeFailed as error:
        return time.time() - float(error.message)
    finally:
        cluster.stop()
    raise AssertionError("the node did not fail")


def _time_to_nobody() -> float:
    cluster = tfos_lab.run(_sleep, cluster_size=_NODES, local="processes")
    processes = [psutil.Process(view.pid) for view in cluster.nodes]
    agents = [process for process in psutil.process_iter(["name"]) if process.info["name"].startswith("tfos ")]

    def stop_and_see_them_gone() -> None:
        cluster.stop()
        psutil.wait_procs([*processes, *agents], timeout=30)

    return seconds_of(stop_and_see_them_gone)


def _fail_at(due_s: float, ctx: tfos_lab.NodeContext) -> None:
    """Raise on one node; the message is the time."""
    if ctx.job_name == "worker" and ctx.task_index == 1:
        time.sleep(max(0.0, due_s - time.time()))
        raise ValueError(time.time())
    time.sleep(600)


def _sleep(args: object, ctx: object) -> None:
    """Run until stopped."""
    time.sleep(600)
