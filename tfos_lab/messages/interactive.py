"""Cells on an interactive cluster: the driver sends them, nodes that wait say what each wrote and how it ended."""

from __future__ import annotations

from tfos_lab.messages.common import Message, Outcome


class RunCell(Message, frozen=True):
    """Run a cell. ``cell`` is its number within the cluster, ``payload`` the packed code with what it captures."""

    cell: int
    payload: bytes


class InterruptCell(Message, frozen=True):
    """Raise KeyboardInterrupt in a cell, if it still runs."""

    cell: int


class CellWrote(Message, frozen=True):
    """Text that a cell has written to ``stream``, since the last such message."""

    rank: int
    cell: int
    stream: str
    text: str


class CellEnded(Message, frozen=True):
    """A cell has ended, and all that it wrote has been sent; ``names`` are those that cells have made on this node."""

    rank: int
    cell: int
    outcome: Outcome
    names: list[str]


FromAgent = CellWrote | CellEnded
ToAgent = RunCell | InterruptCell
