"""All that listens while a cluster runs, found as an attacker finds it: where it listens, and garbage at each of it.

The cluster goes on, and what has come costs nothing afterwards. What may listen where is the table of docs/security.md.
"""

import contextlib
import os
import random
import socket
import stat
import struct
import sys
from pathlib import Path

import psutil
import pytest

from tests.laws.random_data import MANY
from tests.support.clusters import running_clusters
from tests.support.eventually import eventually
from tests.support.hostile_peers import open_descriptors
from tests.support.quick import QUICK_ENV

SEED = int(os.environ.get("SEED", random.SystemRandom().randrange(1_000_000))) if MANY else 1
CONNECTIONS = 2000 if MANY else 60
MOST_BYTES = 50 << 20
# How many connections a socket of the kernel serves at a time.
SLOTS = 16

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


def listeners_of(*processes):
    """Return the addresses at which processes listen: pairs of a host and a port, and paths of unix sockets."""
    found = set()
    for process in processes:
        found |= {tuple(each.laddr) for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN}
        found |= {each.laddr for each in process.net_connections("unix") if each.laddr.startswith("/")}
    return found


def nodes_of(cluster):
    """Return the processes that have a unix socket of this cluster: its agents or children."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(cluster.id in each.laddr for each in process.net_connections("unix")):
                found.append(process)
    return found


@pytest.fixture
def kernel():
    return psutil.Process()


@pytest.fixture
def elsewhere(spark, kernel):
    """What listens in this process already: Spark's own, and what other tests have left."""
    return listeners_of(kernel)


def total(args, ctx):
    """Return the sum of all rows."""
    feed, found = ctx.data_feed(), 0
    while not feed.should_stop():
        found += sum(row[0] for row in feed.next_batch(64))
    return found


@pytest.fixture
def cluster(spark, elsewhere, monkeypatch, tmp_path):
    """Two quick nodes that are fed: all their listeners are open."""
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))
    with running_clusters({"spark": spark, "local": "processes", "env": QUICK_ENV, "grace": 2.0}) as start:
        cluster = start(total)
        cluster.train(spark.range(10).withColumnRenamed("id", "x"))
        yield cluster


def garbage(rng):
    """Return some bytes: random ones, with a head that a listener knows, or a frame of a false length."""
    body = rng.randbytes(rng.choice([0, 1, 7, 64, 5000]))
    if rng.random() < 0.3:
        return struct.pack("!I", len(body)) + body
    return rng.choice([*FRAMES, *HEADS]) + body


def connected(address):
    sock = socket.socket(socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX)
    sock.settimeout(0.02)
    with contextlib.suppress(OSError):
        sock.connect(address)
    return sock


def throw(address, rng):
    """Connect many times, send garbage, and leave: at once, after an answer, or in the middle."""
    open_ones = []
    for _ in range(CONNECTIONS):
        sock = connected(address)
        open_ones.append(sock)
        with contextlib.suppress(OSError):
            sock.sendall(garbage(rng))
            if rng.random() < 0.3:
                sock.recv(4096)
            if rng.random() < 0.7:
                open_ones.remove(sock)
                sock.close()
    for sock in open_ones:
        sock.close()


def is_closed(sock):
    """Whether the other end has closed a connection."""
    with contextlib.suppress(TimeoutError):
        return not sock.recv(4096)
    return False


def test_what_listens_is_for_the_user_only_and_garbage_at_it_leaves_a_running_cluster_as_it_was(
    cluster, kernel, elsewhere, spark
):
    sys.stderr.write(f"SEED={SEED}\n")
    rng = random.Random(SEED)
    children = [psutil.Process(view.pid) for view in cluster.nodes]
    groups = {"kernel": [kernel], "nodes": nodes_of(cluster), "fork servers": {child.parent() for child in children}}
    listening = {who: listeners_of(*processes) - elsewhere for who, processes in groups.items()}
    assert all(listening.values()), listening
    addresses = sorted(set().union(*listening.values()), key=str)
    for address in addresses:
        if isinstance(address, tuple):
            assert address[0] == "127.0.0.1"
        else:
            assert stat.S_IMODE(Path(address).parent.stat().st_mode) == 0o700, address

    before, rss = open_descriptors(), kernel.memory_info().rss
    for address in addresses:
        throw(address, rng)
    kernels = [address for address in listening["kernel"] if isinstance(address, str)]
    silent = [connected(address) for address in kernels for _ in range(2 * SLOTS)]
    assert cluster.state == "running"
    assert all(process.is_running() for processes in groups.values() for process in processes)
    cluster.train(spark.range(10, 30).withColumnRenamed("id", "x"))

    # Silent connections give up their slots to those who wait.
    eventually(lambda: sum(map(is_closed, silent)) >= SLOTS * len(kernels))
    for sock in silent:
        sock.close()
    assert sum(cluster.wait(timeout=100).values()) == sum(range(30))
    eventually(lambda: open_descriptors() <= before)
    assert kernel.memory_info().rss - rss < MOST_BYTES
