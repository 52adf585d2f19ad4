"""The feed in the agent: what is stored, what counts, what is dropped."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys

import msgspec
import pyarrow as pa
import pytest
from pyarrow import flight

from tfos_lab import messages as m
from tfos_lab.node.feed import endpoints
from tfos_lab.node.feed.flight_endpoint import CommitTicket, PutTicket
from tfos_lab.node.feed.store import FeedStore

PATIENCE_S = 60.0
TOKEN = "open sesame"
OPEN = m.FeedOpen(feed=0, epochs=1, remainder="pad", schema="{}", token=TOKEN)
ROWS = pa.RecordBatch.from_pydict({"x": [1, 2, 3]})


class Rig:
    """A store between a fake driver and a fake child."""

    def __init__(self, scratch):
        self.scratch = scratch
        self.to_driver = []
        self.to_child = []
        self.store = FeedStore(5, "127.0.0.1", scratch, self.to_driver.append, self.to_child.append)
        self.store.handle(OPEN)

    def client(self):
        return flight.connect(self.to_driver[0].locations[0])

    def put(self, partition, attempt, batch=ROWS, *, token=TOKEN):
        ticket = msgspec.msgpack.encode(PutTicket(token, 0, partition, attempt))
        with self.client() as client:
            writer, _ = client.do_put(flight.FlightDescriptor.for_command(ticket), batch.schema)
            writer.write_batch(batch)
            writer.close()

    def ask_to_commit(self, **changes):
        ticket = CommitTicket(TOKEN, m.AttemptStored(-1, 0, 3, "a", 3, 24, shapes={"x": []}))
        ticket = msgspec.structs.replace(ticket, **changes)
        with self.client() as client:
            list(client.do_action(flight.Action("commit", msgspec.msgpack.encode(ticket))))

    def pump(self):
        assert select.select([self.store.fileno()], [], [], PATIENCE_S)[0]
        self.store.pump()

    def files(self):
        return sorted(path.name for path in (self.scratch / "spool").iterdir())


@pytest.fixture
def rig(short_folder):
    rig = Rig(short_folder)
    yield rig
    rig.store.close()


def commit(attempt="a", rows=3, partition=3):
    return m.Commit(feed=0, partition=partition, attempt=attempt, rows=rows, shapes={"x": []})


def test_an_endpoint_opens_with_the_first_feed_and_both_sides_are_notified(rig):
    (ready,) = rig.to_driver
    assert (ready.rank, ready.feed) == (5, 0)
    assert ready.locations == [f"grpc+unix://{rig.scratch}/feed"]
    assert rig.to_child == [OPEN]


def test_the_endpoint_stays_for_the_next_feed_under_its_token(rig):
    rig.store.handle(msgspec.structs.replace(OPEN, feed=1, token="another"))
    assert rig.to_driver[1].locations == rig.to_driver[0].locations
    with pytest.raises(flight.FlightUnauthenticatedError):
        rig.put(0, "a")


def test_clients_without_the_token_store_nothing(rig):
    for token in ("", "guess"):
        with pytest.raises(flight.FlightUnauthenticatedError, match="token is needed"):
            rig.put(0, "a", token=token)
        with pytest.raises(flight.FlightUnauthenticatedError):
            rig.ask_to_commit(token=token)
    assert rig.files() == []


def test_stored_rows_do_not_count_before_the_driver_commits_them(rig):
    rig.put(3, "a")
    rig.pump()
    rig.ask_to_commit()
    rig.pump()
    stored = rig.to_driver[-1]
    assert stored == m.AttemptStored(rank=5, feed=0, partition=3, attempt="a", rows=3, size_bytes=24, shapes={"x": []})
    assert rig.to_child == [OPEN]


def test_committed_rows_are_shown_to_the_child_as_a_file_that_holds_them(rig):
    rig.put(3, "a")
    rig.store.handle(commit())
    ready = rig.to_child[-1]
    assert (ready.feed, ready.rows, ready.shapes) == (0, 3, {"x": []})
    with pa.memory_map(ready.path) as file:
        assert pa.ipc.open_file(file).read_all().to_pydict() == ROWS.to_pydict()


def test_a_commit_that_overtakes_the_queue_still_finds_the_rows(rig):
    rig.put(3, "a")
    assert rig.store._stored == {}
    rig.store.handle(commit())
    assert rig.to_child[-1].path.endswith("0-3-a.arrow")


def test_the_attempt_that_was_not_chosen_is_dropped(rig):
    for attempt in ("a", "b"):
        rig.put(3, attempt)
    rig.put(4, "c")
    rig.store.handle(commit("b"))
    assert rig.files() == ["0-3-b.arrow", "0-4-c.arrow"]


def test_a_node_without_rows_of_the_partition_receives_the_shapes_only(rig):
    rig.store.handle(commit("elsewhere", rows=0))
    assert rig.to_child[-1] == m.SegmentReady(feed=0, path="", rows=0, partition=3, shapes={"x": []})


@pytest.mark.parametrize("end", [m.FeedComplete(feed=0, rows=3), m.FeedAborted(feed=0, reason="why")])
def test_at_the_end_what_was_not_committed_is_dropped(rig, end):
    rig.put(3, "a")
    rig.put(4, "straggler")
    rig.store.handle(commit())
    rig.store.handle(end)
    assert rig.files() == ["0-3-a.arrow"]
    assert rig.to_child[-1] == end
    rig.put(5, "later still")
    rig.pump()
    assert rig.files() == ["0-3-a.arrow"]


@pytest.mark.parametrize(
    "message",
    [m.EpochPlan(feed=0, dataset_id=0, steps=3, shares=[(9, 3, 2)]), m.PlanLater(feed=0, dataset_id=0), m.FeedsEnded()],
)
def test_what_concerns_the_child_is_passed_on(rig, message):
    rig.store.handle(message)
    assert rig.to_child[-1] == message


def test_a_thread_that_posts_when_the_store_is_closed_writes_to_no_descriptor_of_others(short_folder):
    reader, writer = os.pipe()
    store = FeedStore(5, "127.0.0.1", short_folder, print, print)
    descriptor = store.fileno()
    store.close()
    os.dup2(writer, descriptor)
    os.set_blocking(reader, False)
    store._post(print)
    with pytest.raises(BlockingIOError):
        os.read(reader, 8)
    for one in (reader, writer, descriptor):
        os.close(one)


def test_a_store_is_closed_though_a_task_that_is_cut_off_never_ends_its_call(short_folder, monkeypatch):
    monkeypatch.setattr(endpoints, "_CLOSE_S", 0.5)
    rig = Rig(short_folder)
    ticket = msgspec.msgpack.encode(PutTicket(TOKEN, 0, 3, "a"))
    with rig.client() as client:
        writer, _ = client.do_put(flight.FlightDescriptor.for_command(ticket), ROWS.schema)
        writer.write_batch(ROWS)
        rig.store.close()
        with contextlib.suppress(flight.FlightError):
            writer.close()


# A process that receives rows on a unix socket and by TLS, and is told to end while it does and afterwards.
TOLD_TO_END = """
import os, signal, sys, time
from pathlib import Path
from pyarrow import flight
from tfos_lab.engine.feed.certificates import make_identities
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


def test_a_spool_that_cannot_be_written_fails_the_task(rig):
    (rig.scratch / "spool").rmdir()
    told = rf"FeedError: on {socket.gethostname()}, the node's spool in .* cannot be written: .*No such"
    with pytest.raises(flight.FlightServerError, match=told):
        rig.put(3, "a")
