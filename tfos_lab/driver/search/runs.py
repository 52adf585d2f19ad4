"""The trials of a search as displays see them: best first, each with its best value."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.launchers import LauncherTraits
from tfos_lab.core.states import NodeState, RunState
from tfos_lab.data.model_files import find_model
from tfos_lab.driver.parallel.runs import ParallelRuns
from tfos_lab.driver.parallel.slots import Slots
from tfos_lab.driver.parallel.state import ParallelState, RunEntry
from tfos_lab.driver.record.inputs import Plain, plain_params
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.driver.search.policy import SearchPolicy
from tfos_lab.driver.search.results import SearchResults, Trial
from tfos_lab.driver.search.state import SearchState
from tfos_lab.driver.state.events import MetricsReported, SearchFacts
from tfos_lab.errors import ParallelInterrupted, SearchFailed, TfosError


class SearchRuns(ParallelRuns):
    """The runs of one search; see `ParallelRuns`.

    Parameters
    ----------
    search : SearchState
        What the trials have reported.
    """

    noun = "trial"

    def __init__(
        self,
        config: ClusterConfig,
        launcher: LauncherTraits,
        state: ParallelState,
        slots: Slots,
        run_dir: RunDir,
        *,
        call: tuple[Callable[..., Any], Any],
        search: SearchState,
    ) -> None:
        self.search = search
        super().__init__(config, launcher, state, slots, run_dir, call=call)

    def judge(self, policy: SearchPolicy, index: int, report: MetricsReported) -> bool:
        """Return whether a trial in this very process is to be cut, as it reports."""
        with self.lock:
            return policy.reported(self.state.entries[index], 0, report)

    @property
    def found(self) -> SearchResults:
        """What has been found so far."""
        with self.lock:
            trials = {entry.index: self._trial(dataclasses.replace(entry)) for entry in self.state.entries}
            order = [entry.index for entry in self._in_order()]
            best = self.search.best(self.state.entries)
            return SearchResults(
                [trials[index] for index in order],
                best=trials[best.index] if best is not None else None,
                metric=self.search.metric or "",
                mode=self.search.mode,
                run_dir=self.run_dir,
            )

    def _trial(self, entry: RunEntry) -> Trial:
        record, part = self.search.trials[entry.index], self.part(entry.index)
        return Trial(
            number=entry.index,
            params=dict(record.params or {}),
            metric=record.best,
            steps=record.steps,
            state=entry.state.value,
            seconds=entry.seconds(entry.ended_s or 0.0) if entry.ended_s is not None else None,
            tries=entry.tries,
            cluster_size=entry.slots,
            value=entry.value,
            error=entry.failure,
            run_dir=part.path if part is not None else None,
            model_path=_model_in(part.output) if part is not None else None,
            history=tuple(record.history),
        )

    def failure(self) -> TfosError:
        """Return the error that tells the failures."""
        found = self.found
        return SearchFailed(failed=found.failures.values(), results=found)

    def interruption(self) -> ParallelInterrupted:
        """Return the error that tells that the user has stopped the search."""
        found = self.found
        return ParallelInterrupted(self.name, found, sum(one.state == "done" for one in found), noun=self.noun)

    def _state(self) -> RunState:
        """Return how far the search is: a trial that failed is a row, and not the end."""
        state = super()._state()
        broken = self.state.count(NodeState.FAILED, NodeState.LOST)
        return RunState.DONE if state is RunState.FAILED and broken < len(self.state.entries) else state

    def _reason(self) -> str:
        return super()._reason() if self._state() is RunState.FAILED else ""

    def _in_order(self) -> Sequence[RunEntry]:
        return self.search.ranking(self.state.entries)

    def _best_of(self, entry: RunEntry) -> float | None:
        return self.search.trials[entry.index].best

    def _params_of(self, entry: RunEntry) -> Mapping[str, Plain]:
        return plain_params(self.search.trials[entry.index].params or {})

    def _search_facts(self) -> SearchFacts:
        best = self.search.best(self.state.entries)
        metric = self.search.metric or ""
        if best is None:
            return SearchFacts(metric)
        named = f"{self.name_of(best.index)}: {best.args}" if best.args else self.name_of(best.index)
        return SearchFacts(metric, self._best_of(best), named)


def _model_in(output: Path) -> Path | None:
    return find_model(output) if output.is_dir() else None
