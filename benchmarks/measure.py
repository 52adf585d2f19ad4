"""What a measurement is, and small helpers to take it: medians of several runs, side by side with the same by hand."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Row:
    """One line of the table.

    ``ours`` and ``by_hand`` are medians in ``unit``; ``goal`` is what must hold, in words, and ``met`` whether it did.
    """

    what: str
    unit: str
    ours: float
    by_hand: float | None
    goal: str
    met: bool
    runs: int

    @property
    def ratio(self) -> float | None:
        """Ours over by hand."""
        return self.ours / self.by_hand if self.by_hand else None

    def as_dict(self) -> dict[str, object]:
        """Return all fields and the ratio."""
        return {**asdict(self), "ratio": self.ratio}

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the printed table."""
        by_hand = "" if self.by_hand is None else f"{self.by_hand:.3g} {self.unit}"
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        return self.what, f"{self.ours:.3g} {self.unit}", by_hand, ratio, self.goal, "yes" if self.met else "NO"

    def __str__(self) -> str:
        return "  ".join(cell for cell in self.cells() if cell)


def seconds_of(work: Callable[[], object]) -> float:
    """Return how long ``work`` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def median(values: list[float]) -> float:
    """Return the median."""
    return statistics.median(values)
