"""The node's endpoint for rows from other hosts: who is let in, and what strangers can take of its memory."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pyarrow as pa
import pytest
from pyarrow import flight

from tests.support.hostile_peers import attacking, client_hello, resident_bytes
from tfos_lab.engine.feed.certificates import make_identities
from tfos_lab.errors import NodeUnreachable
from tfos_lab.messages import AttemptStored
from tfos_lab.node.feed import plan, unproven_tasks
from tfos_lab.node.feed.flight_endpoint import CommitTicket, FlightEndpoint, PutTicket
from tfos_lab.node.feed.plan import connect
from tfos_lab.node.feed.spool import Spool
from tfos_lab.node.feed.unproven_tasks import AT_EASE, Peer

ROWS = pa.record_batch({"x": [1, 2, 3]})
MOST_BYTES = 50_000_000
MANY = os.environ.get("TFOS_LAB_FUZZ") == "soak"
SEED = int(os.environ.get("SEED", random.SystemRandom().randrange(1_000_000))) if MANY else 1
CONNECTIONS = 2000 if MANY else 100
HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PATIENCE_S = 60
# Bodies of 300 MB by one call each, from a program that has no certificate.
UNARY_BODIES = """
import sys
from pyarrow import flight
client = flight.connect(sys.argv[1], disable_server_verification=True)
for _ in range(3):
    try:
        list(client.do_action(flight.Action("commit", bytes(300_000_000)), flight.FlightCallOptions(timeout=60)))
    except flight.FlightError as error:
        print(type(error).__name__)
"""
# Failed handshakes at the port for rows of a process that is forked as agents are.
FAILED_HANDSHAKES = """
import os, socket, threading
from pyarrow import flight
from tfos_lab.engine.feed.certificates import make_identities
from tfos_lab.node.preload import preload
preload("plain")
tls = make_identities().nodes
endpoint = flight.FlightServerBase(
    "grpc+tls://127.0.0.1:0", tls_certificates=[(tls.certificate, tls.key)], verify_client=True,
    root_certificates=tls.authority,
)
threading.Thread(target=endpoint.wait, daemon=True).start()
for _ in range(3):
    with socket.create_connection(("127.0.0.1", endpoint.port)) as peer:
        peer.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
        while peer.recv(100):
            pass
print("answered", flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def identities():
    return make_identities()


@pytest.fixture
def endpoint(tmp_path, identities):
    committed = []
    spool = Spool(tmp_path / "spool")
    spool.open(0, epochs=1)
    endpoint = FlightEndpoint(
        "grpc+tls://127.0.0.1:0",
        identities.nodes,
        spool,
        on_stored=lambda ticket, path: committed.append((ticket.partition, path)),
        on_commit=committed.append,
        on_exchange=lambda *_: None,
    )
    endpoint.committed = committed
    endpoint.tokens = {"token"}
    thread = threading.Thread(target=endpoint.wait)
    thread.start()
    yield endpoint
    endpoint.shutdown()
    thread.join()
    spool.close()


@pytest.fixture
def client(endpoint, identities):
    connection = connect([location_of(endpoint)], identities.tasks)
    assert connection.spool is None
    with connection.client as client:
        yield client


def location_of(endpoint):
    return f"grpc+tls://127.0.0.1:{endpoint.port}"


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def soon(holds):
    deadline = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds()


def put(client, command):
    writer, _ = client.do_put(flight.FlightDescriptor.for_command(command), ROWS.schema)
    writer.write_batch(ROWS)
    writer.close()


def test_a_task_with_the_certificate_and_the_token_stores_rows(client, endpoint):
    put(client, msgspec.msgpack.encode(PutTicket("token", 0, 7, "a")))
    ((partition, path),) = endpoint.committed
    assert partition == 7
    assert pa.ipc.open_file(path).read_all().to_pydict() == {"x": [1, 2, 3]}


def test_a_peer_without_a_certificate_is_refused(endpoint):
    with (
        flight.connect(location_of(endpoint), disable_server_verification=True) as client,
        pytest.raises(flight.FlightError),
    ):
        list(client.do_action("present", flight.FlightCallOptions(timeout=60)))


@pytest.mark.parametrize("own", ["of another cluster", "of a node"])
def test_a_peer_without_the_certificate_of_a_task_is_refused(endpoint, identities, own):
    # A node's certificate is good for answering only.
    shown = identities.nodes if own == "of a node" else make_identities().tasks
    with pytest.raises(NodeUnreachable):
        connect([location_of(endpoint)], msgspec.structs.replace(shown, authority=identities.tasks.authority))


def test_a_task_refuses_a_node_of_another_cluster(endpoint, identities):
    stranger = msgspec.structs.replace(identities.tasks, authority=make_identities().tasks.authority)
    with pytest.raises(NodeUnreachable, match="does not answer"):
        connect([location_of(endpoint)], stranger)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (b"garbage", "this is no ticket of a feed"),
        (msgspec.msgpack.encode(PutTicket("wrong", 0, 0, "a")), "this feed's token is needed"),
        (msgspec.msgpack.encode(PutTicket("tök\u20acn", 0, 0, "a")), "this feed's token is needed"),
    ],
)
def test_a_wrong_ticket_is_answered_with_one_sentence(client, endpoint, command, why):
    for call in (lambda: put(client, command), lambda: list(client.do_action(flight.Action("commit", command)))):
        with pytest.raises((flight.FlightError, pa.ArrowInvalid)) as caught:
            call()
        assert "Traceback" not in str(caught.value)
    with pytest.raises(flight.FlightUnauthenticatedError, match=why):
        put(client, command)
    assert endpoint.committed == []


