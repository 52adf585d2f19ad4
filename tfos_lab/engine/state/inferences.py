"""How far the inferences of a cluster are: which rows its nodes have answered. Pure state beside the feed state.

Of a few nodes, each answer is shown at once. Of more, all that came since the last time is shown a few times a second:
an event names every node, and ten thousand partitions are answered in pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tfos_lab import messages as m
from tfos_lab.engine.state.commits import AT_ONCE
from tfos_lab.engine.state.events import InferenceProgressed
from tfos_lab.engine.state.instructions import Instruction, Publish


@dataclass
class _Answered:
    """How many rows of one inference each node has answered, by rank, and how many partitions are done."""

    rows: dict[int, int] = field(default_factory=dict)
    partitions: int = 0


class Inferences:
    """The inferences of one cluster.

    Parameters
    ----------
    names : mapping of int to str
        The nodes that may answer, by rank.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names
        self._answered: dict[int, _Answered] = {}
        self._moved: set[int] = set()

    def record(self, message: m.RowsAnswered, now_s: float) -> list[Instruction]:
        """Record what a node has answered; return what is shown at once."""
        answered = self._answered.setdefault(message.inference, _Answered())
        answered.rows[message.rank] = answered.rows.get(message.rank, 0) + message.rows
        answered.partitions += message.last
        self._moved.add(message.inference)
        return [] if len(self._names) > AT_ONCE else self.show(now_s)

    def show(self, now_s: float) -> list[Instruction]:
        """Return the events of the inferences that have moved since the last time."""
        moved, self._moved = sorted(self._moved), set()
        return [Publish(self._progress(number, now_s)) for number in moved]

    def _progress(self, number: int, now_s: float) -> InferenceProgressed:
        answered = self._answered[number]
        rows = {name: answered.rows.get(rank, 0) for rank, name in self._names.items()}
        return InferenceProgressed(time_s=now_s, inference=number, rows=rows, partitions=answered.partitions)
