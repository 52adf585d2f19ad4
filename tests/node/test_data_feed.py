"""Rows as Python values, and answers to them: queues, epochs, partitions, reports, and what belongs to whom."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pyarrow as pa
import pytest

from tests.node.feeding import FedNode, in_thread, numbers
from tests.support.eventually import PATIENCE_S, eventually
from tfos_lab.core import messages as m
from tfos_lab.errors import ConfigError, FeedError


@pytest.fixture
def node(tmp_path):
    return FedNode(tmp_path)


# ---- rows -----------------------------------------------------------------------------------------------------------


def test_rows_are_read_in_order_across_batches_segments_epochs_and_feeds(node):
    node.open_feed(epochs=2).segment([1, 2], [3]).segment([4]).complete(4)
    node.open_feed(1).segment([5], feed=1).complete(1, feed=1).end()
    assert node.batches(3) == [[1, 2, 3], [4, 1, 2], [3, 4, 5]]


def test_each_node_reads_its_part_of_the_leftover_rows_in_every_epoch_even_if_files_are_gone(node):
    node.open_feed(epochs=2).segment([1], shared=[91, 92], partition=1).segment([2], shared=[90], partition=0)
    node.complete(4, leftovers=(0, 2)).end()
    assert node.batches(9) == [[1, 2, 90, 91, 1, 2, 90, 91]]


def test_partitions_end_batches_when_not_training_and_only_then(node):
    node.open_feed(epochs=1).segment([1, 2], [3]).segment([4, 5]).complete(5).end()
    assert node.batches(2, train_mode=False) == [[1, 2], [3], [4, 5]]


def test_the_end_is_an_empty_batch(node):
    node.open_feed().segment([1]).complete(1).end()
    feed = node.ctx.data_feed()
    assert [numbers(feed.next_batch(4)), feed.next_batch(4), feed.should_stop()] == [[1], [], True]


def test_a_batch_waits_for_rows_and_ends_with_the_last_feed_and_what_it_has_is_reported_meanwhile(node):
    node.open_feed().segment([1, 2])
    thread, results = in_thread(lambda: numbers(node.ctx.data_feed().next_batch(4)))
    node.segment([3]).complete(3).open_feed(1).complete(0, feed=1)
    eventually(lambda: [(told.rows, told.epoch) for told in node.sent_of(m.RowsTaken)][-1:] == [(3, 1)])
    assert results == []
    node.end()
    thread.join(PATIENCE_S)
    assert results == [[1, 2, 3]]


def test_files_may_go_once_their_rows_have_been_taken_for_the_last_time(node):
    node.open_feed(epochs=2).segment([1, 2]).segment([3]).complete(3).end()
    feed = node.ctx.data_feed()
    feed.next_batch(5)
    assert node.sent_of(m.SegmentRead) == []
    feed.next_batch(1)
    feed.should_stop()
    assert [message.path[-7:] for message in node.sent_of(m.SegmentRead)] == ["0.arrow", "1.arrow"]


def test_queues_are_read_apart_and_one_after_the_other(node):
    node.open_feed(0, queue="a").segment([1], feed=0).complete(1, feed=0)
    node.open_feed(1, queue="b").segment([2], feed=1).complete(1, feed=1).end()
    assert [node.batches(4, queue=queue) for queue in "bac"] == [[[2]], [[1]], []]


def test_data_feeds_of_one_queue_share_its_rows(node):
    node.open_feed().segment([1, 2, 3]).complete(3).end()
    first, second = node.ctx.data_feed(), node.ctx.data_feed()
    assert [numbers(first.next_batch(1)), numbers(second.next_batch(5))] == [[1], [2, 3]]


def test_a_batch_ends_with_each_part_of_a_stream_which_then_counts_as_read(node):
    node.open_feed(stream=True).segment([1, 2, 3]).complete(3)
    feed = node.ctx.data_feed()
    assert [numbers(feed.next_batch(2)), numbers(feed.next_batch(2))] == [[1, 2], [3]]
    assert node.sent_of(m.FeedRead) == []
    thread, results = in_thread(feed.should_stop)
    eventually(lambda: [message.feed for message in node.sent_of(m.FeedRead)] == [0])
    node.end()
    thread.join(PATIENCE_S)
    assert results == [True]


def test_a_feed_that_fails_is_raised_to_those_that_read_it(node):
    node.open_feed().segment([1])
    feed = node.ctx.data_feed()
    assert numbers(feed.next_batch(1)) == [1]
    node.reader.handle(m.FeedAborted(feed=0, reason="the job failed"))
    node.end()
    for ask in (lambda: feed.next_batch(1), feed.should_stop):
        with pytest.raises(FeedError, match="the job failed"):
            ask()


def test_columns_go_to_tensors_in_the_order_of_their_sorted_names(node):
    node.open_feed().segment([7, 8]).complete(2).end()
    feed = node.ctx.data_feed(input_mapping={"x": "image"})
    assert [feed.next_batch(5), feed.next_batch(5)] == [{"image": [7, 8]}, {"image": []}]


def test_a_mapping_with_more_columns_than_the_rows_have_is_refused(node):
    node.open_feed().segment([7])
    with pytest.raises(FeedError, match="names 2 columns, but a row has 1 value"):
        node.ctx.data_feed(input_mapping={"a": "a", "b": "b"}).next_batch(1)


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "2"])
def test_a_batch_needs_a_size(node, size):
    node.open_feed().segment([1])
    with pytest.raises(ConfigError, match="a whole number of rows"):
        node.ctx.data_feed().next_batch(size)


def test_the_kind_of_rows_is_asked_for_when_it_is_first_known_and_when_it_changes(node):
    node.open_feed(objects=True).complete(0).end()
    assert node.ctx.epochs == 1
    for _ in range(2):
        node.ctx.data_feed()
    with pytest.raises(FeedError):
        node.reader.specs()
    assert [message.objects for message in node.sent_of(m.RowsWanted)] == [None, True, False]


def test_terminate_is_sent_to_the_driver_with_what_was_taken_and_nothing_is_left(node):
    node.open_feed().segment([1, 2])
    feed = node.ctx.data_feed()
    feed.next_batch(1)
    feed.terminate()
    assert [type(message) for message in node.sent[-2:]] == [m.RowsTaken, m.FeedStopped]
    assert (feed.should_stop(), feed.next_batch(2)) == (True, [])


def test_results_without_an_inference_are_refused(node):
    node.open_feed().segment([1])
    with pytest.raises(FeedError, match="no rows of an inference"):
        node.ctx.data_feed().batch_results([1])


# ---- answers --------------------------------------------------------------------------------------------------------

OBJECTS = '{"type":"struct","fields":[{"name":"object","type":"binary","nullable":false,"metadata":{}}]}'


class Answering(FedNode):
    """A node that tasks ask for answers: each one's rows are an exchange."""

    def __init__(self, folder):
        super().__init__(folder)
        self.reader.handle(m.InferenceOpen(schema=OBJECTS, token="", objects=True))
        self.feed = self.ctx.data_feed(train_mode=False)
        self.files = 0

    def ask(self, number, rows, *, ended=False):
        path = self.folder / f"exchange-{self.files}"
        self.files += 1
        schema = pa.schema([pa.field("object", pa.binary(), nullable=False)])
        batch = pa.record_batch([pa.array([pickle.dumps(row) for row in rows], pa.binary())], schema=schema)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as file:
            file.write_batch(batch)
        self.reader.handle(m.ExchangeRows(exchange=number, path=str(path), rows=len(rows), shapes={}, objects=True))
        if ended:
            self.reader.handle(m.ExchangeEnded(exchange=number))

    def answer_all(self, size):
        """Answer until there is nothing more, and return the batches."""
        self.end()
        found = []
        while not self.feed.should_stop():
            found.append(self.feed.next_batch(size))
            self.feed.batch_results(found[-1])
        return found

    def results(self):
        """Return what was answered, by exchange."""
        self.reader.flush()
        found = {}
        for message in self.sent_of(m.ExchangeResults):
            rows = [
                pickle.loads(value)
                for batch in pa.ipc.open_stream(message.data)
                for value in batch.column(0).to_pylist()
            ]
            assert len(rows) == message.rows
            found.setdefault(message.exchange, []).extend(rows)
        return found


