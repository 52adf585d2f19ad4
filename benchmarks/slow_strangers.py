"""What peers without keys cost what they attack: rows at a node's port, steps and CPU time at the driver's.

They come at a limited rate and at the lowest priority, so that they take little of this machine themselves: what is
lost is lost by the process that they attack. With and without them takes turns.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pyarrow as pa

import tfos_lab
from benchmarks.measure import Row, median
from benchmarks.strangers import compute, port_of
from tests.support.hostile_peers import attacking
from tests.support.quick import QUICK_ENV
from tfos_lab.engine.feed.certificates import make_identities
from tfos_lab.messages import TlsIdentity
from tfos_lab.node.feed.flight_endpoint import PutTicket
from tfos_lab.node.feed.node_writer import NodeWriter
from tfos_lab.node.feed.plan import connect

# Connections a second; at most so many are open.
_RATE, _CONNECTIONS = 200.0, 1100
_ATTACKS = {"half-open connections": "idle", "garbage": "garbage"}
_AT_DRIVER = {**_ATTACKS, "frames of 8 GB begun": "huge frame"}
_AT_NODE = {**_ATTACKS, "handshakes begun": "hello again"}
_SECONDS, _RUNS = 2.0, 5
_GOAL = "at most 5 % slower than without"
_ROWS = 20_000
_NODE = """
import sys
from pathlib import Path
import msgspec
from tfos_lab.messages import TlsIdentity
from tfos_lab.node.feed.flight_endpoint import FlightEndpoint
from tfos_lab.node.feed.spool import Spool
folder = Path(sys.argv[1])
spool = Spool(folder / "spool")
spool.open(0, epochs=1)
tls = msgspec.msgpack.decode((folder / "node").read_bytes(), type=TlsIdentity)
endpoint = FlightEndpoint(
    "grpc+tls://127.0.0.1:0", tls, spool, on_stored=lambda ticket, path: spool.remove(path),
    on_commit=lambda ticket: None, on_exchange=lambda *_: None,
)
endpoint.tokens = {"token"}
print(endpoint.port, flush=True)
endpoint.serve()
"""


def measure() -> Iterator[Row]:
    """First a node that is fed by TLS, then a driver whose node reports its steps."""
    with _node() as (process, port, tls):
        feed = _Feed(f"grpc+tls://127.0.0.1:{port}", tls)
        feed.rows_per_second()
        for name, kind in _AT_NODE.items():
            turns = [
                (
                    _one(None, port, feed.rows_per_second, process),
                    _one(kind, port, feed.rows_per_second, process),
                )
                for _ in range(_RUNS)
            ]
            yield from _told(f"rows fed to a node under {name}", "rows/s", turns)
    for name, kind in _AT_DRIVER.items():
        turns = [(_cluster(None), _cluster(kind)) for _ in range(_RUNS)]
        yield from _told(f"steps of a node whose driver is under {name}", "steps/s", turns)


def _told(what: str, unit: str, turns: list[tuple[tuple[float, float], tuple[float, float]]]) -> Iterator[Row]:
    """Yield the speed, and the CPU time of the attacked process for each second; ``turns`` are without and with."""
    without, attacked = (median([speed for speed, _ in side]) for side in zip(*turns, strict=True))
    yield Row(what, unit, attacked, without, _GOAL, attacked >= 0.95 * without, _RUNS)
    without, attacked = (median([cpu for _, cpu in side]) for side in zip(*turns, strict=True))
    yield Row(f"CPU time of what is attacked: {what}", "s/s", attacked, without, "told", None, _RUNS)


def _one(kind: str | None, port: int, rate: Callable[[], float], process: psutil.Process) -> tuple[float, float]:
    """Return a speed and the CPU time of a process for each second, with an attack or without."""
    with _attacked(kind, port):
        before, began = _cpu_s(process), time.monotonic()
        speed = rate()
        return speed, (_cpu_s(process) - before) / (time.monotonic() - began)


@contextlib.contextmanager
def _attacked(kind: str | None, port: int) -> Iterator[None]:
    if kind is None:
        yield
        return
    with attacking(kind, "127.0.0.1", port, connections=_CONNECTIONS, rate=_RATE):
        time.sleep(1.0)  # until it is under way
        yield


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextlib.contextmanager
def _node() -> Iterator[tuple[psutil.Process, int, TlsIdentity]]:
    """Yield a process with a node's endpoint for rows of other hosts, its port, and what a task shows."""
    identities = make_identities()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "node").write_bytes(msgspec.msgpack.encode(identities.nodes))
        command = [sys.executable, "-c", _NODE, folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            try:
                yield psutil.Process(process.pid), int(process.stdout.readline()), identities.tasks
            finally:
                process.terminate()


class _Feed:
    """Feeds partitions to a node, one after the other, each by a connection of its own, as tasks do."""

    def __init__(self, location: str, tls: TlsIdentity) -> None:
        self._location, self._tls = location, tls
        self._batch = pa.record_batch({"x": np.zeros(_ROWS), "y": np.arange(_ROWS)})
        self._partition = 0

    def rows_per_second(self) -> float:
        rows, began = 0, time.monotonic()
        while time.monotonic() < began + _SECONDS:
            self._partition += 1
            connection = connect([self._location], self._tls)
            ticket = PutTicket("token", 0, self._partition, "a")
            writer = NodeWriter(connection, ticket, self._batch.schema)
            for _ in range(20):
                writer.write(self._batch)
                rows += _ROWS
            writer.close()
            connection.client.close()
        return rows / (time.monotonic() - began)


def _cluster(kind: str | None) -> tuple[float, float]:
    """Return the steps of a node for each second, and the CPU time of the driver."""
    with tempfile.TemporaryDirectory() as folder:
        go = Path(folder) / "go"
        cluster = tfos_lab.run(compute, {"go": str(go), "seconds": _SECONDS}, local="processes", env=QUICK_ENV)

        def speed() -> float:
            go.touch()
            (steps,) = cluster.wait().values()
            return float(steps) / _SECONDS

        return _one(kind, port_of(cluster), speed, psutil.Process())
