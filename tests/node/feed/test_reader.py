"""Reading a feed: every row of the node once per epoch, in the agreed number of steps."""

from __future__ import annotations

import ctypes
import json
import queue
import threading

import numpy as np
import pyarrow as pa
import pytest

from tfos_lab import messages as m
from tfos_lab.errors import FeedError
from tfos_lab.node.feed.reader import FeedReader

PATIENCE_S = 60.0
SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]})


class Node:
    """A reader that receives messages as from a driver and an agent."""

    def __init__(self, folder):
        self.folder = folder
        self.sent = []
        self.reader = FeedReader(2, self.sent.append)
        self._segments = 0

    def open_feed(self, feed=0, *, epochs=1, remainder="pad", stream=False):
        feed_open = m.FeedOpen(feed=feed, epochs=epochs, remainder=remainder, schema=SCHEMA, token="", stream=stream)
        self.reader.handle(feed_open)
        return self

    def segment(self, numbers, *, feed=0, batches=1, shared=(), partition=0):
        """Commit rows, written in several record batches, followed by leftover rows."""
        path = self.folder / f"{self._segments}.arrow"
        self._segments += 1
        if numbers or shared:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, pa.schema({"x": pa.int64()})) as file:
                for part in (*np.array_split(np.array(numbers), batches), np.array(shared)):
                    if len(part):
                        file.write_batch(pa.RecordBatch.from_pydict({"x": pa.array(part, pa.int64())}))
        ready = m.SegmentReady(
            feed=feed,
            path=str(path) if numbers or shared else "",
            rows=len(numbers),
            partition=partition,
            leftover=len(shared),
            shapes={"x": []},
        )
        self.reader.handle(ready)
        return self

    def complete(self, rows, *, feed=0, leftovers=(0, 0)):
        self.reader.handle(m.FeedComplete(feed=feed, rows=rows, leftovers=leftovers))
        self.rows_fed = rows
        return self

    def plan(self, steps, *, feed=0, dataset_id=0, peers=(), batch_size=4):
        """Plan the steps with peers that have these numbers of rows, and the same batch size."""
        shares = [(rows, batch_size, 1) for rows in (self.rows_fed, *peers)]
        self.reader.handle(m.EpochPlan(feed=feed, dataset_id=dataset_id, steps=steps, shares=shares))
        return self

    def end(self):
        self.reader.handle(m.FeedsEnded())
        return self

    def open(self, batch_size=4, remainder=None, *, shuffle=False, seed=None):
        return self.reader.open(batch_size, remainder, shuffle=shuffle, seed=seed)

    def epoch(self, reading):
        """Return an epoch as ``[(numbers, real rows), …]``."""
        batches = []
        for item in self.reader.epoch(reading):
            if item is not None:
                numbers, rows = item.columns["x"].tolist(), item.rows
                assert len(numbers) < reading.batch_size if item.short else len(numbers) % reading.batch_size == 0
                for start in range(0, len(numbers), reading.batch_size):
                    batch = numbers[start : start + reading.batch_size]
                    batches.append((batch, min(len(batch), max(0, rows - start))))
        return batches

    def rows(self, reading):
        return [number for numbers, rows in self.epoch(reading) for number in numbers[:rows]]

    def sent_of(self, kind):
        return [message for message in self.sent if isinstance(message, kind)]


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def in_thread(function):
    """Run ``function`` on a thread; returns it and the list that will hold its result or error."""
    results = []

    def run():
        try:
            results.append(function())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


def test_rows_are_read_in_order_in_full_batches_across_segments(node):
    node.open_feed().segment([0, 1, 2], batches=2).segment([3, 4, 5, 6, 7]).complete(8).plan(2)
    assert node.epoch(node.open(4)) == [([0, 1, 2, 3], 4), ([4, 5, 6, 7], 4)]


def test_the_last_batch_is_as_short_as_it_is(node):
    node.open_feed(remainder="exact").segment([1, 2, 3, 4, 5]).complete(5).plan(2)
    assert node.epoch(node.open(4)) == [([1, 2, 3, 4], 4), ([5], 1)]


