"""Checks what `tfos_lab.search` is asked for, and runs its trials: what each gets and reports, and which end early."""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack, cast

from tfos_lab.core.config import ClusterConfig, FeedConfig, FeedOptions, NodeOptions, RunOptions, train_keywords
from tfos_lab.core.launchers import LauncherTraits
from tfos_lab.core.options import given_options, is_int, part_of, whole
from tfos_lab.core.payload import LIMIT_BYTES, pack
from tfos_lab.core.states import NodeState
from tfos_lab.data.frames import is_stream
from tfos_lab.driver.feed.arrays import frame_of_arrays, is_in_memory
from tfos_lab.driver.feed.request import is_dstream
from tfos_lab.driver.feed.splits import check_splits
from tfos_lab.driver.metrics import EPOCH
from tfos_lab.driver.parallel.results import ParallelRun, short
from tfos_lab.driver.parallel.runs import Ending, Feed, InlineCut, ParallelRuns, problems_with
from tfos_lab.driver.parallel.slots import Slots, slots_for
from tfos_lab.driver.record.inputs import plain_params
from tfos_lab.driver.run_store import with_store
from tfos_lab.driver.search.results import SearchResults, TrialRun, badness, best_of, ranked
from tfos_lab.driver.search.space import Params, Space, make_space
from tfos_lab.driver.search.study import OptunaStudy, is_optuna, open_study
from tfos_lab.driver.start import choose_launcher
from tfos_lab.driver.state.events import ClusterView, MetricsReported, RunFacts, SearchFacts
from tfos_lab.errors import ConfigError, SearchFailed
from tfos_lab.launchers.spark.session import active_session
from tfos_lab.node.invoke import call_map_fun
from tfos_lab.texts import nearest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tfos_lab.driver.cluster import Cluster

# A number of nodes, the name of a parameter, or a function of the parameters.
ClusterSize = int | str | Callable[[Params], int]

