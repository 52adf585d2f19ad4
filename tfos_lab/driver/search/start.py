"""Checks what `tfos_lab.search` is asked for, and makes its trials; nothing is started yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack, cast

from tfos_lab.core.config import ClusterConfig, FeedConfig, FeedOptions, NodeOptions, RunOptions, train_keywords
from tfos_lab.core.options import given_options, is_int, part_of, whole
from tfos_lab.core.payload import LIMIT_BYTES, pack
from tfos_lab.data.frames import is_stream
from tfos_lab.driver.feed.arrays import frame_of_arrays, is_in_memory
from tfos_lab.driver.feed.request import is_dstream
from tfos_lab.driver.feed.splits import check_splits
from tfos_lab.driver.parallel.runs import problems_with
from tfos_lab.driver.parallel.slots import slots_for
from tfos_lab.driver.parallel.tries import Feed
from tfos_lab.driver.run_store import with_store
from tfos_lab.driver.search.runs import ClusterSize, SearchRuns, Sizes
from tfos_lab.driver.search.space import Params, Space, make_space
from tfos_lab.driver.search.study import OptunaStudy, is_optuna, open_study
from tfos_lab.driver.search.trials import Reports
from tfos_lab.driver.start import choose_launcher
from tfos_lab.errors import ConfigError
from tfos_lab.launchers.spark.session import active_session
from tfos_lab.texts import nearest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GRID, _RANDOM, _HALVING, _OPTUNA = "grid", "random", "halving", "optuna"
_STRATEGIES = (_GRID, _RANDOM, _HALVING, _OPTUNA)
_MODES = ("min", "max")
# A grid of more points is most likely a mistake.
_MOST_POINTS = 10_000


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """How to search; what the fields mean is said of the arguments of `tfos_lab.search`."""

    strategy: Any = None
    trials: int | None = None
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
        """Return the parameters of all trials, or None where they depend on other trials, and the study to be told."""
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


def _use(given: object, *known: str) -> str:
    """Return which values there are, the nearest one first if there is one."""
    near, there = nearest(str(given).lower(), known), f"there are {', '.join(known)}"
    return f"did you mean {near!r}? {there}" if near else there


def make_search(
    map_fun: Callable[..., Any],
    space: Any,
    plan: SearchPlan,
    *,
    cluster_size: ClusterSize,
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
    config = _base_config(name, cluster_size, part_of(NodeOptions, given))
    session, launcher = choose_launcher(config, spark)
    sizes = Sizes(cluster_size, config, launcher)
    sizes.check(parameters)
    points, study = plan.points_of(parameters, count)
    config = with_store(config, session)
    feed = _make_feed(data, validation, session, FeedConfig(**part_of(FeedOptions, given)))
    if not launcher.runs_inline:
        # Each trial is packed when it begins; what cannot be packed is refused now.
        pack(map_fun, [args, points], limit_bytes=LIMIT_BYTES * (count + 1))
    largest = max([sizes.slots_for(point) for point in points or []], default=1)
    places = slots_for(launcher, session, limit=slots, gpus=config.gpus, largest=largest)
    sizes.limit_to(places, largest)
    return SearchRuns(
        map_fun,
        args,
        Reports(count, metric=plan.metric, mode=plan.mode, study=study),
        points,
        sizes=sizes,
        slots=places,
        config=config,
        launcher=launcher,
        session=session,
        retries=retries,
        timeout_s=timeout,
        feed=feed,
    )


def _base_config(name: str, size: ClusterSize, options: Mapping[str, Any]) -> ClusterConfig:
    """Return what each cluster is asked for; its size is still to come where it is not the same for all."""
    if not is_int(size):
        num_ps: Any = options.get("num_ps")
        size = 1 + (num_ps if is_int(num_ps) else 0) + bool(options.get("evaluator"))
    return ClusterConfig(name=name, cluster_size=cast("int", size), **options)


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
