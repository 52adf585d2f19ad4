"""Rows on their way from tasks into a node's spool: both ways in, who is let in, what strangers take, what counts."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pyarrow as pa
import pytest
from pyarrow import flight

from tests.node.feeding import SCHEMA
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.hostile_peers import attacking, open_descriptors, resident_bytes
from tfos_lab.core import messages as m
from tfos_lab.driver.feed.certificates import make_identities
from tfos_lab.errors import NodeUnreachable
from tfos_lab.node.feed.store import FeedStore
from tfos_lab.node.feed.task import FeedPlan, PartitionSender

ROWS = pa.record_batch({"x": [1, 2, 3]})
TOKEN = "open sesame"
OPEN = m.FeedOpen(feed=0, epochs=1, remainder="pad", schema=SCHEMA, token=TOKEN)
MOST_BYTES = 50_000_000


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
from tfos_lab.driver.feed.certificates import make_identities
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


class Wire:
    """A node's store between its driver and its child, both recorded, and tasks on its host and on others."""

    def __init__(self, scratch, identities):
        self.scratch, self.identities = scratch, identities
        self.to_driver, self.to_child = [], []
        self.store = FeedStore("127.0.0.1", scratch, self.to_driver.append, self.to_child.append)
        self.store.handle(msgspec.structs.replace(OPEN, tls=identities.nodes))
        self.near, self.far = self.to_driver[0].locations

    @property
    def port(self):
        return int(self.far.rpartition(":")[2])

    def task(self, partition=3, attempt="a", *, feed=0, token=TOKEN, far=True, tls=None):
        location = self.far if far else self.near
        plan = FeedPlan(feed, token, {5: [location]}, SCHEMA, tls=tls or self.identities.tasks)
        return PartitionSender(plan, partition, attempt)

    def send(self, partition=3, attempt="a", batches=(ROWS,), **task):
        """Store rows and ask to commit them."""
        with self.task(partition, attempt, **task) as sender:
            for batch in batches:
                sender.send(batch)
            sender.commit()

    def pump(self):
        while select.select([self.store.fileno()], [], [], 0)[0]:
            self.store.pump()

    def commit(self, attempt="a", rows=3, partition=3):
        self.store.handle(m.Commit(feed=0, partition=partition, attempt=attempt, rows=rows, shapes={"x": []}))

    def files(self):
        return sorted(path.name for path in (self.scratch / "spool").iterdir())

    def client(self):
        """Return a client that has the certificate of a task, and says what it wants."""
        tls = self.identities.tasks
        return flight.connect(
            self.far,
            tls_root_certs=tls.authority,
            cert_chain=tls.certificate,
            private_key=tls.key,
            override_hostname="tfos-lab",
        )


@pytest.fixture
def wire(short_folder, identities):
    wire = Wire(short_folder, identities)
    yield wire
    wire.store.close()


# ---- what counts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("far", [True, False], ids=["another host", "the same host"])
def test_both_ways_lead_to_the_same_file_whose_rows_do_not_count_before_the_driver_commits_them(wire, far):
    wire.send(batches=[ROWS, ROWS.slice(1, 1)], far=far)
    wire.pump()
    stored = wire.to_driver[-1]
    assert (stored.feed, stored.partition, stored.attempt, stored.rows) == (0, 3, "a", 4)
    assert [type(message) for message in wire.to_child] == [m.FeedOpen]
    wire.commit(rows=4)
    ready = wire.to_child[-1]
    assert (ready.feed, ready.rows, ready.shapes) == (0, 4, {"x": []})
    with pa.memory_map(ready.path) as file:
        assert pa.ipc.open_file(file).read_all().to_pydict() == {"x": [1, 2, 3, 2]}


def test_a_commit_that_overtakes_the_queue_still_finds_the_rows(wire):
    wire.send()
    wire.commit()
    assert wire.to_child[-1].path.endswith("0-3-a.arrow")


def test_the_attempt_that_was_not_chosen_is_dropped(wire):
    for partition, attempt in ((3, "a"), (3, "b"), (4, "c")):
        wire.send(partition, attempt)
    wire.commit("b")
    assert wire.files() == ["0-3-b.arrow", "0-4-c.arrow"]


@pytest.mark.parametrize("end", [m.FeedComplete(feed=0, rows=3), m.FeedAborted(feed=0, reason="why")])
def test_at_the_end_what_was_not_committed_is_dropped(wire, end):
    wire.send(3)
    wire.send(4, "straggler")
    wire.commit()
    wire.store.handle(end)
    assert wire.files() == ["0-3-a.arrow"]
    assert wire.to_child[-1] == end
    wire.send(5, "later still")
    wire.pump()
    assert wire.files() == ["0-3-a.arrow"]


def test_a_large_row_is_not_held_in_memory_many_times_over(wire):
    size = 16 << 20
    rows = pa.RecordBatch.from_pydict({"x": [b"x" * size]})
    default = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(default)
    pa.set_memory_pool(counted)
    try:
        with PartitionSender(FeedPlan(0, TOKEN, {5: [wire.near]}, SCHEMA.replace("long", "binary")), 3, "a") as sender:
            for _ in range(2):
                sender.send(rows)
            sender.commit()
    finally:
        pa.set_memory_pool(default)
    assert counted.max_memory() < 3 * size


