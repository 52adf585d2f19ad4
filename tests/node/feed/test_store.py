"""The agent's part of a feed: what is stored, what counts, what is dropped."""

from __future__ import annotations

import select

import msgspec
import pyarrow as pa
import pytest
from pyarrow import flight

from tfos_lab import messages as m
from tfos_lab.node.feed.flight_endpoint import CommitTicket, PutTicket
from tfos_lab.node.feed.store import FeedStore

PATIENCE_S = 20.0
TOKEN = "open sesame"
OPEN = m.FeedOpen(feed=0, epochs=1, remainder="pad", schema="{}", token=TOKEN)
ROWS = pa.RecordBatch.from_pydict({"x": [1, 2, 3]})


class Stand:
    """A store between an acted driver and an acted child."""

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
        ticket = CommitTicket(TOKEN, 0, 3, "a", {5: 3}, 24, {"x": []})
        ticket = msgspec.structs.replace(ticket, **changes)
        with self.client() as client:
            list(client.do_action(flight.Action("commit", msgspec.msgpack.encode(ticket))))

    def pump(self):
        assert select.select([self.store.fileno()], [], [], PATIENCE_S)[0]
        self.store.pump()

    def files(self):
        return sorted(path.name for path in (self.scratch / "spool").iterdir())


@pytest.fixture
def stand(short_folder):
    stand = Stand(short_folder)
    yield stand
    stand.store.close()


def commit(attempt="a", rows=3, partition=3):
    return m.Commit(feed=0, partition=partition, attempt=attempt, rows=rows, shapes={"x": []})


def test_an_endpoint_opens_with_the_first_feed_and_both_sides_hear_of_it(stand):
    (ready,) = stand.to_driver
    assert (ready.rank, ready.feed) == (5, 0)
    assert ready.locations == [f"grpc+unix://{stand.scratch}/feed"]
    assert stand.to_child == [OPEN]


def test_the_endpoint_stays_for_the_next_feed_under_its_token(stand):
    stand.store.handle(msgspec.structs.replace(OPEN, feed=1, token="another"))
    assert stand.to_driver[1].locations == stand.to_driver[0].locations
    with pytest.raises(flight.FlightUnauthenticatedError):
        stand.put(0, "a")


def test_who_does_not_know_the_token_stores_nothing(stand):
    for token in ("", "guess"):
        with pytest.raises(flight.FlightUnauthenticatedError, match="token is needed"):
            stand.put(0, "a", token=token)
        with pytest.raises(flight.FlightUnauthenticatedError):
            stand.ask_to_commit(token=token)
    assert stand.files() == []


def test_stored_rows_do_not_count_before_the_driver_says_so(stand):
    stand.put(3, "a")
    stand.pump()
    stand.ask_to_commit()
    stand.pump()
    stored = stand.to_driver[-1]
    assert stored == m.AttemptStored(
        rank=5, feed=0, partition=3, attempt="a", rows={5: 3}, size_bytes=24, shapes={"x": []}
    )
    assert stand.to_child == [OPEN]


def test_committed_rows_are_shown_to_the_child_as_a_file_that_holds_them(stand):
    stand.put(3, "a")
    stand.store.handle(commit())
    ready = stand.to_child[-1]
    assert (ready.feed, ready.rows, ready.shapes) == (0, 3, {"x": []})
    with pa.memory_map(ready.path) as file:
        assert pa.ipc.open_file(file).read_all().to_pydict() == ROWS.to_pydict()


def test_a_commit_that_overtakes_the_news_of_the_rows_still_finds_them(stand):
    stand.put(3, "a")
    assert stand.store._stored == {}
    stand.store.handle(commit())
    assert stand.to_child[-1].path.endswith("0-3-a.arrow")


def test_the_attempt_that_was_not_chosen_is_dropped(stand):
    for attempt in ("a", "b"):
        stand.put(3, attempt)
    stand.put(4, "c")
    stand.store.handle(commit("b"))
    assert stand.files() == ["0-3-b.arrow", "0-4-c.arrow"]


def test_a_node_without_rows_of_the_partition_hears_of_shapes_only(stand):
    stand.store.handle(commit("elsewhere", rows=0))
    assert stand.to_child[-1] == m.SegmentReady(feed=0, path="", rows=0, partition=3, shapes={"x": []})


@pytest.mark.parametrize("end", [m.FeedComplete(feed=0, rows=3), m.FeedAborted(feed=0, reason="why")])
def test_at_the_end_what_was_not_committed_is_dropped(stand, end):
    stand.put(3, "a")
    stand.put(4, "straggler")
    stand.store.handle(commit())
    stand.store.handle(end)
    assert stand.files() == ["0-3-a.arrow"]
    assert stand.to_child[-1] == end


@pytest.mark.parametrize(
    "message",
    [m.EpochPlan(feed=0, dataset_id=0, steps=3, shares=[(9, 3, 2)]), m.PlanLater(feed=0, dataset_id=0), m.FeedsEnded()],
)
def test_what_concerns_the_child_is_passed_on(stand, message):
    stand.store.handle(message)
    assert stand.to_child[-1] == message


def test_a_spool_that_cannot_be_written_is_told_to_the_task(stand):
    (stand.scratch / "spool").rmdir()
    with pytest.raises(
        flight.FlightServerError, match=r"FeedError: the node's spool in .* cannot be written: .*No such"
    ):
        stand.put(3, "a")