def test_a_node_leaves_a_row_for_each_step_that_others_need(node):
    node.open_feed(remainder="exact").segment([1, 2, 3, 4]).complete(4).plan(2, peers=[5])
    assert node.epoch(node.open(4)) == [([1, 2, 3], 3), ([4], 1)]


def test_weights_make_the_mean_over_nodes_the_mean_over_rows(node):
    node.open_feed(remainder="exact").segment([1, 2, 3, 4]).complete(4).plan(2, peers=[5])
    pieces = [piece for piece in node.reader.epoch(node.open(4)) if piece is not None]
    assert [piece.factor for piece in pieces] == [2 * 3 / 7, 1.0]


def test_where_a_step_has_fewer_rows_than_nodes_a_copy_fills_up(node):
    node.open_feed(remainder="exact").segment([7]).complete(1).plan(2, peers=[2], batch_size=1)
    assert node.epoch(node.open(1)) == [([7], 1), ([7], 0)]


def test_a_batch_is_filled_up_with_copies_that_do_not_count_if_that_is_wanted(node):
    node.open_feed(remainder="pad").segment([1, 2, 3, 4, 5]).complete(5).plan(2)
    assert node.epoch(node.open(4)) == [([1, 2, 3, 4], 4), ([5, 5, 5, 5], 1)]


def test_steps_that_this_node_has_no_rows_for_are_filled_up_too(node):
    node.open_feed().segment([1]).complete(1).plan(3, peers=[5], batch_size=2)
    assert node.epoch(node.open(2)) == [([1, 1], 1), ([1, 1], 0), ([1, 1], 0)]


def test_a_node_without_any_rows_keeps_step(node):
    node.open_feed().segment([]).complete(0).plan(2, peers=[5], batch_size=4)
    assert node.epoch(node.open(2)) == [([0, 0], 0), ([0, 0], 0)]


def test_what_is_written_over_rows_in_one_epoch_is_not_read_in_the_next(node):
    """As TensorFlow does, which puts results of an operation where its input was."""
    node.open_feed(epochs=2).segment([1, 2], shared=[3]).complete(3, leftovers=(0, 1)).plan(1)
    reading = node.open(4)
    for _ in range(2):
        (piece,) = (piece for piece in node.reader.epoch(reading) if piece is not None)
        assert piece.columns["x"][:3].tolist() == [1, 2, 3]
        ctypes.memset(piece.columns["x"].ctypes.data, 0xFF, piece.columns["x"].nbytes)
    node.open_feed(1, epochs=2).segment(list(range(8)), feed=1).complete(8, feed=1).plan(2, feed=1)
    for _ in range(2):
        pieces = [piece.columns["x"] for piece in node.reader.epoch(reading) if piece is not None]
        assert [number for numbers in pieces for number in numbers.tolist()] == list(range(8))
        for numbers in pieces:
            ctypes.memset(numbers.ctypes.data, 0xFF, numbers.nbytes)


def test_leftover_rows_are_read_by_one_node(node):
    node.open_feed(epochs=2, remainder="exact")
    node.segment([1, 2], shared=[91, 92], partition=1).segment([], shared=[90], partition=0)
    node.complete(4, leftovers=(1, 3)).plan(1)
    reading = node.open(4)
    assert node.rows(reading) == node.rows(reading) == [1, 2, 91, 92]


def test_leftover_rows_are_shuffled_with_the_others(node):
    node.open_feed(remainder="exact").segment([1, 2], shared=[91, 92], partition=1).segment([], shared=[90])
    node.complete(3, leftovers=(0, 1)).plan(1)
    assert sorted(node.rows(node.open(4, shuffle=True))) == [1, 2, 90]


def test_drop_stops_at_the_agreed_step(node):
    node.open_feed(remainder="drop").segment(list(range(10))).complete(10).plan(2)
    assert node.epoch(node.open(4)) == [([0, 1, 2, 3], 4), ([4, 5, 6, 7], 4)]


def test_a_dataset_s_own_remainder_wins(node):
    node.open_feed(remainder="pad").segment(list(range(6))).complete(6).plan(1)
    assert node.epoch(node.open(4, "drop")) == [([0, 1, 2, 3], 4)]