# ---- who is let in --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("far", [True, False], ids=["another host", "the same host"])
@pytest.mark.parametrize("token", ["", "guess", "tök\u20acn"])
def test_tasks_without_the_token_store_nothing(wire, token, far):
    with pytest.raises(flight.FlightUnauthenticatedError, match="this feed's token is needed"):
        wire.send(token=token, far=far)
    wire.pump()
    assert len(wire.to_driver) == 1
    wire.commit()
    assert wire.to_child[-1].path == "", "what a task has written itself counts nothing"
    assert not far or wire.files() == []


def test_garbage_instead_of_a_ticket_is_answered_with_one_sentence(wire):
    def put(client):
        writer, _ = client.do_put(flight.FlightDescriptor.for_command(b"garbage"), ROWS.schema)
        writer.write_batch(ROWS)
        writer.close()

    with wire.client() as client:
        for call in (put, lambda client: list(client.do_action(flight.Action("commit", b"garbage")))):
            with pytest.raises((flight.FlightError, pa.ArrowInvalid)) as caught:
                call(client)
            assert "Traceback" not in str(caught.value)
        with pytest.raises(flight.FlightUnauthenticatedError, match="this is no ticket of a feed"):
            put(client)
    assert wire.files() == []


def test_a_peer_without_a_certificate_is_refused(wire):
    with (
        flight.connect(wire.far, disable_server_verification=True) as client,
        pytest.raises(flight.FlightError),
    ):
        list(client.do_action("present", flight.FlightCallOptions(timeout=60)))


@pytest.mark.parametrize("own", ["of another cluster", "of a node"])
def test_a_peer_without_the_certificate_of_a_task_is_refused(wire, identities, own):
    # A node's certificate is good for answering only.
    shown = identities.nodes if own == "of a node" else make_identities().tasks
    with pytest.raises(NodeUnreachable):
        wire.task(tls=msgspec.structs.replace(shown, authority=identities.tasks.authority))


def test_a_task_refuses_a_node_of_another_cluster(wire, identities):
    stranger = msgspec.structs.replace(identities.tasks, authority=make_identities().tasks.authority)
    with pytest.raises(NodeUnreachable, match="does not answer"):
        wire.task(tls=stranger)


def test_a_node_that_has_gone_is_named(wire):
    with socket.socket() as bound:  # and not listening: the port stays free meanwhile
        bound.bind(("127.0.0.1", 0))
        wire.far = f"grpc+tls://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(NodeUnreachable, match="does not answer"):
            wire.task()


def test_tasks_that_come_all_at_once_are_let_in(wire):
    with ThreadPoolExecutor(60) as pool:
        tasks = list(pool.map(wire.task, range(120)))
    for task in tasks:
        task.__exit__(None, None, None)


# ---- what strangers take --------------------------------------------------------------------------------------------


def test_strangers_leave_no_lines_in_the_log_of_a_node():
    done = subprocess.run([sys.executable, "-c", FAILED_HANDSHAKES], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("answered\n", "")


def test_a_stranger_s_bodies_are_not_taken(wire):
    before = resident_bytes()
    with subprocess.Popen(
        [sys.executable, "-c", UNARY_BODIES, wire.far], stdout=subprocess.PIPE, text=True
    ) as stranger:
        most, partition = 0, 0
        while stranger.poll() is None:
            most = max(most, resident_bytes() - before)
            partition += 1
            wire.send(partition)
        said = stranger.stdout.read().split()
    assert said == ["FlightUnavailableError"] * 3
    assert most < MOST_BYTES


def test_many_handshakes_that_are_only_begun_soon_take_few_descriptors_and_rows_come_all_the_same(wire):
    wire.send(0)
    descriptors = open_descriptors()
    with attacking("hello", "127.0.0.1", wire.port, connections=1100) as attack:
        assert attack.stdout.readline()
        for partition in range(1, 20):
            wire.send(partition)
        eventually(lambda: open_descriptors() < descriptors + 300)
    assert len(wire.files()) == 20


def test_a_connection_that_never_calls_is_closed(wire):
    with socket.create_connection(("127.0.0.1", wire.port), timeout=PATIENCE_S) as idle:
        assert idle.recv(1) == b""


# ---- the end --------------------------------------------------------------------------------------------------------


# A process that receives rows on a unix socket and by TLS, and is told to end while it does and afterwards.
TOLD_TO_END = """
import os, signal, sys, time
from pathlib import Path
from pyarrow import flight
from tfos_lab.driver.feed.certificates import make_identities
from tfos_lab.node.feed.endpoints import Endpoints, any_port

class Endpoint(flight.FlightServerBase):
    tokens = frozenset()

def make(location, tls):
    certificates = [(tls.certificate, tls.key)] if tls else None
    return Endpoint(location, tls_certificates=certificates)

def told_times():
    before = len(told)
    os.kill(os.getpid(), signal.SIGTERM)
    deadline = time.monotonic() + 5
    while len(told) == before and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(told)

told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
endpoints = Endpoints("127.0.0.1", Path(sys.argv[1]), make, any_port)
near, far = endpoints.open("token", make_identities().nodes)
time.sleep(0.5)
counts = [told_times()]
with flight.connect(near) as client:
    client.wait_for_available(timeout=5)
endpoints.close()
print(*counts, told_times())
"""


def test_a_process_that_receives_rows_keeps_its_signals(short_folder):
    command = [sys.executable, "-c", TOLD_TO_END, str(short_folder / "feed")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.stdout, done.stderr) == ("1 2\n", "")