_GRID, _RANDOM, _HALVING, _OPTUNA = "grid", "random", "halving", "optuna"
_STRATEGIES = (_GRID, _RANDOM, _HALVING, _OPTUNA)
_MODES = ("min", "max")
# A grid of more points is most likely a mistake.
_MOST_POINTS = 10_000
# What a number that a function returns is called, where nothing was reported.
_RETURNED = "value"


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """How to search; the fields are explained with the arguments of `tfos_lab.search`."""

    strategy: Any = None
    trials: int | None = None
    cluster_size: ClusterSize = 1
    metric: str | None = None
    mode: str = "min"
    reduction: int = 3
    min_steps: int | None = None
    seed: int | None = None

    def problems(self) -> Iterator[str]:
        """Return what is wrong with it, whatever the space."""
        if self.strategy is not None and self.strategy not in _STRATEGIES and not is_optuna(self.strategy):
            yield f"strategy={self.strategy!r}: {_use(self.strategy, *_STRATEGIES)}, or an Optuna sampler or study"
        if self.mode not in _MODES:
            yield f"mode={self.mode!r}: {_use(self.mode, *_MODES)}"
        for name, least in (("trials", 1), ("min_steps", 1), ("reduction", 2)):
            value = getattr(self, name)
            if value is not None:
                yield from whole(least, needs=f"a whole number from {least} on is needed")(name, value)
        if self.metric is not None and (not isinstance(self.metric, str) or not self.metric):
            yield f"metric={self.metric!r}: the name of a metric that the function reports is needed, such as 'loss'"
        if self.seed is not None:
            yield from whole()("seed", self.seed)

    def kind_for(self, space: Space) -> str:
        """Return the strategy by its name."""
        if self.strategy is None:
            return _GRID if space.size is not None and self.trials is None else _RANDOM
        return self.strategy if isinstance(self.strategy, str) else _OPTUNA

    def count_for(self, space: Space) -> int:
        """Return how many trials there will be.

        Raises ConfigError for a space without an end, or a very large one, if it is not said how many trials there may
        be.
        """
        kind, endless = self.kind_for(space), " and ".join(space.endless)
        if kind == _GRID and endless:
            why = f"there is no end of values for {endless}"
            raise ConfigError([f"strategy='grid': {why}; list them, or use strategy='random' with trials="])
        if self.trials is None and (endless or kind == _OPTUNA):
            why = f"there is no end of values for {endless}" if endless else "Optuna would go on without end"
            raise ConfigError([f"trials=None: {why}; say how many to try, such as trials=20"])
        if self.trials is None and (space.size or 0) > _MOST_POINTS:
            raise ConfigError([f"space has {space.size:,} points: say how many to try, such as trials=100"])
        if len(space.parts) > 1 and (endless or kind == _OPTUNA):
            advice = f"list values for {endless}" if endless else "use strategy='grid'"
            raise ConfigError(
                [f"space is a list: Optuna samples from one dict; {advice}, or search each dict by itself"]
            )
        limits = [self.trials, None if kind == _OPTUNA else space.size]
        return min(limit for limit in limits if limit is not None)

    def points_of(self, space: Space, count: int) -> tuple[list[Params] | None, OptunaStudy | None]:
        """Return the parameters of all trials, or None where they depend on other trials, and the study, if any."""
        kind = self.kind_for(space)
        if kind == _OPTUNA:
            return None, open_study(self, space.parts[0], count)
        if kind == _GRID:
            return [space.point(number) for number in range(count)], None
        points = space.draw(count, self.seed) if space.size is not None else [{} for _ in range(count)]
        if kind == _RANDOM and space.size is not None:
            return points, None
        # What a study has not drawn it judges.
        study = open_study(self, {} if space.size is not None else space.parts[0], count)
        points = [{**point, **study.ask(number)} for number, point in enumerate(points)]
        return points, study if kind == _HALVING else None

    def base_config(self, name: str, options: Mapping[str, Any]) -> ClusterConfig:
        """Return what each cluster is asked for; its size is still to come where it is not the same for all."""
        size = self.cluster_size
        if not is_int(size):
            num_ps: Any = options.get("num_ps")
            size = 1 + (num_ps if is_int(num_ps) else 0) + bool(options.get("evaluator"))
        return ClusterConfig(name=name, cluster_size=cast("int", size), **options)

    def check_size(self, space: Space) -> None:
        """Raise ConfigError for what is neither a size nor the name of a parameter."""
        size = self.cluster_size
        if isinstance(size, str):
            if not all(size in part for part in space.parts):
                there = ", ".join(space.names)
                raise ConfigError([f"cluster_size={size!r}: no parameter of that name; there are {there}"])
        elif not callable(size):
            self._size_for({})

    def give(self, trial: TrialRun, params: Params, launcher: LauncherTraits) -> None:
        """Give a trial its parameters, and with them its size.

        Raises ConfigError if that is no whole number, or too small for the roles that were asked for.
        """
        trial.params, trial.args = params, short(params)
        config = trial.config = dataclasses.replace(trial.config, cluster_size=self._size_for(params))
        if not launcher.runs_inline:
            trial.slots = config.cluster_size - config.driver_ps * config.num_ps

    def _size_for(self, params: Params) -> int:
        size: Any = self.cluster_size
        whose = f" for {params}" if params else ""
        if isinstance(size, str):
            size = params[size]
        elif callable(size):
            try:
                size = size(params)
            except Exception as error:
                problem = f"cluster_size: your function raised {type(error).__name__}: {error}{whose}"
                raise ConfigError([problem]) from error
        if not is_int(size) or size < 1:
            raise ConfigError([f"cluster_size={size!r}{whose}: a whole number from 1 on is needed"])
        return int(size)


def _use(given: object, *known: str) -> str:
    """Return which values there are, the nearest one first if there is one."""
    near, there = nearest(str(given).lower(), known), f"there are {', '.join(known)}"
    return f"did you mean {near!r}? {there}" if near else there


def make_search(
    map_fun: Callable[..., Any],
    space: Any,
    plan: SearchPlan,
    *,
    slots: int | None,
    retries: int,
    timeout: float | None,
    args: Any,
    data: Any,
    validation: Any,
    spark: SparkSession | None,
    name: str,
    **options: Unpack[RunOptions],
) -> SearchRuns:
    """Return the trials of a search; see `tfos_lab.search`. Raises for what cannot work, before anything is started."""
    problems = [*plan.problems(), *problems_with(slots, retries, timeout)]
    if problems:
        raise ConfigError(problems)
    parameters = make_space(space)
    count = plan.count_for(parameters)
    if args is not None and not isinstance(args, Mapping) and not hasattr(args, "__dict__"):
        problem = f"args={args!r}: a dict, or an argparse.Namespace, is needed; each trial's parameters are added to it"
        raise ConfigError([problem])
    given = given_options(RunOptions, "search", options)
    config = plan.base_config(name, part_of(NodeOptions, given))
    session, launcher = choose_launcher(config, spark)
    config = with_store(config, session)
    plan.check_size(parameters)
    points, study = plan.points_of(parameters, count)
    trials = [TrialRun(number, "", (map_fun, None), config) for number in range(count)]
    for trial, params in zip(trials, points or (), strict=False):
        plan.give(trial, params, launcher)
    feed = _make_feed(data, validation, session, FeedConfig(**part_of(FeedOptions, given)))
    if not launcher.runs_inline:
        # Each trial is packed when it begins; what cannot be packed raises now.
        pack(map_fun, [args, points], limit_bytes=LIMIT_BYTES * (count + 1))
    largest = max(trial.slots for trial in trials)
    places = slots_for(launcher, session, limit=slots, gpus=config.gpus, largest=largest)
    most = places.most()
    _require_slots(largest, most, places)
    return SearchRuns(
        map_fun,
        trials,
        config,
        launcher,
        session,
        plan=plan,
        study=study,
        args=args,
        most_slots=most,
        slots=places,
        retries=retries,
        timeout_s=timeout,
        feed=feed,
    )