def test_an_empty_feed_has_empty_epochs(node):
    node.open_feed(epochs=2).complete(0).plan(0)
    reading = node.open(4)
    assert node.epoch(reading) == []
    assert node.epoch(reading) == []


def test_an_epoch_can_be_read_again(node):
    node.open_feed(epochs=2).segment([1, 2, 3]).complete(3).plan(1)
    reading = node.open(4)
    assert node.rows(reading) == node.rows(reading) == [1, 2, 3]


def test_full_batches_are_yielded_before_the_feed_is_complete(node):
    node.open_feed().segment([0, 1, 2, 3, 4])
    epoch = node.reader.epoch(node.open(4))
    piece = next(epoch)
    assert (piece.columns["x"].tolist(), piece.rows) == ([0, 1, 2, 3], 4)
    thread, rest = in_thread(lambda: [piece.columns["x"].tolist() for piece in epoch if piece is not None])
    node.segment([5]).complete(6).plan(2)
    thread.join(PATIENCE_S)
    assert rest == [[[4, 5, 5, 5]]]


def test_what_may_be_the_last_batch_waits_until_that_is_known(node):
    node.open_feed(remainder="exact").segment([0, 1, 2, 3])
    epoch = node.reader.epoch(node.open(4))
    assert next(epoch) is None
    node.segment([4])
    assert next(epoch).columns["x"].tolist() == [0, 1, 2, 3]
    assert next(epoch) is None
    node.complete(5).plan(2)
    assert [piece.columns["x"].tolist() for piece in epoch if piece is not None] == [[4]]


def test_a_file_whose_last_batch_waits_may_go_all_the_same(node):
    node.open_feed().segment([0, 1, 2, 3])
    epoch = node.reader.epoch(node.open(4))
    assert next(epoch) is None
    assert len(node.sent_of(m.SegmentRead)) == 1


def test_batches_that_differ_in_size_wait_until_the_rows_of_all_nodes_are_known(node):
    node.open_feed(remainder="exact").segment([0, 1, 2, 3, 4, 5])
    reading = node.open(2)
    node.reader.handle(m.PlanLater(feed=0, dataset_id=0, alike=False))
    epoch = node.reader.epoch(reading)
    assert next(epoch) is None
    node.complete(6)
    node.reader.handle(m.EpochPlan(feed=0, dataset_id=0, steps=6, shares=[(6, 2, 1), (6, 1, 1)]))
    pieces = [piece for piece in epoch if piece is not None]
    assert [piece.rows for piece in pieces] == [1] * 6
    assert {piece.factor for piece in pieces} == {1.0}


def test_batches_that_were_read_too_early_and_do_not_fit_together_are_refused(node):
    node.open_feed(remainder="exact").segment([0, 1, 2, 3, 4, 5])
    epoch = node.reader.epoch(node.open(2))
    assert next(epoch).rows == 4
    node.complete(6)
    node.reader.handle(m.EpochPlan(feed=0, dataset_id=0, steps=6, shares=[(6, 2, 1), (6, 1, 1)]))
    with pytest.raises(FeedError, match=r"of 1, 2 rows\) do not fit together: give all nodes the same batch_size"):
        list(epoch)


def test_an_epoch_that_was_left_after_its_last_step_has_been_read(node):
    node.open_feed(0, epochs=2).segment([0, 1, 2, 3], feed=0).complete(4, feed=0).plan(1, feed=0)
    reading = node.open(4)
    left = node.reader.epoch(reading)
    assert next(left).rows == 4
    left.close()
    again = node.reader.epoch(reading)
    assert [piece.rows for piece in again if piece is not None] == [4]
    node.open_feed(1).segment([4, 5], feed=1).complete(2, feed=1).plan(1, feed=1)
    assert node.rows(reading) == [4, 5]


