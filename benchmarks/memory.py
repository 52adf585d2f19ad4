"""The memory of four warm nodes, compared with one process that imports TensorFlow (proportional set size)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import psutil

import tfos_lab
from benchmarks.by_hand import run_python
from benchmarks.measure import Row

_NODES = 4
_MIB = 2**20


def measure() -> Iterator[Row]:
    """Sum up the fork server, agents and children of a running cluster of 4."""
    with tfos_lab.run(_sleep, cluster_size=_NODES, local="processes") as cluster:
        time.sleep(2.0)
        ours = sum(pss(process) for process in family(cluster)) / _MIB
    process = run_python("import time, tensorflow; print(flush=True); time.sleep(600)")
    assert process.stdout is not None
    process.stdout.readline()
    single = pss(psutil.Process(process.pid)) / _MIB
    process.kill()
    process.communicate()
    goal = "< 1.8 ×"
    yield Row(
        "4 warm nodes with fork server and agents (beside: one import)",
        "MiB",
        ours,
        single,
        goal,
        ours < 1.8 * single,
        1,
    )


def family(cluster: tfos_lab.Cluster) -> list[psutil.Process]:
    """Return the nodes' children, their agents, and the fork servers that both were forked from."""
    children = [psutil.Process(view.pid) for view in cluster.nodes]
    fork_server = children[0].parent()
    assert fork_server is not None
    sockets = os.path.dirname(fork_server.cmdline()[-1])  # noqa: PTH120 - part of a command line, not a path of ours
    fork_servers = [p for p in psutil.process_iter(["cmdline"]) if sockets in " ".join(p.info["cmdline"] or [])]
    return list({process.pid: process for process in [*children, *fork_servers]}.values())


def pss(process: psutil.Process) -> float:
    """Return the memory of a process in bytes; shared memory is divided among the processes that share it."""
    return float(process.memory_full_info().pss)


def _sleep(args: object, ctx: object) -> None:
    """Use the memory that a node uses."""
    time.sleep(600)
