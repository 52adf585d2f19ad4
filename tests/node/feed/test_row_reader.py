"""Rows as Python values: queues, epochs, leftovers, what is reported, and when files may go."""

from __future__ import annotations

import json
import threading

import pyarrow as pa
import pytest

from tests.support.fake_nodes import until
from tfos_lab import messages as m
from tfos_lab.errors import FeedError
from tfos_lab.node.feed import object_rows
from tfos_lab.node.feed.data_feed import DataFeed
from tfos_lab.node.feed.exchanges import write_rows
from tfos_lab.node.feed.reader import FeedReader

PATIENCE_S = 60.0
TYPED = json.dumps({"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]})


class Node:
    """A node's reader that receives messages as from a driver and an agent."""

    def __init__(self, folder):
        self.folder = folder
        self.sent = []
        self.reader = FeedReader(2, self.sent.append)
        self._segments = 0

    def open_feed(self, feed=0, *, epochs=1, objects=True, **fields):
        schema = object_rows.OBJECTS_SCHEMA if objects else TYPED
        self.reader.handle(
            m.FeedOpen(feed=feed, epochs=epochs, remainder="exact", schema=schema, token="", objects=objects, **fields)
        )
        return self

    def segment(self, *batches, feed=0, shared=(), partition=0):
        """Commit record batches of objects, followed by leftover rows."""
        parts = [object_rows.encode(rows) for rows in (*batches, shared) if rows]
        return self.store(parts, sum(map(len, batches)), feed=feed, leftover=len(shared), partition=partition)

    def store(self, parts, rows, *, feed=0, leftover=0, partition=0, shapes=None):
        path = self.folder / f"{self._segments}.arrow"
        self._segments += 1
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, parts[0].schema) as file:
            for part in parts:
                file.write_batch(part)
        self.reader.handle(
            m.SegmentReady(
                feed=feed, path=str(path), rows=rows, partition=partition, leftover=leftover, shapes=shapes or {}
            )
        )
        return self

    def complete(self, rows, *, feed=0, leftovers=(0, 0)):
        self.reader.handle(m.FeedComplete(feed=feed, rows=rows, leftovers=leftovers))
        return self

    def end(self):
        self.reader.handle(m.FeedsEnded())
        return self

    def feed(self, queue="input", **options):
        return DataFeed(self.reader.rows(queue), **options)

    def sent_of(self, kind):
        return [message for message in list(self.sent) if isinstance(message, kind)]


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def batches(feed, size):
    got = []
    while not feed.should_stop():
        got.append(feed.next_batch(size))
    return got


def in_thread(function):
    results = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()
    return thread, results


def test_rows_are_read_in_order_across_batches_segments_epochs_and_feeds(node):
    node.open_feed(epochs=2).segment([1, 2], [3]).segment([4]).complete(4)
    node.open_feed(1).segment(["a"], feed=1).complete(1, feed=1).end()
    assert batches(node.feed(), 3) == [[1, 2, 3], [4, 1, 2], [3, 4, "a"]]


def test_each_node_reads_its_part_of_the_leftover_rows_in_every_epoch_even_if_files_are_gone(node):
    node.open_feed(epochs=2).segment([1], shared=["a", "b"], partition=1).segment([2], shared=["c"], partition=0)
    node.complete(4, leftovers=(0, 2)).end()
    assert batches(node.feed(), 9) == [[1, 2, "c", "a", 1, 2, "c", "a"]]


def test_a_segment_of_nothing_but_leftover_rows_is_read(node):
    node.open_feed().segment(shared=["a", "b"]).complete(1, leftovers=(1, 2)).end()
    assert batches(node.feed(), 9) == [["b"]]


def test_partitions_end_batches_when_not_training(node):
    node.open_feed().segment([1, 2], [3]).segment([4, 5]).complete(5).end()
    assert batches(node.feed(train_mode=False), 2) == [[1, 2], [3], [4, 5]]


def test_a_batch_waits_for_rows_and_ends_with_the_last_feed(node):
    node.open_feed().segment([1, 2])
    feed = node.feed()
    thread, results = in_thread(lambda: feed.next_batch(4))
    node.segment([3]).complete(3).open_feed(1).complete(0, feed=1)
    thread.join(0.2)
    assert thread.is_alive()
    node.end()
    thread.join(PATIENCE_S)
    assert results == [[1, 2, 3]]


def test_rows_in_a_batch_that_waits_for_more_are_reported(node):
    node.open_feed().segment([1, 2]).complete(2)
    thread, _ = in_thread(lambda: node.feed().next_batch(4))
    until(lambda: [told.epoch for told in node.sent_of(m.RowsTaken)][-1:] == [1])
    last = node.sent_of(m.RowsTaken)[-1]
    assert (last.rows, last.epoch, last.feeds) == (2, 1, {0: (1, 2)})
    node.end()
    thread.join(PATIENCE_S)


def test_files_may_go_once_their_rows_have_been_taken_for_the_last_time(node):
    node.open_feed(epochs=2).segment([1, 2]).segment([3]).complete(3).end()
    feed = node.feed()
    feed.next_batch(5)
    assert node.sent_of(m.SegmentRead) == []
    feed.next_batch(1)
    feed.should_stop()
    assert [message.path[-7:] for message in node.sent_of(m.SegmentRead)] == ["0.arrow", "1.arrow"]


def test_queues_are_read_apart_and_one_after_the_other(node):
    node.open_feed(0, queue="a").segment([1], feed=0).complete(1, feed=0)
    node.open_feed(1, queue="b").segment([2], feed=1).complete(1, feed=1).end()
    assert batches(node.feed("b"), 4) == [[2]]
    assert batches(node.feed("a"), 4) == [[1]]
    assert batches(node.feed("c"), 4) == []


def test_data_feeds_of_one_queue_share_its_rows(node):
    node.open_feed().segment([1, 2, 3]).complete(3).end()
    assert [node.feed().next_batch(1), node.feed().next_batch(5)] == [[1], [2, 3]]


def test_a_batch_ends_with_each_part_of_a_stream_which_then_counts_as_read(node):
    node.open_feed(stream=True).segment([1, 2, 3]).complete(3)
    feed = node.feed()
    assert [feed.next_batch(2), feed.next_batch(2)] == [[1, 2], [3]]
    assert node.sent_of(m.FeedRead) == []
    thread, results = in_thread(feed.should_stop)
    until(lambda: [message.feed for message in node.sent_of(m.FeedRead)] == [0])
    node.end()
    thread.join(PATIENCE_S)
    assert results == [True]


def test_a_feed_that_fails_is_raised_to_those_that_read_it(node):
    node.open_feed().segment([1])
    feed = node.feed()
    assert feed.next_batch(1) == [1]
    node.reader.handle(m.FeedAborted(feed=0, reason="the job failed"))
    with pytest.raises(FeedError, match="the job failed"):
        feed.next_batch(1)
    node.end()
    with pytest.raises(FeedError, match="the job failed"):
        feed.should_stop()


def test_typed_columns_are_rows_with_names(node):
    batch = pa.RecordBatch.from_pydict({"x": [7, 8]})
    node.open_feed(objects=False).store([batch], 2, shapes={"x": []}).complete(2).end()
    (rows,) = batches(node.feed(), 4)
    assert (rows, [row.x for row in rows]) == ([(7,), (8,)], [7, 8])


def test_a_dataset_of_objects_is_refused_with_the_driver_s_advice(node):
    node.open_feed(advice="map it to a tuple")
    with pytest.raises(FeedError, match="map it to a tuple"):
        node.reader.specs()


def test_the_kind_of_rows_is_asked_for_when_it_is_first_known_and_when_it_changes(node):
    node.open_feed().complete(0).end()
    assert node.reader.epochs == 1
    for _ in range(2):
        node.reader.rows("input")
    with pytest.raises(FeedError):
        node.reader.specs()
    assert [message.objects for message in node.sent_of(m.RowsWanted)] == [None, True, False]


def test_terminate_is_sent_to_the_driver_with_what_was_taken(node):
    node.open_feed().segment([1, 2])
    feed = node.feed()
    feed.next_batch(1)
    feed.terminate()
    assert [type(message) for message in node.sent[-2:]] == [m.RowsTaken, m.FeedStopped]
    assert feed.should_stop()


def test_results_without_an_inference_are_refused(node):
    node.open_feed().segment([1])
    with pytest.raises(FeedError, match="no rows of an inference"):
        node.feed().batch_results([1])


def test_rows_to_train_on_do_not_join_a_batch_of_rows_to_infer(node, tmp_path):
    node.reader.handle(m.InferenceOpen(schema=object_rows.OBJECTS_SCHEMA, token="", objects=True))
    path = tmp_path / "exchange.arrow"
    write_rows(path, object_rows.encode(["c", "d"]))
    node.reader.handle(m.ExchangeRows(exchange=0, path=str(path), rows=2, shapes={}, objects=True))
    feed = node.feed(train_mode=False)
    assert not feed.should_stop()
    node.open_feed().segment([7, 8]).complete(2)
    assert [feed.next_batch(4), feed.next_batch(4)] == [["c", "d"], [7, 8]]
    assert not node.sent_of(m.ExchangeResults)


def test_a_feed_that_comes_together_with_the_end_is_read(node, monkeypatch):
    node.reader.handle(m.InferenceOpen(schema=object_rows.OBJECTS_SCHEMA, token="", objects=True))
    source = node.reader.rows("input")

    def come_meanwhile(timeout_s):
        monkeypatch.undo()
        node.open_feed().segment([7, 8]).complete(2).end()

    monkeypatch.setattr(source._served, "take", come_meanwhile)
    assert batches(DataFeed(source, train_mode=False), 4) == [[7, 8]]
