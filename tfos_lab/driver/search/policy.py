"""What a search decides about its runs: their parameters and sizes, what is cut, and whether going on makes sense."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tfos_lab.core.states import NodeState
from tfos_lab.driver.parallel.policy import RunPolicy
from tfos_lab.driver.parallel.short_text import short
from tfos_lab.driver.parallel.state import RunEntry
from tfos_lab.driver.search.space import Params
from tfos_lab.driver.search.state import SearchState
from tfos_lab.driver.search.study import OptunaStudy
from tfos_lab.driver.state.events import MetricsReported
from tfos_lab.errors import ConfigError, TfosError


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
