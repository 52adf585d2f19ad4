"""What a search decides about its runs: their parameters and sizes, what is cut, and whether going on makes sense."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from typing import Any

from tfos_lab.core.states import NodeState
from tfos_lab.driver.parallel.policy import RunPolicy
from tfos_lab.driver.parallel.short_text import short
from tfos_lab.driver.parallel.state import RunEntry
from tfos_lab.driver.search.optuna_study import OptunaStudy
from tfos_lab.driver.search.space import Params
from tfos_lab.driver.search.state import SearchState
from tfos_lab.driver.state.events import MetricsReported
from tfos_lab.errors import ConfigError, TfosError

_WHOLE = 1.0
# Quotients are not exact.
_TINY = 1e-9

# What a rung of successive halving counts, and its number.
Rung = tuple[str, int]


class SearchPolicy(RunPolicy):
    """Carries out what the search's state decides.

    Parameters
    ----------
    search : SearchState
        The trials; also an attribute.
    size_of : callable
        Returns how many slots a trial with these parameters takes; raises `ConfigError` for what cannot be.
    study : OptunaStudy or None
        What is asked for parameters when a trial begins; without one, all are known before.
    """

    def __init__(self, search: SearchState, size_of: Callable[[Params], int], study: OptunaStudy | None) -> None:
        self.search = search
        self._size_of = size_of
        self._study = study

    def set_all(self, entries: Iterable[RunEntry], points: Iterable[Params]) -> None:
        """Give each trial its parameters, where they are known before."""
        for entry, params in zip(entries, points, strict=True):
            self._set(entry, params)

    def _set(self, entry: RunEntry, params: Params) -> None:
        self.search.trials[entry.index].params = params
        entry.args = short(params)
        entry.slots = self._size_of(params)

    def params(self, index: int) -> Params:
        """Return the parameters of a trial that has begun."""
        return dict(self.search.trials[index].params or {})

    def size(self, entry: RunEntry) -> int:
        """Return a trial's size; a sampler is asked for its parameters."""
        if self._study is not None and self.search.trials[entry.index].params is None:
            self._set(entry, self._study.ask(entry.index))
        return entry.slots

    def prepare(self, entry: RunEntry) -> None:
        """A trial begins its next try."""
        self.search.begin(entry.index)

    def reported(self, entry: RunEntry, order: int, report: MetricsReported) -> bool:
        """Return whether a trial is to be cut."""
        return self.search.report(entry.index, order, report.step or 0, report.metrics, report.total_steps)

    def returned(self, entry: RunEntry, value: Any) -> TfosError | None:
        """Return why no trial can be compared, if this one proves it."""
        problem = self.search.returned(entry.index, value)
        return ConfigError([problem]) if problem else None

    def ended(self, entry: RunEntry, state: NodeState) -> None:
        """Tell the sampler."""
        if self._study is not None:
            self._study.tell(entry.index, self.search.trials[entry.index].best, state)

    def close(self) -> None:
        """Tell the sampler that no trial goes on."""
        if self._study is not None:
            self._study.close()


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
