"""What peers without keys cost a running cluster, in speed and memory, while they attack the driver's port.

The attackers run on the same machine and take a part of it themselves. So the same attack on the listener of another
process stands beside it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import tfos_lab
from benchmarks.measure import Row, median
from tests.support.hostile_peers import attacking, resident_bytes
from tests.support.quick import QUICK_ENV
from tfos_lab.driver.cluster import Cluster

_ATTACKS = {"floods": ("flood", 6), "half-open connections": ("idle", 1100), "garbage": ("garbage", 20)}
_SECONDS, _RUNS, _MOST_MB = 3.0, 5, 50.0
# Connections a second: as many as two cores can make would leave nothing of them to measure.
_RATE = 200.0
_OTHER_LISTENER = """
from tfos_lab.core.listener import Listener
listener = Listener()
print(listener.address.endpoint.rpartition(":")[2], flush=True)
while True:
    list(listener.poll(1.0))
"""


def measure() -> Iterator[Row]:
    """One node that computes and reports its steps, while strangers attack its driver, or another listener."""
    with _other_port() as other_port:
        _run(other_port, "idle", 1)
        for what, (kind, connections) in _ATTACKS.items():
            pairs = [(_run(None, kind, connections), _run(other_port, kind, connections)) for _ in range(_RUNS)]
            ours, beside = (median([rate for rate, _ in column]) for column in zip(*pairs, strict=True))
            goal = "at most 5 % slower than beside an attack on another listener"
            yield Row(f"steps of a node under {what}", "steps/s", ours, beside, goal, ours >= 0.95 * beside, _RUNS)
            grown_mb = max(grown for (_, grown), _ in pairs)
            yield Row(f"memory of the driver under {what}", "MB", grown_mb, None, "< 50 MB", grown_mb < _MOST_MB, _RUNS)


def _run(port: int | None, kind: str, connections: int) -> tuple[float, float]:
    """Return the node's steps per second, and how much the driver's memory has grown, in MB.

    The attack goes to ``port``, or to the driver.
    """
    with tempfile.TemporaryDirectory() as folder:
        go = Path(folder) / "go"
        cluster = tfos_lab.run(compute, {"go": str(go), "seconds": _SECONDS}, local="processes", env=QUICK_ENV)
        with attacking(kind, "127.0.0.1", port or port_of(cluster), connections=connections, rate=_RATE) as attack:
            assert attack.stdout is not None
            attack.stdout.readline()
            before, most = resident_bytes(), 0
            go.touch()
            end = time.monotonic() + _SECONDS
            while time.monotonic() < end:
                time.sleep(0.05)
                most = max(most, resident_bytes())
        (steps,) = cluster.wait().values()
    return steps / _SECONDS, (most - before) / 1e6


def compute(args: dict[str, Any], ctx: Any) -> int:
    """Compute in steps, and report each tenth; return how many there were."""
    matrix = np.ones((120, 120))
    while not Path(args["go"]).exists():
        time.sleep(0.01)
    step, end = 0, time.monotonic() + args["seconds"]
    while time.monotonic() < end:
        step += 1
        matrix = matrix @ matrix / 120.0
        if step % 10 == 0:
            ctx.report(step=step, loss=1.0 / step)
    return step


def port_of(cluster: Cluster) -> int:
    """Return the port at which a cluster's driver listens."""
    return int(cluster.head.address.endpoint.rpartition(":")[2])


@contextmanager
def _other_port() -> Iterator[int]:
    """Yield the port of a listener in a process of its own."""
    with subprocess.Popen([sys.executable, "-c", _OTHER_LISTENER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()
