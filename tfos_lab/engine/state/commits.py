"""What nodes are told of the partitions that have been committed. Pure.

Up to `AT_ONCE` nodes are told at once. More are told a few times a second, all partitions together: one message for
each node and partition would be forty million for 4,096 nodes and 10,000 partitions.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from tfos_lab import messages as m
from tfos_lab.engine.state.instructions import Instruction, SendTo, SendToAll

AT_ONCE = 64


class Commits:
    """The commits that nodes have not been told of yet."""

    def __init__(self) -> None:
        self._ranks: Sequence[int] = ()
        self._stored: list[m.AttemptStored] = []

    def add(self, ranks: Sequence[int], stored: m.AttemptStored) -> None:
        """Add a partition whose rows are stored on the nodes with these ranks."""
        self._ranks = ranks
        self._stored.append(stored)

    def take(self) -> list[Instruction]:
        """Return what tells the nodes of all that was added since the last time."""
        stored, self._stored = self._stored, []
        if not stored:
            return []
        if len(self._ranks) <= AT_ONCE:
            return [SendTo(rank, _commit(one, one.rows.get(rank, 0))) for one in stored for rank in self._ranks]
        return _together(self._ranks, stored)


def _together(ranks: Sequence[int], stored: Sequence[m.AttemptStored]) -> list[Instruction]:
    """Return one message for all nodes that have got the same rows; tasks deal them out evenly."""
    return [
        instruction
        for (feed, _), alike in itertools.groupby(stored, _kind)
        for instruction in _of_kind(ranks, feed, list(alike))
    ]


def _kind(stored: m.AttemptStored) -> tuple[int, dict[str, list[int]]]:
    return stored.feed, stored.shapes


def _of_kind(ranks: Sequence[int], feed: int, stored: Sequence[m.AttemptStored]) -> list[Instruction]:
    def told(rank: int) -> m.Commits:
        partitions = [
            m.CommittedPartition(one.partition, one.attempt, one.rows.get(rank, 0), one.leftover) for one in stored
        ]
        return m.Commits(feed, partitions, stored[0].shapes)

    if all(_is_even(ranks, one.rows) for one in stored):
        return [SendToAll(tuple(ranks), told(ranks[0]))]
    return [SendTo(rank, told(rank)) for rank in ranks]


def _is_even(ranks: Sequence[int], rows: Mapping[int, int]) -> bool:
    return len(rows) >= len(ranks) and all(rank in rows for rank in ranks) and len(set(rows.values())) == 1


def _commit(stored: m.AttemptStored, rows: int) -> m.Commit:
    return m.Commit(
        feed=stored.feed,
        partition=stored.partition,
        attempt=stored.attempt,
        rows=rows,
        leftover=stored.leftover,
        shapes=stored.shapes,
    )
