"""How many independent runs of an empty function end per second."""

from __future__ import annotations

from collections.abc import Iterator

import tfos_lab
from benchmarks.measure import Row, median, seconds_of

_RUNS = 40
_REPEATS = 3


def measure() -> Iterator[Row]:
    """Run an empty function 40 times in processes of this machine, two at once."""
    _run_all(1)
    rates = [_RUNS / seconds_of(lambda: _run_all(_RUNS)) for _ in range(_REPEATS)]
    yield Row("independent runs of an empty function, 2 at once", "runs/s", median(rates), None, "≥ 5 runs/s",
              min(rates) >= 5.0, _REPEATS)  # fmt: skip


def _run_all(count: int) -> None:
    tfos_lab.parallel(_nothing, range(count), slots=2, local="processes", show=False)


def _nothing(args: object, ctx: object) -> None:
    """Return at once."""
