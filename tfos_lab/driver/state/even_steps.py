"""Agrees on the steps of ``ctx.even(dataset)``: how many rows each has on all nodes, and which is the last. Pure.

Each node says ahead how many rows it has for its next steps. A step is agreed on once all nodes have said so, or that
they have no more. Nodes count their passes over a dataset, and begin them alike, as they train in lock-step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import groupby

from tfos_lab.core import messages as m
from tfos_lab.driver.state.instructions import Instruction, SendTo

_Key = tuple[int, int]


class _Pass:
    """One pass over one dataset: what each node has ahead, and which nodes have ``left`` it before its end."""

    def __init__(self, ranks: Iterable[int], left: set[int]) -> None:
        self.ahead: dict[int, deque[int]] = {rank: deque() for rank in ranks}
        self.ended: set[int] = set()
        self.begun: set[int] = set()
        self.left = left
        self.told: set[int] = set()
        self.drop = False
        self.over = False

    def add(self, message: m.StepsAhead) -> None:
        """Record what a node has ahead."""
        self.begun.add(message.rank)
        self.drop = self.drop or message.drop
        for steps, rows in message.runs:
            self.ahead[message.rank].extend([rows] * steps)
        if message.ended:
            self.ended.add(message.rank)
            self.left.discard(message.rank)

    def leave(self, rank: int) -> None:
        """Record that a node goes on without having read this to its end, or that it had."""
        if rank not in self.ended:
            self.left.add(rank)

    def agree(self) -> list[int]:
        """Return the rows of the steps that can be agreed on now."""
        totals = []
        while not self.over and all(rows or rank in self.ended for rank, rows in self.ahead.items()):
            has_rows = [bool(rows) for rows in self.ahead.values()]
            self.over = not (all(has_rows) if self.drop else any(has_rows))
            if not self.over:
                totals.append(sum(rows.popleft() for rows in self.ahead.values() if rows))
        return totals


class EvenSteps:
    """All passes of all datasets of the nodes of one start that train in lock-step, whose ``names`` are by rank."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names
        self._passes: dict[_Key, _Pass] = {}
        self._over: set[_Key] = set()
        self._at: dict[tuple[int, int], int] = {}
        self._returned: set[int] = set()

    def handle(self, message: m.StepsAhead) -> list[Instruction]:
        """Add what a node has ahead; return what can be agreed on."""
        key = message.dataset_id, message.passage
        if message.rank not in self._names or key in self._over:
            return []
        self._move(message.rank, *key)
        if key not in self._passes:
            gone_on = {rank for rank in self._names if self._at.get((rank, key[0]), -1) > key[1]}
            self._passes[key] = _Pass(self._names, gone_on | self._returned)
        this = self._passes[key]
        this.add(message)
        totals = this.agree()
        runs = [(len(list(run)), rows) for rows, run in groupby(totals)]
        agreed = m.StepsAgreed(*key, runs, ended=this.over)
        instructions: list[Instruction] = []
        if totals or this.over:
            instructions.append(SendTo(tuple(self._names), agreed))
        if this.over:
            del self._passes[key]
            self._over.add(key)
        return instructions + self._tell_who_left()

    def leave(self, rank: int) -> list[Instruction]:
        """Record that a node's function has returned."""
        self._returned.add(rank)
        for this in self._passes.values():
            this.leave(rank)
        return self._tell_who_left()

    def _move(self, rank: int, dataset_id: int, passage: int) -> None:
        """Record at which pass over a dataset a node is; it has left the earlier ones."""
        if self._at.get((rank, dataset_id)) == passage:
            return
        self._at[rank, dataset_id] = passage
        for (other_id, earlier), this in self._passes.items():
            if other_id == dataset_id and earlier < passage:
                this.leave(rank)

    def _tell_who_left(self) -> list[Instruction]:
        """Tell the nodes that are in a pass, once, which node has left it before its end."""
        instructions: list[Instruction] = []
        for key, this in list(self._passes.items()):
            if this.left and (waiting := this.begun - this.told - this.left):
                first = next(name for rank, name in self._names.items() if rank in this.left)
                instructions.append(SendTo(tuple(sorted(waiting)), m.StepsAgreed(*key, [], left=first)))
            if this.left:
                this.told |= this.begun
            if len(this.left) == len(self._names):
                del self._passes[key]
        return instructions