def _require_slots(wanted: int, most: int | None, slots: Slots) -> None:
    """Raise ConfigError for a trial that takes more slots than there are."""
    if most is not None and wanted > most:
        why = f"slots={most} allows no more" if slots.limit == most else f"there are {most}"
        problem = f"cluster_size={wanted}: a trial needs {wanted} slots at once, and {why}"
        raise ConfigError([f"{problem}; ask for smaller clusters, or for more slots"])


def _make_feed(data: Any, validation: Any, session: SparkSession | None, config: FeedConfig) -> Feed | None:
    """Return what feeds a trial's nodes, or None without rows; arrays become a DataFrame once, for all trials."""
    if is_stream(data) or is_dstream(data):
        raise ConfigError(["data is a stream, which can be read once only: trials need rows that they can all read"])
    data, splits = check_splits(data, validation, session, columns=config.columns, objects=config.objects)
    if data is None:
        return None
    session = session or active_session()
    data, *others = [
        frame_of_arrays(session, rows) if session is not None and is_in_memory(rows) else rows
        for rows in (data, *splits.values())
    ]
    keywords = {**train_keywords(vars(config)), "validation": dict(zip(splits, others, strict=True))}
    return lambda cluster: cluster.train(data, **keywords)


class SearchRuns(ParallelRuns):
    """The trials of one search; all get ``args``, and ``how`` is as for `ParallelRuns`.

    The study, if there is one, is asked for a trial's parameters when that begins, unless it has them already; it hears
    what trials report, and decides which of them are cut. What is compared is known once it is reported or returned,
    unless the plan names it.
    """

    noun = "trial"
    _failed_with = SearchFailed

    def __init__(
        self,
        map_fun: Callable[..., Any],
        trials: Sequence[TrialRun],
        *where: Any,
        plan: SearchPlan,
        study: OptunaStudy | None,
        args: Any,
        most_slots: int | None,
        **how: Any,
    ) -> None:
        super().__init__(map_fun, trials, *where, common=args, **how)
        self._trials = trials
        self._plan, self._study, self._args, self._most_slots = plan, study, args, most_slots
        self._metric = plan.metric
        self._names: dict[str, None] = {}  # all metrics that were reported, in order

    # ---- decisions --------------------------------------------------------------------------------------------------

    def run(self, on_step: Callable[[], None] = lambda: None) -> Any:
        """Run all trials to their ends, and return what was found; see `ParallelRuns.run`."""
        try:
            return super().run(on_step)
        finally:
            if self._study is not None:
                with self.lock:
                    self._study.close()

    def _size_of(self, run: ParallelRun) -> int:
        trial = self._trials[run.index]
        if self._study is not None and not trial.params:
            self._plan.give(trial, self._study.ask(trial.index), self.launcher)
            _require_slots(trial.slots, self._most_slots, self._slots)
        return trial.slots

    def _begin(self, run: ParallelRun) -> None:
        trial = self._trials[run.index]
        # What an earlier try has reported does not count.
        trial.metric, trial.steps, trial.source, trial.history = None, None, None, []
        super()._begin(trial)

    def _make_cluster(self, run: ParallelRun) -> Cluster:
        trial = self._trials[run.index]
        map_fun = _judged(self.map_fun, self, trial) if self.launcher.runs_inline else self.map_fun
        trial.call = map_fun, merge_args(self._args, trial.params)
        return super()._make_cluster(trial)

    def take(self, run: ParallelRun, order: int, report: MetricsReported) -> None:
        """Record what a node of a trial has reported, and cut the trial if the study decides so."""
        with self.lock:
            trial, metrics, step = self._trials[run.index], report.metrics, report.step or 0
            self._names |= dict.fromkeys(metrics)
            if self._metric is None:
                self._metric = next((name for name in self._names if name != EPOCH), None)
            if order in (0, trial.source) or trial.steps is None:
                trial.steps = step
            if self._metric is None or self._metric not in metrics:
                return
            if trial.source is not None and order > trial.source:
                return
            if trial.source != order:
                trial.source, trial.metric, trial.history = order, None, []
            value, mode = metrics[self._metric], self._plan.mode
            if math.isfinite(value):
                trial.history.append((step, value))
                if trial.metric is None or badness(value, mode) < badness(trial.metric, mode):
                    trial.metric = value
            best = badness(math.inf, mode) if trial.metric is None else trial.metric
            if self._study is not None and self._study.report(trial.index, step, report.total_steps, best):
                trial.is_cut = trial.is_cut or not self.stopping

    def _record(self, run: ParallelRun, ending: Ending) -> None:
        with self.lock:
            super()._record(run, ending)
            trial = self._trials[run.index]
            problem = self._problem_of(trial) if trial.state is NodeState.DONE else ""
            if self._study is not None and trial.state.ended:
                self._study.tell(trial.index, trial.metric, trial.state)
            if problem:
                self._begin_no_more(ConfigError([problem]))

    def _problem_of(self, trial: TrialRun) -> str:
        """Take the metric from what a trial has returned, if it has reported none.

        Returns why no trial can be compared, if that is certain, or "".
        """
        if trial.metric is None:
            named = trial.value if isinstance(trial.value, Mapping) else {_RETURNED: trial.value}
            numbers = {name: one for name, one in named.items() if isinstance(name, str) and _is_number(one)}
            if self._metric is None and not self._names:
                self._metric = next((name for name in numbers if name != EPOCH), None)
            if self._metric in numbers:
                trial.metric = float(numbers[self._metric])
        if trial.source is not None or any(one.metric is not None for one in self._trials):
            return ""
        if not self._names:
            wanted = self._metric or "loss"
            return (
                f"trial {trial.index} has returned without reporting anything to compare: call "
                f"ctx.report(step, {wanted}=…) in the function, or have it return {{'{wanted}': …}}"
            )
        told = ", ".join(self._names)
        return f"metric={self._metric!r}: trial {trial.index} has returned without reporting it; it has reported {told}"

    # ---- for displays -----------------------------------------------------------------------------------------------

    @property
    def results(self) -> SearchResults:
        """What has been found so far."""
        with self.lock:
            trials = [trial.result() for trial in self._trials]
        return SearchResults(trials, metric=self._metric or "", mode=self._plan.mode, run_dir=self.run_dir)

    def view(self) -> ClusterView:
        """Return all that can be seen of the trials now, best first, as one value."""
        with self.lock:
            view, ranking = super().view(), ranked(self._trials, self._plan.mode)
            best, facts = best_of(ranking), SearchFacts(self._metric or "")
            if best is not None:
                name = self.name_of(best.index)
                facts = SearchFacts(facts.metric, best.metric, f"{name}: {best.args}" if best.args else name)
            nodes = tuple(view.nodes[trial.index] for trial in ranking)
            return dataclasses.replace(view, nodes=nodes, search=facts)

    def _facts_of(self, run: ParallelRun) -> RunFacts:
        trial = self._trials[run.index]
        return dataclasses.replace(super()._facts_of(run), best=trial.metric, params=plain_params(trial.params))

    def _count_failed(self) -> int:
        """Count failed trials if all have failed: else one that failed is a row, and not the end."""
        failed = super()._count_failed()
        return failed if failed == len(self.runs) else 0


