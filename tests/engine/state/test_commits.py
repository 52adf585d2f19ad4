"""Which messages tell nodes of committed partitions: one for each to a few nodes, one for all to many."""

from __future__ import annotations

from tfos_lab import messages as m
from tfos_lab.engine.state.commits import AT_ONCE, Commits
from tfos_lab.engine.state.instructions import SendTo, SendToAll

MANY = range(AT_ONCE + 1)


def stored(partition, rows):
    return m.AttemptStored(rank=0, feed=0, partition=partition, attempt="1.0", rows=rows, size_bytes=1, leftover=2)


def told(*partitions):
    return m.Commits(0, [m.CommittedPartition(number, "1.0", rows, 2) for number, rows in partitions], {})


def commit(partition, rows):
    return m.Commit(feed=0, partition=partition, attempt="1.0", rows=rows, leftover=2)


def test_a_few_nodes_get_each_commit_by_itself():
    commits = Commits()
    commits.add([0, 1], stored(7, {0: 5}))
    assert commits.take() == [SendTo(0, commit(7, 5)), SendTo(1, commit(7, 0))]
    assert commits.take() == []


def test_many_nodes_with_the_same_rows_get_one_message():
    commits = Commits()
    for partition in (3, 4):
        commits.add(list(MANY), stored(partition, dict.fromkeys(MANY, 5)))
    assert commits.take() == [SendToAll(tuple(MANY), told((3, 5), (4, 5)))]


def test_many_nodes_with_rows_of_their_own_get_their_own():
    commits = Commits()
    commits.add(list(MANY), stored(3, dict.fromkeys(MANY, 5)))
    commits.add(list(MANY), stored(4, {1: 9}))
    sent = commits.take()
    assert len(sent) == len(MANY)
    assert sent[1] == SendTo(1, told((3, 5), (4, 9)))
    assert sent[2] == SendTo(2, told((3, 5), (4, 0)))