def test_strangers_leave_no_lines_in_the_log_of_a_node():
    done = subprocess.run([sys.executable, "-c", FAILED_HANDSHAKES], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("answered\n", "")


def test_a_stranger_s_bodies_are_not_taken(client, endpoint):
    before = resident_bytes()
    with subprocess.Popen(
        [sys.executable, "-c", UNARY_BODIES, location_of(endpoint)], stdout=subprocess.PIPE, text=True
    ) as stranger:
        most = 0
        while stranger.poll() is None:
            most = max(most, resident_bytes() - before)
            ticket = CommitTicket("token", AttemptStored(-1, 0, 0, "a", 0, 0))
            list(client.do_action(flight.Action("commit", msgspec.msgpack.encode(ticket))))
        said = stranger.stdout.read().split()
    assert said == ["FlightUnavailableError"] * 3
    assert most < MOST_BYTES


def test_many_handshakes_that_are_only_begun_soon_take_few_descriptors_and_rows_come_all_the_same(client, endpoint):
    put(client, msgspec.msgpack.encode(PutTicket("token", 0, 0, "a")))
    descriptors = open_descriptors()
    with attacking("hello", "127.0.0.1", endpoint.port, connections=1100) as attack:
        assert attack.stdout.readline()
        for partition in range(1, 20):
            put(client, msgspec.msgpack.encode(PutTicket("token", 0, partition, "a")))
        # The client itself may have opened some.
        assert soon(lambda: open_descriptors() < descriptors + AT_EASE + 20)
    assert len(endpoint.committed) == 20


def test_a_task_whose_connection_is_closed_among_those_of_strangers_comes_again(endpoint, identities, monkeypatch):
    refused = []

    def has_called(name):
        if not refused:
            refused.append(name)
            raise flight.FlightUnavailableError("closed")

    monkeypatch.setattr(endpoint._unproven, "has_called", has_called)
    with connect([location_of(endpoint)], identities.tasks).client as client:
        put(client, msgspec.msgpack.encode(PutTicket("token", 0, 7, "a")))
    assert refused
    assert len(endpoint.committed) == 1


def test_a_task_does_not_wait_for_a_node_that_has_gone(identities, monkeypatch):
    monkeypatch.setattr(
        plan, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: pytest.fail("it waits"))
    )
    with socket.socket() as bound:  # and not listening: the port stays free meanwhile
        bound.bind(("127.0.0.1", 0))
        location = f"grpc+tls://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(NodeUnreachable, match="does not answer"):
            connect([location], identities.tasks)


def test_tasks_that_come_all_at_once_are_let_in(endpoint, identities):
    with ThreadPoolExecutor(60) as pool:
        connections = list(pool.map(lambda _: connect([location_of(endpoint)], identities.tasks), range(120)))
    for connection in connections:
        connection.client.close()


def test_a_connection_without_a_call_is_closed_in_time_and_one_with_calls_is_not(client, endpoint, monkeypatch):
    monkeypatch.setattr(unproven_tasks, "PATIENCE_S", 0.2)
    with socket.create_connection(("127.0.0.1", endpoint.port), timeout=PATIENCE_S) as idle:
        assert idle.recv(1) == b""
    before = time.monotonic()
    assert soon(lambda: time.monotonic() - before > 1.5)
    put(client, msgspec.msgpack.encode(PutTicket("token", 0, 7, "a")))


def test_garbage_and_idle_connections_are_survived(client, endpoint):
    before = resident_bytes()
    for kind in ("idle", "garbage", "http"):
        with attacking(kind, "127.0.0.1", endpoint.port, connections=20) as attack:
            assert attack.stdout.readline()
            put(client, msgspec.msgpack.encode(PutTicket("token", 0, 7, kind)))
    assert len(endpoint.committed) == 3
    assert resident_bytes() - before < MOST_BYTES


def cut_handshake(rng, hello):
    """Return the beginning of a handshake, one that was changed, or what has never been one."""
    cut = hello[: rng.randrange(len(hello))]
    changed = bytearray(hello)
    changed[rng.randrange(len(hello))] ^= 1 << rng.randrange(8)
    record = b"\x16\x03\x01" + struct.pack("!H", rng.randrange(1 << 16)) + rng.randbytes(rng.randrange(600))
    return rng.choice([cut, bytes(changed), record, HTTP_2 + rng.randbytes(100), rng.randbytes(rng.randrange(5000))])


def test_handshakes_that_are_cut_or_wrong_leave_a_feed_as_it_was(client, endpoint):
    rng = random.Random(SEED)
    sys.stderr.write(f"SEED={SEED}\n")
    hello, descriptors = client_hello(), open_descriptors()
    with ExitStack() as kept:
        for _ in range(CONNECTIONS):
            peer = socket.create_connection(("127.0.0.1", endpoint.port), timeout=PATIENCE_S)
            with contextlib.suppress(OSError):
                peer.sendall(cut_handshake(rng, hello))
            if rng.random() < 0.2:
                kept.enter_context(peer)
            else:
                peer.close()
        put(client, msgspec.msgpack.encode(PutTicket("token", 0, 7, "a")))
    assert len(endpoint.committed) == 1
    assert soon(lambda: open_descriptors() < descriptors + 20)


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        ("ipv4:10.0.0.1:4711", ("10.0.0.1", 4711)),
        ("ipv6:%5B::ffff:10.0.0.1%5D:4711", ("10.0.0.1", 4711)),
        ("ipv6:[fe80::1%eth0]:4711", ("fe80::1", 4711)),
        ("ipv6:%5Bfe80::1%25eth0%5D:4711", ("fe80::1", 4711)),
    ],
)
def test_a_peer_is_the_same_by_the_name_that_grpc_gives_it(name, peer):
    assert Peer.named(name) == peer