@pytest.fixture
def answering(tmp_path):
    return Answering(tmp_path)


def test_a_batch_ends_with_its_task_and_goes_on_over_its_files(answering):
    answering.ask(1, ["a", "b", "c"])
    answering.ask(2, [1, 2, 3, 4, 5], ended=True)
    answering.ask(1, ["d", "e"], ended=True)
    found = answering.answer_all(3)
    assert sorted(map(str, found)) == sorted(map(str, [["a", "b", "c"], [1, 2, 3], [4, 5], ["d", "e"]]))
    assert answering.results() == {1: ["a", "b", "c", "d", "e"], 2: [1, 2, 3, 4, 5]}
    assert len(answering.sent_of(m.ExchangeTaken)) == 3
    assert not list(answering.folder.glob("exchange-*"))


def test_a_batch_that_waits_lets_other_tasks_go_on(answering):
    answering.ask(1, ["a", "b"])
    answering.ask(2, [1], ended=True)
    for expected in (["a", "b"], [1]):
        batch = answering.feed.next_batch(3)
        assert batch == expected
        answering.feed.batch_results(batch)
    answering.ask(1, ["c"], ended=True)
    assert answering.answer_all(3) == [["c"]]


def test_results_belong_to_the_oldest_rows_in_whatever_portions_they_come(answering):
    answering.ask(1, ["a", "b", "c"], ended=True)
    answering.ask(2, [1, 2], ended=True)
    first, second = answering.feed.next_batch(5), answering.feed.next_batch(5)
    for answer in [*first, *second]:
        answering.feed.batch_results([answer])
    assert answering.results() == {1: ["a", "b", "c"], 2: [1, 2]}


