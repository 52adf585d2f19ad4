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
from tfos_lab.core.certificates import make_identities
from tfos_lab.core.messages import TlsIdentity
from tfos_lab.node.feed.task import NodeWriter
from tfos_lab.node.feed.wire import Attempt, connect

# Connections a second; at most so many are open.
_RATE, _CONNECTIONS = 200.0, 1100
_ATTACKS = {"half-open connections": "idle", "garbage": "garbage", "handshakes begun": "hello again"}
_SECONDS, _RUNS = 3.0, 7
_ROWS = 20_000
_NODE = """
import sys, threading
from pathlib import Path
import msgspec
from tfos_lab.core.messages import TlsIdentity
from tfos_lab.node.feed.endpoint import Endpoint
from tfos_lab.node.feed.spool import Spool
folder = Path(sys.argv[1])
spool = Spool(folder / "spool")
spool.open(0, epochs=1)
tls = msgspec.msgpack.decode((folder / "node").read_bytes(), type=TlsIdentity)
endpoint = Endpoint(
    "127.0.0.1", folder / "feed", spool, on_stored=lambda attempt: spool.remove(attempt.path(folder / "spool")),
    on_commit=lambda stored: None, on_inference=lambda *_: None,
)
print(endpoint.open("token", tls)[-1], flush=True)
threading.Event().wait()
"""


def measure() -> Iterator[Row]:
    """A node that is fed by TLS, while strangers attack it, or another one."""
    with _node() as (location, tls), _node() as (other, _):
        port, other_port = (int(one.rpartition(":")[2]) for one in (location, other))
        feed = _Feed(location, tls)
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
def _node() -> Iterator[tuple[str, TlsIdentity]]:
    """Yield the location for rows of a node in a process of its own, and what a task shows there."""
    identities = make_identities()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "node").write_bytes(msgspec.msgpack.encode(identities.nodes))
        command = [sys.executable, "-c", _NODE, folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            try:
                yield process.stdout.readline().strip(), identities.tasks
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
            connection = connect([self._location], "token", self._tls)
            writer = NodeWriter(connection, Attempt(0, self._partition, "a"))
            for _ in range(20):
                writer.write(self._batch)
                rows += _ROWS
            writer.close()
            connection.wire.close()
        return rows / (time.monotonic() - began)
