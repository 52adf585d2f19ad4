"""Rows on their way from tasks into a node's spool: both ways in, who is let in, what strangers take, what counts."""

import contextlib
import select
import socket
import ssl
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from tests.node.feeding import SCHEMA, in_thread
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.hostile_peers import attacking, client_hello, open_descriptors, resident_bytes
from tfos_lab.core import messages as m
from tfos_lab.core.certificates import make_identities
from tfos_lab.core.link import knock_of
from tfos_lab.errors import FeedError, NodeUnreachable
from tfos_lab.node.feed.store import FeedStore
from tfos_lab.node.feed.task import PartitionSender
from tfos_lab.node.feed.wire import FeedPlan, Inference, connect

ROWS = pa.record_batch({"x": [1, 2, 3]})
TOKEN = "open sesame"
OPEN = m.FeedOpen(feed=0, epochs=1, remainder="pad", schema=SCHEMA, token=TOKEN)
MOST_BYTES = 50_000_000


@pytest.fixture(scope="module")
def identities():
    return make_identities()


class Wire:
    """A node's store between its driver and its child, both recorded, and tasks on its host and on others."""

    def __init__(self, scratch, identities):
        self.scratch, self.identities = scratch, identities
        self.to_driver, self.to_child, self.is_closed = [], [], False
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

    def close(self):
        if not self.is_closed:
            self.is_closed = True
            self.store.close()

    def knocked(self):
        """Return a socket that has knocked at the port for other hosts."""
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        sock.sendall(knock_of(TOKEN.encode()))
        return sock

    def connection(self):
        """Return a connection of a task that has not said yet what it wants."""
        return connect([self.far], TOKEN, self.identities.tasks)

    def echo(self, batches, *, far):
        """Infer with a function that returns what it gets; return the results."""
        self.store.handle(m.InferenceOpen(schema=SCHEMA, token="of the inference", tls=self.identities.nodes))
        connection = connect([self.far if far else self.near], "of the inference", self.identities.tasks)
        connection.ask(Inference(SCHEMA))

        def send():
            for batch in batches:
                connection.wire.send_batch(batch)
            connection.wire.end()

        def receive():
            answers = list(iter(connection.wire.receive, None))
            return [answer for answer in answers if not isinstance(answer, bytes)]  # that rows have been taken

        in_thread(send)
        thread, results = in_thread(receive)
        answered = 0
        while thread.is_alive():
            select.select([self.store.fileno()], [], [], 0.02)
            self.store.pump()
            for rows in [one for one in self.to_child if isinstance(one, m.ExchangeRows)][answered:]:
                answered += 1
                with pa.OSFile(rows.path) as file:
                    table = pa.ipc.open_file(file).read_all()
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, table.schema) as stream:
                    stream.write_table(table)
                data = sink.getvalue().to_pybytes()
                self.store.on_child_message(m.ExchangeTaken(exchange=rows.exchange))
                self.store.on_child_message(m.ExchangeResults(exchange=rows.exchange, rows=rows.rows, data=data))
        connection.wire.close()
        return results[0]


@pytest.fixture
def wire(short_folder, identities):
    wire = Wire(short_folder, identities)
    yield wire
    wire.close()


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


def test_a_commit_of_rows_that_are_not_here_is_an_error_and_one_without_rows_is_not(wire):
    wire.commit("a", rows=0)
    assert (wire.to_child[-1].path, wire.to_child[-1].rows) == ("", 0)
    with pytest.raises(RuntimeError, match="attempt a of partition 4 is not stored here"):
        wire.commit("a", partition=4)


def test_the_child_is_not_given_what_opens_the_endpoints(wire):
    wire.store.handle(m.InferenceOpen(schema=SCHEMA, token="of the inference", tls=wire.identities.nodes))
    assert [type(message) for message in wire.to_child] == [m.FeedOpen, m.InferenceOpen]
    assert [(message.token, message.tls) for message in wire.to_child] == [("", None)] * 2


def test_the_attempt_that_was_not_chosen_is_dropped(wire):
    for partition, attempt in ((3, "a"), (3, "b"), (4, "c")):
        wire.send(partition, attempt)
    wire.commit("b")
    assert wire.files() == ["0-3-b.arrow", "0-4-c.arrow"]


@pytest.mark.parametrize("end", [m.FeedComplete(feed=0), m.FeedAborted(feed=0, reason="why")])
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


@pytest.mark.parametrize("far", [True, False], ids=["another host", "the same host"])
def test_results_come_back_while_rows_are_still_sent(wire, far):
    numbers = np.arange(2_000_000)
    batches = [pa.record_batch({"x": part}) for part in np.split(numbers, 50)]
    results = pa.Table.from_batches(wire.echo(batches, far=far))
    assert np.array_equal(results.column(0).to_numpy(), numbers)


