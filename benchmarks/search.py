"""A search of 12 trials on 2 slots, beside the sum of its trials / 2: how much of the time slots are idle."""

from __future__ import annotations

import time
from collections.abc import Iterator

import tfos_lab
from benchmarks.measure import Row, median, seconds_of

_TRIALS = 12
_SLOTS = 2
_REPEATS = 3
_GOAL = 1.15


def measure() -> Iterator[Row]:
    """Search a grid of 12 points in processes of this machine, two at once."""
    _search([1])
    times, ideals = [], []
    for _ in range(_REPEATS):
        trials: list[float] = []
        times.append(seconds_of(lambda trials=trials: trials.extend(_search(range(_TRIALS)))))
        ideals.append(sum(trials) / _SLOTS)
    met = all(ours <= _GOAL * ideal for ours, ideal in zip(times, ideals, strict=True))
    yield Row("a search of 12 trials on 2 slots (the sum of its trials / 2)", "s", median(times), median(ideals),
              f"≤ {_GOAL} ×", met, _REPEATS)  # fmt: skip


def _search(values: range | list[int]) -> list[float]:
    """Search, and return the seconds of each trial."""
    found = tfos_lab.search(_trial, {"x": values}, slots=_SLOTS, local="processes", show=False)
    return list(found.table["seconds"])


def _trial(args: dict[str, int], ctx: tfos_lab.NodeContext) -> None:
    """Report for a second or two, a different time for each trial."""
    for step in range(20 + args["x"]):
        time.sleep(0.05)
        ctx.report(step, loss=1 / (step + 1 + args["x"]))
