"""What nodes are told of the partitions that have been committed. Pure.

Up to `AT_ONCE` nodes are told at once. More are told a few times a second, all partitions together: one message for
each node and partition would be forty million for 4,096 nodes and 10,000 partitions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from tfos_lab import messages as m
from tfos_lab.engine.state.instructions import Instruction, SendToAll

AT_ONCE = 64


class Commits:
    """The commits that nodes have not been told of yet."""

    def __init__(self) -> None:
        self._ranks: tuple[int, ...] = ()
        self._stored: list[m.AttemptStored] = []

    def add(self, ranks: tuple[int, ...], stored: m.AttemptStored) -> None:
        """Add a partition whose rows are stored on the nodes with these ranks."""
        self._ranks = ranks
        self._stored.append(stored)

    def take(self) -> list[Instruction]:
        """Return what tells the nodes of all that was added since the last time."""
        stored, self._stored = self._stored, []
        told = map(_commit, stored) if len(self._ranks) <= AT_ONCE else _together(stored)
        return [SendToAll(self._ranks, message) for message in told]


def _commit(stored: m.AttemptStored) -> m.Commit:
    return m.Commit(
        feed=stored.feed,
        partition=stored.partition,
        attempt=stored.attempt,
        rows=stored.rows,
        leftover=stored.leftover,
        shapes=stored.shapes,
    )


def _together(stored: Iterable[m.AttemptStored]) -> Iterable[m.Commits]:
    for (feed, shapes), alike in itertools.groupby(stored, lambda one: (one.feed, one.shapes)):
        yield m.Commits(
            feed, [m.CommittedPartition(one.partition, one.attempt, one.rows, one.leftover) for one in alike], shapes
        )
