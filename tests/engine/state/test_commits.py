"""Which messages tell nodes of committed partitions: one by one to a few nodes, together to many."""

from __future__ import annotations

from tfos_lab import messages as m
from tfos_lab.engine.state.commits import AT_ONCE, Commits
from tfos_lab.engine.state.instructions import SendToAll

MANY = tuple(range(AT_ONCE + 1))


def stored(partition, rows, **fields):
    return m.AttemptStored(
        rank=0, feed=0, partition=partition, attempt="1.0", rows=rows, size_bytes=1, leftover=2, **fields
    )


def told(*partitions, shapes=None):
    return m.Commits(0, [m.CommittedPartition(number, "1.0", rows, 2) for number, rows in partitions], shapes or {})


def commit(partition, rows):
    return m.Commit(feed=0, partition=partition, attempt="1.0", rows=rows, leftover=2)


def test_a_few_nodes_get_each_commit_by_itself():
    commits = Commits()
    for partition in (7, 8):
        commits.add((0, 1), stored(partition, 5))
    assert commits.take() == [SendToAll((0, 1), commit(7, 5)), SendToAll((0, 1), commit(8, 5))]
    assert commits.take() == []


def test_many_nodes_get_one_message():
    commits = Commits()
    for partition in (3, 4):
        commits.add(MANY, stored(partition, partition))
    assert commits.take() == [SendToAll(MANY, told((3, 3), (4, 4)))]
    assert commits.take() == []


def test_partitions_of_other_shapes_are_told_of_by_themselves():
    commits = Commits()
    commits.add(MANY, stored(3, 0))
    commits.add(MANY, stored(4, 5, shapes={"x": [2]}))
    assert [each.message for each in commits.take()] == [told((3, 0)), told((4, 5), shapes={"x": [2]})]