def test_an_epoch_that_was_left_before_its_last_step_begins_anew(node):
    node.open_feed().segment([0, 1, 2, 3, 4])
    reading = node.open(4)
    left = node.reader.epoch(reading)
    assert next(left).rows == 4
    left.close()
    anew = node.reader.epoch(reading)
    assert next(anew).columns["x"].tolist() == [0, 1, 2, 3]
    node.segment([5]).complete(6).plan(2)
    assert [piece.columns["x"].tolist() for piece in anew if piece is not None] == [[4, 5, 5, 5]]


@pytest.mark.parametrize("is_planned", [True, False])
def test_whoever_looks_at_the_first_batches_only_has_not_read_the_epoch(node, is_planned):
    node.open_feed(0).segment(list(range(20)), feed=0)
    reading = node.open(4)
    if is_planned:
        node.complete(20, feed=0).plan(5, feed=0)
    look = node.reader.epoch(reading)
    assert next(look).rows == 16
    look.close()
    if not is_planned:
        node.complete(20, feed=0).plan(5, feed=0)
    node.open_feed(1).segment([77], feed=1).complete(1, feed=1).plan(1, feed=1)
    assert node.rows(reading) == list(range(20))
    assert node.rows(reading) == [77]


def test_a_plan_that_is_received_twice_counts_no_epoch_twice(node):
    node.open_feed(0, epochs=2).segment([1, 2], feed=0).complete(2, feed=0).plan(1, feed=0)
    node.open_feed(1).segment([3], feed=1).complete(1, feed=1).plan(1, feed=1)
    reading = node.open(2)
    assert node.rows(reading) == [1, 2]
    node.plan(1, feed=0)
    assert [node.rows(reading), node.rows(reading)] == [[1, 2], [3]]


def test_a_micro_batch_that_was_left_after_its_last_step_counts_once_more_is_asked_for(node):
    node.open_feed(0, stream=True).segment([0, 1, 2, 3], feed=0).complete(4, feed=0).plan(1, feed=0)
    reading = node.open(4)
    left = node.reader.epoch(reading)
    assert next(left).rows == 4
    left.close()
    assert node.sent_of(m.FeedRead) == []
    anew = node.reader.epoch(reading)
    assert next(anew) is None
    assert [message.feed for message in node.sent_of(m.FeedRead)] == [0]
    node.open_feed(1, stream=True).segment([4], feed=1).complete(1, feed=1).plan(1, feed=1).end()
    assert [piece.columns["x"].tolist() for piece in anew if piece is not None] == [[4, 4, 4, 4]]
    assert [message.feed for message in node.sent_of(m.FeedRead)] == [0, 1]


def test_after_all_its_epochs_a_feed_gives_way_to_the_next(node):
    node.open_feed(0, epochs=1).segment([1], feed=0).complete(1, feed=0).plan(1, feed=0)
    node.open_feed(1, epochs=1).segment([2], feed=1).complete(1, feed=1).plan(1, feed=1)
    reading = node.open(1)
    assert node.rows(reading) == [1]
    assert node.rows(reading) == [2]


def test_the_last_feed_can_be_read_on_and_on_once_no_other_will_come(node):
    node.open_feed().segment([1]).complete(1).plan(1).end()
    reading = node.open(1)
    assert [node.rows(reading) for _ in range(3)] == [[1], [1], [1]]


def test_without_any_feed_the_error_says_how_to_feed(node):
    node.end()
    with pytest.raises(FeedError, match="fed no rows"):
        node.epoch(node.open(1))


def test_epochs_are_what_train_was_asked_for_and_are_waited_for(node):
    thread, results = in_thread(lambda: node.reader.epochs)
    node.open_feed(epochs=7)
    thread.join(PATIENCE_S)
    assert results == [7]


def test_an_aborted_feed_raises_its_reason_in_whoever_reads(node):
    node.open_feed().segment([1, 2])
    epoch = node.reader.epoch(node.open(2))
    next(epoch)
    thread, results = in_thread(lambda: next(piece for piece in epoch if piece is not None))
    node.reader.handle(m.FeedAborted(feed=0, reason="division by zero"))
    thread.join(PATIENCE_S)
    (error,) = results
    assert isinstance(error, FeedError)
    assert str(error) == "division by zero"


