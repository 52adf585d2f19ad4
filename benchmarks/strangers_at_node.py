"""What peers without keys cost the feed of a node, while they attack its port for rows of other hosts.

The attackers run on the same machine and take a part of it themselves. So the same attack on the port of another node
stands beside it, by turns.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from benchmarks.measure import Row, median
from tests.support.hostile_peers import attacking
from tfos_lab.core.messages import TlsIdentity
from tfos_lab.driver.feed.certificates import make_identities
from tfos_lab.node.feed.flight_endpoint import PutTicket
from tfos_lab.node.feed.plan import connect
from tfos_lab.node.feed.task import NodeWriter

# Connections a second; at most so many are open.
_RATE, _CONNECTIONS = 200.0, 1100
_ATTACKS = {"half-open connections": "idle", "garbage": "garbage", "handshakes begun": "hello again"}
_SECONDS, _RUNS = 3.0, 7
_ROWS = 20_000
_NODE = """
import sys
from pathlib import Path
import msgspec
from tfos_lab.core.messages import TlsIdentity
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
    """A node that is fed by TLS, while strangers attack it, or another one."""
    with _node() as (port, tls), _node() as (other_port, _):
        feed = _Feed(f"grpc+tls://127.0.0.1:{port}", tls)
        feed.rows_per_second()
        for name, kind in _ATTACKS.items():
            pairs = [(_attacked(kind, port, feed), _attacked(kind, other_port, feed)) for _ in range(_RUNS)]
            ours, beside = (median(list(column)) for column in zip(*pairs, strict=True))
            goal = "at most 5 % slower than beside an attack on another node"
            yield Row(f"rows fed to a node under {name}", "rows/s", ours, beside, goal, ours >= 0.95 * beside, _RUNS)


def _attacked(kind: str, port: int, feed: _Feed) -> float:
    """Return the rows a second of a feed while strangers attack a port."""
    with attacking(kind, "127.0.0.1", port, connections=_CONNECTIONS, rate=_RATE):
        time.sleep(1.0)  # until it is under way
        return feed.rows_per_second()


@contextlib.contextmanager
def _node() -> Iterator[tuple[int, TlsIdentity]]:
    """Yield the port for rows of a node in a process of its own, and what a task shows there."""
    identities = make_identities()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "node").write_bytes(msgspec.msgpack.encode(identities.nodes))
        command = [sys.executable, "-c", _NODE, folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            try:
                yield int(process.stdout.readline()), identities.tasks
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
