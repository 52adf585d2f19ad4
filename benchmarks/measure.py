"""A measurement, and helpers to take it: medians of several runs, side by side with another implementation."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Row:
    """One line of the table.

    ``ours`` and ``beside`` are medians in ``unit``, the latter of the same work by hand or by another library; ``goal``
    describes what must hold, and ``met`` is whether it did. If nothing could be measured (see `not_measured`), there
    are no numbers and ``goal`` says why.
    """

    what: str
    unit: str
    ours: float | None
    beside: float | None
    goal: str
    met: bool | None
    runs: int

    @property
    def ratio(self) -> float | None:
        """``ours`` divided by ``beside``."""
        return self.ours / self.beside if self.ours is not None and self.beside else None

    def as_dict(self) -> dict[str, object]:
        """Return all fields and the ratio."""
        return {**asdict(self), "ratio": self.ratio}

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the printed table."""
        ours, beside = ("" if value is None else f"{value:.3g} {self.unit}" for value in (self.ours, self.beside))
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        met = "" if self.met is None else "yes" if self.met else "NO"
        return self.what, ours, beside, ratio, self.goal, met

    def __str__(self) -> str:
        return "  ".join(cell for cell in self.cells() if cell)


def not_measured(what: str, why: object) -> Row:
    """Return a row for what this machine could not measure."""
    return Row(what, "", None, None, f"not measured: {why}", None, 0)


def seconds_of(work: Callable[[], object]) -> float:
    """Return how long ``work`` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def median(values: list[float]) -> float:
    """Return the median."""
    return statistics.median(values)