def test_after_an_aborted_feed_the_next_one_is_read(node):
    node.open_feed(0).reader.handle(m.FeedAborted(feed=0, reason="why"))
    node.open_feed(1).segment([9], feed=1).complete(1, feed=1).plan(1, feed=1)
    assert node.rows(node.open(1)) == [9]


def test_a_shuffled_epoch_has_all_rows_in_another_order_each_time(node):
    numbers = list(range(100))
    node.open_feed(epochs=2).segment(numbers[:30], batches=3).segment(numbers[30:]).complete(100).plan(10)
    reading = node.open(10, shuffle=True)
    first, second = node.rows(reading), node.rows(reading)
    assert sorted(first) == sorted(second) == numbers
    assert numbers != first != second != numbers


def test_a_seed_makes_the_order_repeatable(node):
    orders = []
    for _ in range(2):
        node.reader = FeedReader(2, node.sent.append)
        node.open_feed().segment(list(range(50))).complete(50).plan(5)
        orders.append(node.rows(node.open(10, shuffle=True, seed=1)))
    assert orders[0] == orders[1]


def test_datasets_and_rows_taken_are_reported_to_the_driver(node):
    node.open_feed(epochs=2).segment([1, 2, 3, 4]).complete(4).plan(2, batch_size=2).plan(1, dataset_id=1)
    first, second = node.open(2), node.open(4, "drop")
    assert node.sent_of(m.DatasetOpened) == [
        m.DatasetOpened(rank=2, dataset_id=0, batch_size=2, remainder=None),
        m.DatasetOpened(rank=2, dataset_id=1, batch_size=4, remainder="drop"),
    ]
    node.rows(first)
    assert node.sent_of(m.RowsTaken)[-1] == m.RowsTaken(rank=2, rows=4, epoch=1, feeds={0: (1, 4)})
    node.rows(second)
    assert node.sent_of(m.RowsTaken)[-1].epoch == 2


def test_a_node_that_asks_for_rows_reports_it_once_even_before_there_are_any():
    sent = queue.SimpleQueue()
    reader = FeedReader(2, sent.put)
    thread, _ = in_thread(reader.specs)
    assert sent.get(timeout=PATIENCE_S) == m.RowsWanted(rank=2, objects=False)
    reader.handle(m.FeedsEnded())
    thread.join(PATIENCE_S)
    with pytest.raises(FeedError, match="fed no rows"):
        reader.specs()
    assert sent.empty()


def test_columns_are_known_when_the_first_rows_have_come(node):
    thread, results = in_thread(node.reader.specs)
    node.open_feed().segment([1])
    thread.join(PATIENCE_S)
    ((spec,),) = results
    assert (spec.name, spec.tf_dtype, spec.shape) == ("x", "int64", ())


def test_what_was_unknown_to_others_stays_unknown_here(node):
    node.open_feed().segment([1])
    reading = node.open(1)
    node.reader.handle(m.PlanLater(feed=0, dataset_id=0))
    node.complete(1).plan(1)
    assert node.reader.known_schedule(reading, PATIENCE_S) is None
    assert node.reader.known_schedule(node.open(1)) is None


def test_steps_are_known_once_they_are_agreed_on(node):
    node.open_feed().segment([1])
    reading = node.open(1)
    assert node.reader.known_schedule(reading) is None
    node.complete(1).plan(1)
    assert node.reader.known_schedule(reading).steps == 1


@pytest.mark.parametrize(("numbers", "steps"), [([1, 2, 3], "more"), ([], "0")])
def test_a_dataset_that_promised_its_steps_is_not_read_for_a_feed_of_another_length(node, numbers, steps):
    node.open_feed().segment([1, 2]).complete(2).plan(2)
    reading = node.open(1)
    assert node.reader.known_schedule(reading).steps == 2
    assert len(node.epoch(reading)) == 2
    node.open_feed(1).segment(numbers, feed=1).complete(len(numbers), feed=1).plan(len(numbers), feed=1)
    with pytest.raises(FeedError, match=f"had 2 steps, and now one has {steps}: call ctx.dataset anew"):
        node.epoch(reading)
