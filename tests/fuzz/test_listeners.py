"""Garbage at all that listens while a cluster runs: the cluster goes on, and what has come costs nothing afterwards."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from tests.soak.nodes import read
from tests.support.clusters import running_clusters, runtime_of
from tests.support.hostile_tensorboard import hostile_tensorboard
from tests.support.quick import QUICK_ENV
from tfos_lab.core.runtime_files import scratch_root
from tfos_lab.engine.tensorboard.http_server import TensorBoardHttpServer
from tfos_lab.transport.unix_server import UnixServer

MANY = os.environ.get("TFOS_LAB_FUZZ") == "soak"
SEED = int(os.environ.get("SEED", random.SystemRandom().randrange(1_000_000))) if MANY else 1
CONNECTIONS = 2000 if MANY else 60
MOST_BYTES = 50 << 20
# The longest that a listener takes to see that a peer has gone.
PATIENCE_S = 20.0

ZEROMQ = b"\xff" + bytes(8) + b"\x7f\x03\x01CURVE" + bytes(48)
HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# A request of the fork server's whose target is no text, and one of lists within lists.
NO_TEXT = b"\x82\xa4type\xacSpawnRequest\xa6target\xa2\xff\xff"
NESTED = b"\x83\xa4type\xacSpawnRequest\xa6target\xa0\xa1x" + b"\x91" * 5000
FRAMES = [struct.pack("!I", len(data)) + data for data in (NO_TEXT, NESTED)]
HEADS = [
    b"",
    b"\x00\x00\x00\x08",
    b"\xff\xff\xff\xff",
    ZEROMQ,
    HTTP_2,
    b"GET / HTTP/1.1\r\n",
    b"POST /stop HTTP/1.1\r\n",
]


@pytest.fixture
def cluster(spark, monkeypatch, tmp_path):
    """Two quick nodes that are fed: all their listeners are open."""
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))
    with running_clusters({"spark": spark, "local": "processes", "env": QUICK_ENV, "grace_s": 2.0}) as start:
        cluster = start(read, {"raises": ""})
        cluster.train(spark.range(10).withColumnRenamed("id", "x"))
        yield cluster


@pytest.fixture
def tensorboard():
    """The port of a link to TensorBoard, and a function that asks whether the link still works."""

    async def serve(_reader, _writer):
        pass

    unix_server = UnixServer(serve)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, hostile_tensorboard(f"{folder}/tensorboard") as path:
        link = TensorBoardHttpServer(unix_server.loop, path)
        yield urlsplit(link.url).port, lambda: urllib.request.urlopen(link.url, timeout=60).status == 200
        link.close()
    unix_server.close()


def garbage(rng):
    """Return some bytes: random ones, with a head that a listener knows, or a frame of a false length."""
    body = rng.randbytes(rng.choice([0, 1, 7, 64, 5000]))
    if rng.random() < 0.3:
        return struct.pack("!I", len(body)) + body
    return rng.choice([*FRAMES, *HEADS]) + body


def throw(address, rng, connections):
    """Connect so many times, send garbage, and leave: at once, after an answer, or in the middle."""
    family = socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX
    open_ones = []
    for _ in range(connections):
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.settimeout(0.02)
        open_ones.append(sock)
        with contextlib.suppress(OSError):
            sock.connect(address)
            sock.sendall(garbage(rng))
            if rng.random() < 0.3:
                sock.recv(4096)
            if rng.random() < 0.7:
                open_ones.remove(sock)
                sock.close()
    for sock in open_ones:
        sock.close()


def unix_sockets(cluster):
    """Return the sockets of the nodes, of their fork servers and of this process, by what they are."""
    return {
        "nodes": [path for folder in scratch_root().glob(f"{cluster.id}-*-*") for path in sockets_in(folder)],
        "fork servers": [path for folder in fork_server_folders(cluster) for path in sockets_in(folder)],
        "kernel": [*scratch_root().glob(f"unix_server-{os.getpid()}-*.sock")],
    }


def sockets_in(folder):
    return [path for path in folder.iterdir() if path.is_socket()]


def fork_server_folders(cluster):
    parents = [psutil.Process(view.pid).parent() for view in cluster.nodes]
    paths = [word for parent in parents for word in parent.cmdline() if word.startswith(str(scratch_root()))]
    return {Path(path).parent for path in paths}


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def soon(holds):
    deadline = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds()


def test_garbage_at_every_listener_leaves_a_running_cluster_as_it_was(cluster, spark, tensorboard):
    sys.stderr.write(f"SEED={SEED}\n")
    rng = random.Random(SEED)
    host, port = runtime_of(cluster).generation.server.address.endpoint.removeprefix("tcp://").split(":")
    sockets = unix_sockets(cluster)
    assert all(sockets.values()), sockets
    children = [psutil.Process(view.pid) for view in cluster.nodes]
    processes = [*children, *(child.parent() for child in children)]
    before, rss = open_descriptors(), psutil.Process().memory_info().rss
    paths = [str(path) for paths in sockets.values() for path in paths]
    for address in [(host, int(port)), ("127.0.0.1", tensorboard[0]), *paths]:
        throw(address, rng, CONNECTIONS)
    assert cluster.state == "running"
    assert tensorboard[1]()
    assert all(process.is_running() for process in processes)
    cluster.train(spark.range(10, 30).withColumnRenamed("id", "x"))
    assert sum(cluster.wait(timeout_s=100).values()) == sum(range(30))
    assert soon(lambda: open_descriptors() <= before)
    assert psutil.Process().memory_info().rss - rss < MOST_BYTES
