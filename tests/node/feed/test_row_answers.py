"""Inference by rows: batches hold rows of one task, results come in any portions, and none is lost or added."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from tfos_lab import messages as m
from tfos_lab.errors import FeedError
from tfos_lab.node.feed import row_answers as module
from tfos_lab.node.feed.data_feed import Buffer, Chunk, DataFeed
from tfos_lab.node.feed.exchange_pool import ExchangePool
from tfos_lab.node.feed.exchanges import write_rows
from tfos_lab.node.feed.object_rows import decode, encode
from tfos_lab.node.feed.row_answers import RowAnswers


class Rig:
    """A pool whose messages the test sends, and a data feed that reads it until there is nothing more."""

    def __init__(self, folder):
        self.folder, self.sent, self.files = folder, [], 0
        self.pool = ExchangePool(0, self.sent.append, threading.Condition())
        self.answers = RowAnswers(self.pool)
        self.buffer = Buffer()
        self.feed = DataFeed(self, train_mode=False)
        self.put, self.count, self.check_answered = self.answers.put, self.answers.count, self.answers.check_answered

    def take(self) -> Chunk | None:
        while (chunk := self.answers.take(1.0)) is None:
            if self.answers.is_over():
                return None
        return chunk

    def stop(self):
        self.answers.stop()

    def rows(self, number, rows, *, ended=False):
        path = self.folder / str(self.files)
        self.files += 1
        write_rows(path, encode(rows))
        with self.pool.changed:
            self.pool.handle(m.ExchangeRows(exchange=number, path=str(path), rows=len(rows), shapes={}, objects=True))
        if ended:
            self.end(number)

    def end(self, number):
        with self.pool.changed:
            self.pool.handle(m.ExchangeEnded(exchange=number))

    def results(self):
        """Return what was answered, by exchange."""
        self.answers.flush()
        found = {}
        for message in self.sent:
            if isinstance(message, m.ExchangeResults):
                rows = [row for batch in pa.ipc.open_stream(message.data) for row in decode(batch)]
                assert len(rows) == message.rows
                found.setdefault(message.exchange, []).extend(rows)
        return found


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path)


def batches(rig, size):
    found = []
    while not rig.feed.should_stop():
        found.append(rig.feed.next_batch(size))
        rig.feed.batch_results(found[-1])
    return found


def test_a_batch_ends_with_its_task_and_tasks_take_turns(rig):
    rig.rows(1, ["a", "b", "c"])
    rig.rows(2, [1, 2, 3, 4, 5], ended=True)
    rig.rows(1, ["d", "e"], ended=True)
    found = batches(rig, 3)
    assert sorted(map(str, found)) == sorted(map(str, [["a", "b", "c"], [1, 2, 3], [4, 5], ["d", "e"]]))
    assert rig.results() == {1: ["a", "b", "c", "d", "e"], 2: [1, 2, 3, 4, 5]}


def test_a_batch_goes_on_over_the_files_of_its_task(rig):
    for rows in (["a"], ["b", "c"], ["d"]):
        rig.rows(1, rows)
    rig.end(1)
    assert batches(rig, 3) == [["a", "b", "c"], ["d"]]


def test_files_are_removed_and_the_agent_is_told(rig):
    rig.rows(1, ["a"], ended=True)
    batches(rig, 3)
    assert [type(message) for message in rig.sent if not isinstance(message, m.ExchangeResults)] == [m.ExchangeTaken]
    assert list(rig.folder.iterdir()) == []


def test_a_batch_that_waits_lets_other_tasks_go_on(rig, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE_S", 0.01)
    rig.rows(1, ["a", "b"])
    rig.rows(2, [1], ended=True)
    first = rig.feed.next_batch(3)
    rig.feed.batch_results(first)
    assert first == ["a", "b"]
    second = rig.feed.next_batch(3)
    rig.feed.batch_results(second)
    rig.rows(1, ["c"], ended=True)
    assert (second, batches(rig, 3)) == ([1], [["c"]])


def test_results_belong_to_the_oldest_rows(rig):
    rig.rows(1, ["a", "b", "c"], ended=True)
    rig.rows(2, [1, 2], ended=True)
    first, second = rig.feed.next_batch(5), rig.feed.next_batch(5)
    for answer in [*first, *second]:
        rig.feed.batch_results([answer])
    assert rig.results() == {1: ["a", "b", "c"], 2: [1, 2]}


def test_a_whole_batch_may_wait_while_the_one_before_is_answered(rig):
    rig.rows(1, [1, 2, 3, 4, 5, 6], ended=True)
    first, second = rig.feed.next_batch(2), rig.feed.next_batch(2)
    rig.feed.batch_results(first)
    third = rig.feed.next_batch(2)
    rig.feed.batch_results(second + third)
    assert rig.results() == {1: [1, 2, 3, 4, 5, 6]}


@pytest.mark.parametrize("given", [0, 1, 3])
def test_a_batch_that_is_answered_in_part_is_told_when_the_next_is_asked_for(rig, given):
    rig.rows(1, [1, 2, 3, 4, 5, 6])
    batch = rig.feed.next_batch(4)
    rig.feed.batch_results(batch[:given])
    for ask in (rig.feed.should_stop, lambda: rig.feed.next_batch(4)):
        with pytest.raises(FeedError, match=f"batch_results got {given} results for a batch of 4 rows"):
            ask()


def test_another_thread_may_answer_while_the_next_batch_is_taken(rig):
    rig.rows(1, [1, 2, 3, 4, 5, 6], ended=True)
    batch = rig.feed.next_batch(4)
    thread = threading.Thread(target=rig.feed.batch_results, args=(batch[:2],))
    thread.start()
    thread.join()
    rest = rig.feed.next_batch(4)
    rig.feed.batch_results([*batch[2:], *rest])
    assert rig.results() == {1: [1, 2, 3, 4, 5, 6]}


def test_more_results_than_rows_are_refused(rig):
    rig.rows(1, [1, 2], ended=True)
    batch = rig.feed.next_batch(1)
    with pytest.raises(FeedError, match=r"batch_results got more results \(2\) than .* wait for one \(1\)"):
        rig.feed.batch_results([*batch, 2])
    assert rig.results() == {}


def test_results_for_tasks_that_are_gone_are_dropped(rig):
    rig.rows(1, [1, 2], ended=True)
    rig.rows(2, [3], ended=True)
    batch = rig.feed.next_batch(2)
    with rig.pool.changed:
        rig.pool.handle(m.ExchangeDropped(exchange=1))
    rig.feed.batch_results(batch)
    assert batches(rig, 2) == [[3]]
    assert rig.results() == {2: [3]}


def test_rows_that_come_when_their_task_is_gone_are_dropped(rig):
    rig.rows(1, [1])
    with rig.pool.changed:
        rig.pool.handle(m.ExchangeDropped(exchange=1))
    rig.rows(1, [2])
    assert rig.pool.exchanges == {}
    assert list(rig.folder.iterdir()) == []


def test_after_terminate_there_are_no_rows(rig):
    rig.rows(1, [1, 2, 3], ended=True)
    rig.rows(2, [4], ended=True)
    rig.feed.batch_results(rig.feed.next_batch(1))
    rig.feed.terminate()
    assert (rig.feed.should_stop(), rig.feed.next_batch(4)) == (True, [])
    assert rig.results() == {1: [1]}
    assert list(rig.folder.iterdir()) == []
