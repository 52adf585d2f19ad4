"""``_read_data``: every row in each pass, the last ones included, however often and how far one reads."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tfos_lab.errors import ConfigError, FeedError
from tfos_lab.ml.text_reader import ReadData, RowCache


class Feed:
    """So many rows, which can be taken once."""

    def __init__(self, rows):
        self.rows = list(range(rows))
        self.ended = False

    def next_batch(self, batch_size):
        batch, self.rows = self.rows[:batch_size], self.rows[batch_size:]
        return batch

    def terminate(self):
        self.ended = True


@pytest.fixture
def read():
    """A function that makes a `ReadData` of so many rows, with its feed and cache."""
    caches = []

    def make(rows, **context):
        feed = Feed(rows)
        caches.append(RowCache(feed))
        return ReadData(caches[-1], SimpleNamespace(**context)), feed, caches[-1]

    yield make
    for cache in caches:
        cache.close()


@pytest.mark.parametrize("size", [1, 10, 64, 150, 1000])
def test_each_pass_has_all_rows_in_the_same_order(read, size):
    read_data, _, _ = read(150)
    for _ in range(3):
        batches = list(read_data(max_records=size))
        assert [row for batch in batches for row in batch] == list(range(150))
        assert [len(batch) for batch in batches[:-1]] == [size] * (len(batches) - 1)
        assert 1 <= len(batches[-1]) <= size


def test_a_pass_that_ends_early_costs_the_next_one_no_row(read):
    read_data, _, _ = read(200)
    assert next(read_data(max_records=7)) == list(range(7))
    assert next(read_data(100)) == list(range(100))
    assert list(read_data) == list(range(200))


def test_two_passes_at_once_do_not_disturb_one_another(read):
    read_data, _, _ = read(300)
    assert [(one, other) for one, other in zip(read_data, read_data, strict=True)] == [(n, n) for n in range(300)]


def test_no_rows_are_no_batches(read):
    read_data, _, _ = read(0)
    assert list(read_data()) == []


def test_the_feed_ends_early_if_rows_are_left(read):
    read_data, feed, cache = read(200)
    next(read_data())
    cache.stop()
    assert feed.ended
    assert len(list(read_data)) == 64


def test_a_feed_that_was_read_is_left_alone(read):
    read_data, feed, cache = read(10)
    list(read_data)
    cache.stop()
    assert not feed.ended


@pytest.mark.parametrize("size", [0, -1, 1.5, "8", True, None])
def test_a_batch_has_a_row_at_least(read, size):
    read_data, _, _ = read(10)
    with pytest.raises(ConfigError, match=r"_read_data\(max_records=.*\): a whole number from 1 on is needed"):
        read_data(max_records=size)


def test_the_parameters_that_kafka_needed_are_accepted(read):
    read_data, _, _ = read(10)
    assert len(list(read_data(max_records=5, consume_threads=2, print_consume_time=True))) == 2


def test_a_full_disk_is_told_in_a_sentence(read):
    read_data, _, cache = read(10)

    class Full:
        def seek(self, position):
            pass

        def write(self, data):
            raise OSError(28, "No space left on device")

        def close(self):
            pass

    cache._file.close()
    cache._file = Full()
    with pytest.raises(FeedError, match=r"cannot be kept in .* for further passes: No space left on device; make room"):
        list(read_data)


def test_metrics_are_reported_by_the_nodes_own_context(read):
    said = []
    context = {"report": lambda step, **more: said.append((step, more)), "callbacks": lambda: ["a callback"]}
    read_data, _, _ = read(1, **context)
    read_data.report(3, loss=0.5)
    assert said == [(3, {"total_steps": None, "loss": 0.5})]
    assert read_data.callbacks() == ["a callback"]
