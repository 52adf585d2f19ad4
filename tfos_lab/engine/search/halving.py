"""Successive halving, asynchronous: a trial that is not among the best at the rung it has reached is cut. Pure.

A trial that reaches a rung is compared with those that have been there before it, so that no slot ever waits for other
trials. Until it reaches the next one, it is compared again whenever it reports: better ones may have come meanwhile.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort

_WHOLE = 1.0
# Quotients are not exact.
_TINY = 1e-9


# What it counts, and its number.
Rung = tuple[str, int]


class Halving:
    """The rungs of one search.

    Parameters
    ----------
    trials : int
        How many trials there are; as many rungs are set up as it takes to leave the best one.
    reduction : int
        One of so many trials goes on at each rung.
    min_steps : int or None
        The first rung, in steps; each further one is ``reduction`` times as far. By default, rungs are at parts of
        the steps where a trial says how many there will be, else after 1, ``reduction``, ``reduction``²… steps.
    """

    def __init__(self, trials: int, reduction: int = 3, min_steps: int | None = None) -> None:
        self._reduction = reduction
        self._min_steps = min_steps
        self._parts = max(1, math.floor(math.log(max(2, trials), reduction) + _TINY))
        self._rungs: dict[Rung, list[float]] = {}
        self._reached: dict[int, dict[Rung, float]] = {}

    def forget(self, trial: int) -> None:
        """A trial begins anew; what it has left at rungs stays."""
        self._reached.pop(trial, None)

    def report(self, trial: int, step: int, total_steps: int | None, badness: float) -> bool:
        """Return whether a trial is to be cut.

        Parameters
        ----------
        trial : int
            The trial.
        step, total_steps : int
            How far it is, and how far it will go, if that is known.
        badness : float
            Its best value so far, less is better.
        """
        reached = self._reached.setdefault(trial, {})
        new = [rung for rung in self._passed(step, total_steps) if rung not in reached]
        for rung in new:
            reached[rung] = badness
            insort(self._rungs.setdefault(rung, []), badness)
        return not all(self._is_among_best(rung, reached[rung]) for rung in new or list(reached)[-1:])

    def _passed(self, step: int, total_steps: int | None) -> list[Rung]:
        """Return the rungs that a trial has passed, in order."""
        if total_steps and self._min_steps is None:
            part = min(_WHOLE, step / total_steps)
            rungs = range(self._parts, 0, -1)
            return [("part", rung) for rung in rungs if part * self._reduction**rung >= _WHOLE - _TINY]
        first = self._min_steps or 1
        if step < first:
            return []
        return [("step", rung) for rung in range(_power(step // first, self._reduction) + 1)]

    def _is_among_best(self, rung: Rung, badness: float) -> bool:
        values = self._rungs[rung]
        return bisect_left(values, badness) < math.ceil(len(values) / self._reduction)


def _power(number: int, base: int) -> int:
    """Return the highest power to which ``base`` may be raised without exceeding a number."""
    power = 0
    while number >= base:
        number //= base
        power += 1
    return power
