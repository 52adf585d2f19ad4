"""Rows of hundreds of megabytes in a feed task: how many of them it holds, and which are too large."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from tfos_lab.errors import FeedError
from tfos_lab.node.feed import task
from tfos_lab.node.feed.plan import FeedPlan
from tfos_lab.node.feed.row_limit import refuse_large

SCHEMA = '{"type":"struct","fields":[{"name":"x","type":"binary","nullable":true,"metadata":{}}]}'


class Written:
    """A node's rows, in the memory of the test."""

    def __init__(self):
        self.rows = []

    def write(self, rows):
        self.rows += rows.column(0).to_pylist()

    def close(self):
        pass


@pytest.fixture
def send(monkeypatch):
    """Return a function that sends one row per batch to so many nodes; yields what they have after each."""

    def of(nodes, values):
        writers = []
        client = SimpleNamespace(do_action=lambda _: [])
        monkeypatch.setattr(task, "connect", lambda *_: SimpleNamespace(client=client))
        monkeypatch.setattr(task, "NodeWriter", lambda *_: writers.append(Written()) or writers[-1])
        sender = task.PartitionSender(FeedPlan(0, "", {n: [str(n)] for n in range(nodes)}, SCHEMA), 0, "a")
        for value in values:
            sender.send(pa.record_batch({"x": pa.array([value], pa.binary())}))
            yield [list(writer.rows) for writer in writers]
        sender.commit()
        yield [writer.rows for writer in writers]

    return of


def test_large_rows_are_dealt_as_soon_as_there_is_one_for_each_node(send, monkeypatch):
    monkeypatch.setattr(task, "_MOST_HELD_BYTES", 1000)
    values = [bytes([n]) * 600 for n in range(7)]
    *after_each, last = send(3, values)
    assert [sum(map(len, nodes)) for nodes in after_each] == [0, 0, 3, 3, 3, 6, 6]
    assert [rows[:2] for rows in last] == [[values[n], values[n + 3]] for n in range(3)]
    assert [rows[2:] for rows in last] == [[values[6]]] * 3


def test_small_rows_are_held_until_there_are_many_for_each_node(send):
    *after_each, last = send(2, [b"x"] * 200)
    assert [sum(map(len, nodes)) for nodes in after_each] == [0] * 127 + [128] * 73
    assert [len(rows) for rows in last] == [100, 100]


def test_a_row_that_is_too_large_is_refused_with_its_column_and_size(send, monkeypatch):
    monkeypatch.setattr("tfos_lab.node.feed.row_limit.MOST_BYTES", 2000)
    told = r"a row takes 3,\d\d\d bytes \(3,\d\d\d of them in column 'x'\), and 2,000 is the most"
    with pytest.raises(FeedError, match=told):
        list(send(2, [bytes(1000), bytes(3000)]))


def test_a_batch_that_is_too_large_only_as_a_whole_is_told_how_to_become_smaller(monkeypatch):
    monkeypatch.setattr("tfos_lab.node.feed.row_limit.MOST_BYTES", 2000)
    rows = pa.record_batch({"n": [1, 2, 3], "x": [bytes(1000)] * 3})
    refuse_large(rows.slice(0, 1))
    with pytest.raises(FeedError, match=r"3 rows of one batch take 3,.*'x'.*spark\.sql\.execution\.arrow\.max"):
        refuse_large(rows)
