"""The cells of one interactive cluster: which nodes run which, what they have written, and how they have ended."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping

from tfos_lab.core import messages as m
from tfos_lab.errors import ConfigError


class RunningCell:
    """One cell on its nodes, which are names by rank; ``number`` counts the cells of the cluster from 1.

    ``outcomes`` says how it has ended, by node, only where it has; ``written`` what it has written so far there, as
    pairs of stream and text.
    """

    def __init__(self, number: int, nodes: Mapping[int, str]) -> None:
        self.number = number
        self.nodes = dict(nodes)
        self.outcomes: dict[str, m.Outcome] = {}
        self.written: dict[str, list[tuple[str, str]]] = {node: [] for node in nodes.values()}

    @property
    def busy(self) -> list[str]:
        """The nodes on which it has not ended."""
        return [node for node in self.nodes.values() if node not in self.outcomes]

    def text_of(self, node: str) -> str:
        """Return what it has written on a node so far, of both streams."""
        return "".join(text for _, text in list(self.written[node]))


class Cells:
    """All cells of one cluster. The head's thread hands messages in, others begin cells."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._cells: dict[int, RunningCell] = {}
        self._names: dict[str, frozenset[str]] = {}

    def begin(self, nodes: Mapping[int, str]) -> RunningCell:
        """Record that nodes are sent a cell, and return it; raises ConfigError if one of them still runs another."""
        with self._lock:
            for cell in self._cells.values():
                both = [node for node in cell.busy if node in nodes.values()]
                if both:
                    which = f"{', '.join(both)} still run{'s' if len(both) == 1 else ''} an earlier cell"
                    raise ConfigError([f"{which}: wait, choose others with nodes=..., or stop the cluster"])
            cell = RunningCell(next(self._numbers), nodes)
            self._cells = {number: old for number, old in self._cells.items() if old.busy}
            self._cells[cell.number] = cell
            return cell

    def forget(self, cell: RunningCell) -> None:
        """Forget a cell that could not be sent."""
        with self._lock:
            self._cells.pop(cell.number, None)

    def handle(self, message: m.CellWrote | m.CellEnded) -> None:
        """Apply a node's message."""
        with self._lock:
            cell = self._cells.get(message.cell)
            node = cell.nodes.get(message.rank) if cell is not None else None
            if cell is None or node is None:
                return
            if isinstance(message, m.CellWrote):
                cell.written[node].append((message.stream, message.text))
            else:
                cell.outcomes[node] = message.outcome
                self._names[node] = frozenset(message.names)

    def own_names(self, nodes: Mapping[int, str]) -> frozenset[str]:
        """Return the names that cells have made on each of the nodes."""
        with self._lock:
            return frozenset.intersection(*(self._names.get(node, frozenset()) for node in nodes.values()))