def _is_number(value: object) -> bool:
    is_scalar = hasattr(value, "__float__") and getattr(value, "ndim", 0) == 0
    return is_scalar and not isinstance(value, bool | str) and math.isfinite(float(value))  # type: ignore[arg-type]


def merge_args(args: Any, params: Params) -> Any:
    """Return a trial's arguments: the fixed ones and its parameters, in a copy."""
    if args is None or isinstance(args, Mapping):
        return {**(args or {}), **params}
    merged = copy.copy(args)
    vars(merged).update(params)
    return merged


def _judged(map_fun: Callable[..., Any], runs: SearchRuns, trial: TrialRun) -> Callable[[Any, Any], Any]:
    """Return the function of an inline trial, with a ``ctx.report`` that ends it once the trial is cut."""

    def run(args: Any, ctx: Any) -> Any:
        send = ctx.report
        steps = 0

        def report(step: int | None = None, *, total_steps: int | None = None, **metrics: float) -> None:
            nonlocal steps
            steps = int(step) if step is not None else steps + 1
            numbers = {name: float(value) for name, value in metrics.items()}
            send(steps, total_steps=total_steps, **numbers)
            made = MetricsReported(time_s=time.time(), node="", step=steps, total_steps=total_steps, metrics=numbers)
            runs.take(trial, 0, made)
            if trial.is_cut:
                raise InlineCut

        ctx.report = report
        return call_map_fun(map_fun, args, ctx)

    run.__tfos_implicit__ = getattr(map_fun, "__tfos_implicit__", False)  # type: ignore[attr-defined]
    return run
