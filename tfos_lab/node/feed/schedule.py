"""How an epoch's rows become steps: computed by the driver, which plans them, and in the same way by every node.

All nodes take the same number of steps. Each node fills its batches as long as it can, but keeps one row for every step
that follows, so that it has a row for each step: 33 and 32 rows in batches of 32 become 32 + 1 and 31 + 1. Pure:
numbers in, numbers out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tfos_lab.core.messages import Share


def count_steps(shares: Iterable[tuple[int, int]], *, drop: bool) -> int:
    """Return the steps of an epoch, given the rows and the batch size of each node.

    With ``drop``, it ends with the last step that is full on all nodes; else with the last row.

    Examples
    --------
    >>> count_steps([(33, 32), (32, 32)], drop=False), count_steps([(33, 32), (32, 32)], drop=True)
    (2, 1)
    """
    if drop:
        return min((rows // size for rows, size in shares), default=0)
    return max((math.ceil(rows / size) for rows, size in shares), default=0)


def full_steps(rows: int, batch_size: int, steps: int) -> int:
    """Return how many full batches a node's epoch begins with."""
    if batch_size == 1:
        return min(rows, steps)
    if rows < steps:
        return 0
    return min((rows - steps) // (batch_size - 1), steps)


def rows_at(rows: int, batch_size: int, steps: int, step: int) -> int:
    """Return how many rows a node's batch has at a step, from 0.

    Examples
    --------
    >>> [rows_at(33, 32, 2, step) for step in range(2)], [rows_at(32, 32, 2, step) for step in range(2)]
    ([32, 1], [31, 1])
    """
    full = full_steps(rows, batch_size, steps)
    if step < full:
        return batch_size
    if rows < steps:
        return int(step < rows)
    return rows - full * batch_size - (steps - full - 1) if step == full else 1


def grouped(shares: Iterable[tuple[int, int]]) -> list[Share]:
    """Return the distinct shares among rows and batch sizes of nodes: there are few, however many nodes."""
    return [Share(rows, size, count) for (rows, size), count in Counter(shares).items()]


@dataclass(frozen=True)
class Schedule:
    """One node's epoch of so many steps: its ``rows`` and ``batch_size``, among the shares of all nodes.

    ``peers`` are the distinct shares of all nodes, including this node's (`grouped`).
    """

    steps: int
    rows: int
    batch_size: int
    peers: Sequence[Share]

    @property
    def full(self) -> int:
        """How many full batches this node's epoch begins with."""
        return full_steps(self.rows, self.batch_size, self.steps)

    @property
    def even_steps(self) -> int:
        """How many steps there are before the first in which some node's batch is not full."""
        return min((full_steps(rows, size, self.steps) for rows, size, _ in self.peers), default=0)

    def rows_at(self, step: int) -> int:
        """Return how many rows this node's batch has at a step, from 0."""
        return rows_at(self.rows, self.batch_size, self.steps, step)

    def factors(self, start: int, stop: int, *, padded: bool = False) -> list[float]:
        """Return what each step's weights are multiplied by, so that the mean over nodes is the mean over all rows.

        That is R·b/G for R nodes, b rows in this node's batch and G rows of the step on all of them: the mean over the
        nodes of (1/b)·Σ w·loss is then (1/G)·Σ loss. If ``padded``, every batch has ``batch_size`` rows, some of which
        are filler.
        """
        nodes = sum(count for _, _, count in self.peers)
        even = nodes * self.batch_size / sum(size * count for _, size, count in self.peers)
        until = min(stop, max(start, self.even_steps))
        return [even] * (until - start) + [self._factor(nodes, step, padded=padded) for step in range(until, stop)]

    def _factor(self, nodes: int, step: int, *, padded: bool) -> float:
        total = sum(rows_at(rows, size, self.steps, step) * count for rows, size, count in self.peers)
        return nodes * (self.batch_size if padded else self.rows_at(step)) / total if total else 1.0


def leftover_places(leftover: int, *, dealt: int, nodes: int) -> list[int]:
    """Return the place, among the nodes, of the one that gets each of a partition's leftover rows.

    Nodes get one in turn, after those ``dealt`` for other partitions, so their rows differ by at most one, however many
    partitions there are.

    Examples
    --------
    >>> leftover_places(2, dealt=0, nodes=3), leftover_places(2, dealt=2, nodes=3)
    ([0, 1], [2, 0])
    """
    return [(dealt + row) % nodes for row in range(leftover)]


def per_row(factors: Sequence[float], batch_size: int) -> float | np.ndarray:
    """Return the factor of each row of several batches: one number if all are equal, else float64 ``(rows,)``."""
    if all(factor == factors[0] for factor in factors):
        return factors[0]
    return np.repeat(np.asarray(factors), batch_size)