@pytest.mark.parametrize("given", [0, 1, 3])
def test_a_batch_that_is_answered_in_part_is_told_when_the_next_is_asked_for(answering, given):
    answering.ask(1, [1, 2, 3, 4, 5, 6])
    batch = answering.feed.next_batch(4)
    answering.feed.batch_results(batch[:given])
    for ask in (answering.feed.should_stop, lambda: answering.feed.next_batch(4)):
        with pytest.raises(FeedError, match=f"batch_results got {given} results? for a batch of 4 rows"):
            ask()


def test_another_thread_may_answer_while_the_next_batch_is_taken(answering):
    answering.ask(1, [1, 2, 3, 4, 5, 6], ended=True)
    batch = answering.feed.next_batch(4)
    thread = threading.Thread(target=answering.feed.batch_results, args=(batch[:2],))
    thread.start()
    thread.join()
    rest = answering.feed.next_batch(4)
    answering.feed.batch_results([*batch[2:], *rest])
    assert answering.results() == {1: [1, 2, 3, 4, 5, 6]}


def test_more_results_than_rows_are_refused(answering):
    answering.ask(1, [1, 2], ended=True)
    batch = answering.feed.next_batch(1)
    with pytest.raises(FeedError, match=r"batch_results got more results \(2\) than .* wait for one \(1\)"):
        answering.feed.batch_results([*batch, 2])
    assert answering.results() == {}


def test_rows_and_results_of_tasks_that_are_gone_are_dropped(answering):
    answering.ask(1, [1, 2], ended=True)
    answering.ask(2, [3], ended=True)
    batch = answering.feed.next_batch(2)
    answering.reader.handle(m.ExchangeDropped(exchange=1))
    answering.ask(1, [4])
    answering.feed.batch_results(batch)
    assert answering.answer_all(2) == [[3]]
    assert answering.results() == {2: [3]}
    assert not list(answering.folder.glob("exchange-*"))


def test_rows_to_train_on_do_not_join_a_batch_of_rows_to_infer(answering):
    answering.ask(0, ["c", "d"])
    assert not answering.feed.should_stop()
    answering.open_feed().segment([7, 8]).complete(2)
    assert answering.feed.next_batch(4) == ["c", "d"]
    assert numbers(answering.feed.next_batch(4)) == [7, 8]
    assert not answering.sent_of(m.ExchangeResults)


@pytest.mark.parametrize(
    ("values", "kinds", "shown"),
    [
        ([("r", 0), ("s", 1)], "numbers and text", "('r', 0)"),
        ([[True, 2], [False, 3]], "numbers and true and false", "[True, 2]"),
        (["a", b"b"], "bytes and text", "['a', b'b']"),
        ([np.float32(1), np.str_("x")], "numbers and text", "[np.float32(1.0), np.str_('x')]"),
    ],
    ids=["a tuple per row", "bool among numbers", "bytes and text", "NumPy's scalars"],
)
def test_results_whose_types_would_be_lost_are_refused_with_what_keeps_them(node, values, kinds, shown):
    with pytest.raises(FeedError) as error:
        node.ctx.put_results({"both": values})
    assert str(error.value).startswith(
        f"put_results: 'both' mixes {kinds} ({shown}), and a column of Spark holds values of one type; give each type "
        "a column of its own, as in ctx.put_results({"
    )
