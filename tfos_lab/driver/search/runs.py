"""The trials of a search as independent runs: what each gets, how large its cluster is, and what displays see."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.launchers import LauncherTraits
from tfos_lab.core.options import is_int
from tfos_lab.core.states import NodeState
from tfos_lab.data.model_files import find_model
from tfos_lab.driver.parallel.runs import ParallelRuns
from tfos_lab.driver.parallel.slots import Slots
from tfos_lab.driver.parallel.state import RunEntry, short
from tfos_lab.driver.parallel.tries import InlineCut
from tfos_lab.driver.record.inputs import plain_params
from tfos_lab.driver.search.space import Params, Space
from tfos_lab.driver.search.trials import Reports, SearchResults, Trial, best_of, ranked
from tfos_lab.driver.state.events import MetricsReported, SearchFacts
from tfos_lab.errors import ConfigError, SearchFailed, TfosError
from tfos_lab.node.invoke import call_map_fun

# A number of nodes, the name of a parameter, or a function of the parameters.
ClusterSize = int | str | Callable[[Params], int]


class Sizes:
    """How large the cluster of a trial is: as the user ``wanted``, and else as in the configuration."""

    def __init__(self, wanted: ClusterSize, config: ClusterConfig, launcher: LauncherTraits) -> None:
        self._wanted = wanted
        self._config = config
        self._launcher = launcher
        self._most: int | None = None
        self._why = ""

    def check(self, space: Space) -> None:
        """Refuse what is no size, and the name of no parameter."""
        if isinstance(self._wanted, str):
            if not all(self._wanted in part for part in space.parts):
                there = ", ".join(space.names)
                raise ConfigError([f"cluster_size={self._wanted!r}: no parameter of that name; there are {there}"])
        elif not callable(self._wanted):
            self.config_for({})

    def config_for(self, params: Params) -> ClusterConfig:
        """Return the configuration of a trial's cluster.

        Raises ConfigError if its size is no whole number, or too small for the roles that were asked for.
        """
        size = self._size_for(params)
        if not is_int(size) or size < 1:
            raise ConfigError([f"cluster_size={size!r}{_whose(params)}: a whole number from 1 on is needed"])
        return dataclasses.replace(self._config, cluster_size=size)

    def slots_for(self, params: Params) -> int:
        """Return how many slots a trial takes."""
        if self._launcher.runs_inline:
            return 1
        config = self.config_for(params)
        return int(config.cluster_size - config.driver_ps * config.num_ps)

    def limit_to(self, slots: Slots, largest: int) -> None:
        """Refuse trials that take more slots than there are: the largest one known now, and others when they begin."""
        self._most = slots.most()
        self._why = f"slots={self._most} allows no more" if slots.limit == self._most else f"there are {self._most}"
        self.require_slots(largest)

    def require_slots(self, wanted: int) -> None:
        """Refuse a trial that takes more slots than there are."""
        if self._most is not None and wanted > self._most:
            problem = f"cluster_size={wanted}: a trial needs {wanted} slots at once, and {self._why}"
            raise ConfigError([f"{problem}; ask for smaller clusters, or for more slots"])

    def _size_for(self, params: Params) -> Any:
        if isinstance(self._wanted, str):
            return params[self._wanted]
        if not callable(self._wanted):
            return self._wanted
        try:
            return self._wanted(params)
        except Exception as error:
            problem = f"cluster_size: your function raised {type(error).__name__}: {error}{_whose(params)}"
            raise ConfigError([problem]) from error


def _whose(params: Params) -> str:
    return f" for {params}" if params else ""


class SearchRuns(ParallelRuns):
    """The trials of one search; all get ``args``, and ``how`` is as for `ParallelRuns`.

    ``points`` are the parameters of all trials; None where the study is asked for them when a trial begins.
    """

    noun = "trial"
    _failed_with = SearchFailed

    def __init__(
        self,
        map_fun: Callable[..., Any],
        args: Any,
        reports: Reports,
        points: Sequence[Params] | None,
        *,
        sizes: Sizes,
        **how: Any,
    ) -> None:
        super().__init__(map_fun, [None] * len(reports.trials), common=args, **how)
        self._common = args
        self._reports = reports
        self._study = reports.study
        self._sizes = sizes
        for entry, params in zip(self.state.entries, points or (), strict=False):
            self._set(entry, params)

    # ---- decisions --------------------------------------------------------------------------------------------------

    def _set(self, entry: RunEntry, params: Params) -> None:
        self._reports.trials[entry.index].params = params
        entry.args = short(params)
        entry.slots = self._sizes.slots_for(params)

    def _size_of(self, entry: RunEntry) -> int:
        if self._study is not None and not self._reports.trials[entry.index].params:
            self._set(entry, self._study.ask(entry.index))
            self._sizes.require_slots(entry.slots)
        return entry.slots

    def _begins(self, entry: RunEntry) -> None:
        self._reports.begin(entry.index)

    def config_of(self, entry: RunEntry) -> ClusterConfig:
        """Return what a trial's cluster is asked for."""
        return self._sizes.config_for(dict(self._reports.trials[entry.index].params))

    def call_of(self, entry: RunEntry) -> tuple[Callable[..., Any], Any]:
        """Return the function, and what it gets; inline, it ends itself if it is cut."""
        args = merge_args(self._common, dict(self._reports.trials[entry.index].params))
        if not self.launcher.runs_inline:
            return self.map_fun, args
        return _judged(self.map_fun, lambda report: self.is_cut(entry, 0, report)), args

    def _judge(self, entry: RunEntry, order: int, report: MetricsReported) -> bool:
        return self._reports.take(entry.index, order, report.step or 0, report.metrics, report.total_steps)

    def _has_ended(self, entry: RunEntry) -> TfosError | None:
        problem = self._reports.returned(entry.index, entry.value) if entry.state is NodeState.DONE else ""
        if self._study is not None:
            self._study.tell(entry.index, self._reports.trials[entry.index].metric, entry.state)
        return ConfigError([problem]) if problem else None

    def _all_have_ended(self) -> None:
        if self._study is not None:
            self._study.close()

    # ---- for displays -----------------------------------------------------------------------------------------------

    @property
    def results(self) -> SearchResults:
        """What has been found so far."""
        with self.lock:
            return SearchResults(
                [self._trial(entry) for entry in self.state.entries],
                metric=self._reports.metric or "",
                mode=self._reports.mode,
                run_dir=self.run_dir,
            )

    def _trial(self, entry: RunEntry) -> Trial:
        trial, part = self._reports.trials[entry.index], entry.part
        return dataclasses.replace(
            trial,
            history=tuple(self._reports.histories[entry.index]),
            state=entry.state.value,
            seconds=entry.seconds(entry.ended_s) if entry.ended_s is not None else None,
            tries=entry.tries,
            cluster_size=entry.slots,
            value=entry.value,
            error=entry.failure,
            run_dir=part.path if part is not None else None,
            model_path=find_model(part.output) if part is not None else None,
        )

    def _count_failed(self) -> int:
        """Count failed trials if all have failed: else one that failed is a row, and not the end."""
        failed = super()._count_failed()
        return failed if failed == len(self.state.entries) else 0

    def _ranking(self) -> list[Trial]:
        trials = self._reports.trials
        for entry in self.state.entries:
            trials[entry.index].state = entry.state.value
        return ranked(trials, self._reports.mode)

    def _in_order(self) -> Sequence[RunEntry]:
        return [self.state.entries[trial.number] for trial in self._ranking()]

    def _facts_of(self, entry: RunEntry) -> dict[str, Any]:
        trial = self._reports.trials[entry.index]
        return {"best": trial.metric, "params": plain_params(trial.params)}

    def _search_facts(self) -> SearchFacts:
        best, metric = best_of(self._ranking()), self._reports.metric or ""
        if best is None:
            return SearchFacts(metric)
        name, args = self.name_of(best.number), self.state.entries[best.number].args
        return SearchFacts(metric, best.metric, f"{name}: {args}" if args else name)


def merge_args(args: Any, params: Params) -> Any:
    """Return a trial's arguments: the fixed ones and its parameters, in a copy."""
    if args is None or isinstance(args, Mapping):
        return {**(args or {}), **params}
    merged = copy.copy(args)
    vars(merged).update(params)
    return merged


def _judged(map_fun: Callable[..., Any], is_cut: Callable[[MetricsReported], bool]) -> Callable[[Any, Any], Any]:
    """Return the function with a ``ctx.report`` that ends it once the trial is cut."""

    def run(args: Any, ctx: Any) -> Any:
        send = ctx.report
        steps = 0

        def report(step: int | None = None, *, total_steps: int | None = None, **metrics: float) -> None:
            nonlocal steps
            steps = int(step) if step is not None else steps + 1
            numbers = {name: float(value) for name, value in metrics.items()}
            send(steps, total_steps=total_steps, **numbers)
            made = MetricsReported(time_s=time.time(), node="", step=steps, total_steps=total_steps, metrics=numbers)
            if is_cut(made):
                raise InlineCut

        ctx.report = report
        return call_map_fun(map_fun, args, ctx)

    run.__tfos_implicit__ = getattr(map_fun, "__tfos_implicit__", False)  # type: ignore[attr-defined]
    return run
