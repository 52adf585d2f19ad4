"""How often a cluster may start nodes again: one number for all its restarts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class RestartBudget:
    """The option ``restarts``, shared by all starts of a cluster's nodes.

    A restart of all nodes counts as one, and so does that of a single worker.

    Attributes
    ----------
    total, used : int
        How many there may be, and how many there have been.
    """

    total: int = 0
    used: int = 0

    @property
    def has_left(self) -> bool:
        """Whether another one may follow."""
        return self.used < self.total

    def spend(self) -> int:
        """Count one more; return its number, from 1."""
        self.used += 1
        return self.used
