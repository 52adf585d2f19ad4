"""Batches that `ctx.data_feed` cuts from chunks of rows."""

from collections import deque

import pytest

from tfos_lab.errors import ConfigError, FeedError
from tfos_lab.node.feed.data_feed import Buffer, Chunk, DataFeed


class Rows:
    """Gives chunks; takes results."""

    def __init__(self, *chunks):
        self.chunks = deque(chunk if isinstance(chunk, Chunk) else Chunk(chunk) for chunk in chunks)
        self.buffer = Buffer()
        self.taken = 0
        self.results = []
        self.stopped = False

    def take(self):
        return self.chunks.popleft() if self.chunks else None

    def count(self, rows):
        self.taken += rows

    def put(self, results):
        self.results += results

    def check_answered(self):
        pass

    def stop(self):
        self.stopped = True


def batches(feed, size):
    got = []
    while not feed.should_stop():
        got.append(feed.next_batch(size))
    return got


def test_batches_go_on_beyond_chunks_and_the_last_may_be_short():
    feed = DataFeed(Rows([1, 2, 3], [4], [], [5, 6, 7]))
    assert batches(feed, 2) == [[1, 2], [3, 4], [5, 6], [7]]


def test_the_end_is_an_empty_batch():
    feed = DataFeed(Rows([1]))
    assert [feed.next_batch(4), feed.next_batch(4), feed.should_stop()] == [[1], [], True]


def test_partitions_end_batches_when_not_training():
    feed = DataFeed(Rows(Chunk([1, 2, 3], ends_partition=True), Chunk([4, 5])), train_mode=False)
    assert batches(feed, 2) == [[1, 2], [3], [4, 5]]


def test_partitions_do_not_end_batches_in_training():
    feed = DataFeed(Rows(Chunk([1, 2, 3], ends_partition=True), Chunk([4, 5])))
    assert batches(feed, 2) == [[1, 2], [3, 4], [5]]


def test_the_end_of_a_partition_may_be_said_later():
    ended = Chunk([], ends_partition=True)
    feed = DataFeed(Rows([1, 2, 3], ended, ended, [4], [5, 6], ended), train_mode=False)
    assert batches(feed, 2) == [[1, 2], [3], [4, 5], [6]]


def test_some_chunks_end_batches_in_training_too():
    feed = DataFeed(Rows(Chunk([1, 2, 3], ends_batch=True), Chunk([4, 5])))
    assert batches(feed, 2) == [[1, 2], [3], [4, 5]]


def test_rows_are_counted_when_they_enter_a_batch():
    source = Rows([1, 2, 3])
    feed = DataFeed(source)
    feed.should_stop()
    assert source.taken == 0
    feed.next_batch(2)
    assert source.taken == 2


def test_columns_go_to_tensors_in_the_order_of_their_sorted_names():
    feed = DataFeed(Rows([("b0", "l0"), ("b1", "l1")]), input_mapping={"label": "y", "image": "x"})
    assert feed.next_batch(5) == {"x": ["b0", "b1"], "y": ["l0", "l1"]}
    assert feed.next_batch(5) == {"x": [], "y": []}


def test_a_mapping_with_more_columns_than_the_rows_have_is_refused():
    feed = DataFeed(Rows([(1,)]), input_mapping={"a": "a", "b": "b"})
    with pytest.raises(FeedError, match="names 2 columns, but a row has 1 values"):
        feed.next_batch(1)


def test_nothing_is_left_after_terminate():
    source = Rows([1, 2, 3], [4])
    feed = DataFeed(source)
    feed.next_batch(1)
    feed.terminate()
    assert source.stopped
    assert feed.should_stop()
    assert feed.next_batch(2) == []


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "2"])
def test_a_batch_needs_a_size(size):
    with pytest.raises(ConfigError, match="a whole number of rows"):
        DataFeed(Rows([1])).next_batch(size)


def test_results_are_passed_on():
    source = Rows([1, 2])
    DataFeed(source).batch_results(value for value in "ab")
    assert source.results == ["a", "b"]


def test_data_feeds_of_one_source_share_what_has_come():
    source = Rows([1, 2, 3, 4])
    first, second = DataFeed(source), DataFeed(source)
    assert [first.next_batch(1), second.next_batch(2), first.next_batch(5)] == [[1], [2, 3], [4]]