@pytest.mark.parametrize("far", [True, False], ids=["another host", "the same host"])
def test_why_a_node_takes_no_more_rows_is_told_although_many_are_on_their_way(wire, far):
    wire.store.handle(msgspec.structs.replace(OPEN, tls=wire.identities.nodes, epochs=2, spool_bytes=1_000_000))
    numbers = pa.record_batch({"x": np.arange(100_000)})
    with pytest.raises(FeedError, match=r"do not fit into the node's spool of 0\.001 GB"):
        wire.send(batches=[numbers] * 200, far=far)


# ---- who is let in --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["guess", "tök\u20acn"])
def test_tasks_without_the_token_store_nothing(wire, token):
    with pytest.raises(FeedError, match="this feed's token is needed"):
        wire.send(token=token, far=False)
    wire.pump()
    assert (len(wire.to_driver), wire.files()) == (1, [])


def test_tasks_of_other_hosts_without_the_token_are_not_let_in(wire):
    with pytest.raises(NodeUnreachable, match="does not answer"):
        wire.task(token="guess")


@pytest.mark.parametrize("sent", [b"garbage", ROWS], ids=["garbage", "rows"])
def test_what_is_no_request_is_answered_with_one_sentence(wire, sent):
    connection = wire.connection()
    connection.wire.send(sent) if isinstance(sent, bytes) else connection.wire.send_batch(sent)
    with pytest.raises(FeedError, match=r"(this is no request|what has come is no message) of a feed") as caught:
        connection.wire.receive()
    connection.wire.close()
    assert "\n" not in str(caught.value)
    assert wire.files() == []


def test_strangers_are_not_answered_before_they_have_knocked_and_leave_no_lines_in_the_log(wire, monkeypatch):
    failed = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    for opening in (b"GET / HTTP/1.1\r\n\r\n", client_hello(), knock_of(b"guess"), b"short"):
        with socket.create_connection(("127.0.0.1", wire.port), timeout=PATIENCE_S) as stranger:
            assert answer_to(stranger, opening) == b""
    with wire.knocked() as stranger:
        assert b"HTTP" not in answer_to(stranger, b"GET / HTTP/1.1\r\n\r\n")
    assert failed == []


def answer_to(stranger, sent):
    """Return what is answered until the connection is closed."""
    answer = b""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        stranger.sendall(sent)
        while data := stranger.recv(1000):
            answer += data
    return answer


def test_a_peer_without_a_certificate_is_refused(wire):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with wire.knocked() as sock, context.wrap_socket(sock) as stranger:
        assert answer_to(stranger, b"m" + struct.pack("!I", len(TOKEN)) + TOKEN.encode()) == b""


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
        wire.far = f"tls:127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(NodeUnreachable, match="does not answer"):
            wire.task()


@pytest.mark.parametrize("far", [True, False], ids=["another host", "the same host"])
def test_a_node_that_goes_while_it_is_sent_rows_is_told_as_unreachable(wire, far):
    with wire.task(far=far) as task:
        task.send(ROWS)
        wire.close()
        with pytest.raises(NodeUnreachable, match=r"the node at (tls|unix):"):
            task.commit()


def test_tasks_that_come_all_at_once_are_let_in(wire):
    with ThreadPoolExecutor(60) as pool:
        tasks = list(pool.map(wire.task, range(120)))
    for task in tasks:
        task.__exit__(None, None, None)


# ---- what strangers take --------------------------------------------------------------------------------------------


def test_what_strangers_send_is_not_taken(wire):
    before = resident_bytes()
    with attacking("flood", "127.0.0.1", wire.port, connections=20) as attack:
        assert attack.stdout.readline()
        for partition in range(20):
            wire.send(partition)
        most = resident_bytes() - before
    assert most < MOST_BYTES


def test_many_connections_that_say_nothing_take_few_descriptors_and_rows_come_all_the_same(wire):
    wire.send(0)
    descriptors = open_descriptors()
    with attacking("idle", "127.0.0.1", wire.port, connections=1100, rate=2000) as attack:
        assert attack.stdout.readline()
        for partition in range(1, 20):
            wire.send(partition)
        eventually(lambda: open_descriptors() < descriptors + 300)
    assert len(wire.files()) == 20


def test_a_connection_that_never_calls_is_closed(wire):
    with socket.create_connection(("127.0.0.1", wire.port), timeout=PATIENCE_S) as idle:
        assert idle.recv(1) == b""
