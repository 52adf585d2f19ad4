"""Checks what `tfos_lab.search` is asked for, and makes its trials; nothing is started yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from tfos_lab.core.config import ClusterConfig, FeedConfig, FeedOptions, NodeOptions, RunOptions
from tfos_lab.core.options import given_options, is_int, part_of
from tfos_lab.core.payload import LIMIT_BYTES, pack
from tfos_lab.data.session_stores import stores_of
from tfos_lab.data.spark_python import use_right_python
from tfos_lab.driver.parallel.nodes import NodeMaker
from tfos_lab.driver.parallel.runner import Runner
from tfos_lab.driver.parallel.slots import Slots, slots_for
from tfos_lab.driver.parallel.start import ParallelPlan
from tfos_lab.driver.parallel.state import ParallelState
from tfos_lab.driver.parallel.tries import InlineCut
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.driver.run_store import with_store
from tfos_lab.driver.search.inputs import ClusterSize, Sizes, check_args, make_feed, merge_args
from tfos_lab.driver.search.plan import GRID, HALVING, OPTUNA, RANDOM, SearchPlan
from tfos_lab.driver.search.policy import SearchPolicy
from tfos_lab.driver.search.runs import SearchRuns
from tfos_lab.driver.search.space import Params, Space, make_space
from tfos_lab.driver.search.state import SearchState
from tfos_lab.driver.search.study import OptunaStudy, open_study
from tfos_lab.driver.start import choose_launcher
from tfos_lab.driver.state.events import MetricsReported
from tfos_lab.errors import ConfigError
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.node.invoke import call_map_fun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOPBACK = ("127.0.0.1", "127.0.0.1")


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """A search as asked for.

    Attributes
    ----------
    map_fun, space, args
        The function, what it is tried with, and the arguments that all trials get.
    plan, runs_plan
        How to search; slots, retries and the time limit of a try.
    cluster_size : int, str or callable
        How large each trial's cluster is.
    data : object
        Rows for each trial.
    spark : SparkSession or None
        Whose executors to use.
    name : str
        Label of the search.
    options : dict
        What each cluster is asked for, and how it is fed.
    """

    map_fun: Callable[..., Any]
    space: Any
    args: Any
    plan: SearchPlan
    runs_plan: ParallelPlan
    cluster_size: ClusterSize
    data: Any
    spark: SparkSession | None
    name: str
    options: RunOptions


def make_search(request: SearchRequest) -> tuple[SearchRuns, Runner]:
    """Return the trials of a search, and what runs them.

    Raises
    ------
    ConfigError, NoSession, PayloadError
        For what cannot work, before anything is started.
    """
    space = make_space(request.space)
    count = request.plan.count_for(space)
    check_args(request.args)
    options = given_options(RunOptions, "search", request.options)
    config = _base_config(request, part_of(NodeOptions, options))
    session, launcher = choose_launcher(config, request.spark)
    sizes = Sizes(request.cluster_size, config, launcher)
    sizes.check(space)
    points, study = _points_of(request.plan, space, count)
    if session is not None:
        use_right_python(session)
    config = with_store(config, session)
    feed = make_feed(request.data, session, FeedConfig(**part_of(FeedOptions, options)))
    if not launcher.runs_inline:
        # Each trial is packed when it begins; what cannot be packed is refused now.
        pack(request.map_fun, [request.args, points], limit_bytes=LIMIT_BYTES * (count + 1))
    largest = max([sizes.slots_for(point) for point in points or []], default=1)
    slots = slots_for(launcher, session, limit=request.runs_plan.slots, gpus=config.gpus, largest=largest)
    policy = _make_policy(request, count, study, _within(sizes, slots))
    state = ParallelState([""] * count, request.runs_plan.retries)
    if points is not None:
        policy.set_all(state.entries, points)
    call = request.map_fun, request.args
    runs = SearchRuns(config, launcher, state, slots, RunDir.make(config.name), call=call, search=policy.search)
    nodes = _make_nodes(request, runs, policy, sizes, session)
    return runs, Runner(runs, nodes, timeout_s=request.runs_plan.timeout, policy=policy, feed=feed)


def _base_config(request: SearchRequest, options: Mapping[str, Any]) -> ClusterConfig:
    """Return what each cluster is asked for; its size is still to come where it is not the same for all."""
    size = request.cluster_size
    if not is_int(size):
        size = 1 + _count(options.get("num_ps")) + int(bool(options.get("evaluator")))
    return ClusterConfig(name=request.name, cluster_size=cast("int", size), **options)


def _count(number: object) -> int:
    return cast("int", number) if is_int(number) else 0


def _points_of(plan: SearchPlan, space: Space, count: int) -> tuple[list[Params] | None, OptunaStudy | None]:
    """Return the parameters of all trials, or None where they depend on other trials, and the study to be told."""
    kind = plan.kind_for(space)
    if kind == GRID:
        return [space.point(number) for number in range(count)], None
    if kind == OPTUNA:
        return None, open_study(plan, space.parts[0], count)
    points = space.draw(count, plan.seed) if space.size is not None else [{}] * count
    if kind == RANDOM and space.size is not None:
        return points, None
    study = open_study(plan, space.parts[0] if space.size is None else {}, count)
    points = [{**point, **study.ask(number)} for number, point in enumerate(points)]
    return points, study if kind == HALVING else None


def _make_policy(
    request: SearchRequest, count: int, study: OptunaStudy | None, size_of: Callable[[Params], int]
) -> SearchPolicy:
    plan = request.plan
    return SearchPolicy(SearchState(count, metric=plan.metric, mode=plan.mode, judge=study), size_of, study)


def _within(sizes: Sizes, slots: Slots) -> Callable[[Params], int]:
    """Return what tells a trial's slots, and refuses more than there are."""
    most = slots.most()

    def slots_of(params: Params) -> int:
        wanted = sizes.slots_for(params)
        if most is not None and wanted > most:
            limit = f"slots={most} allows no more" if slots.limit == most else f"there are {most}"
            problem = f"cluster_size={wanted}: a trial needs {wanted} slots at once, and {limit}"
            raise ConfigError([f"{problem}; ask for smaller clusters, or for more slots"])
        return wanted

    return slots_of


def _make_nodes(
    request: SearchRequest, runs: SearchRuns, policy: SearchPolicy, sizes: Sizes, session: SparkSession | None
) -> NodeMaker:
    def call_of(index: int) -> tuple[Callable[..., Any], Any]:
        args = merge_args(request.args, policy.params(index))
        if not runs.launcher.runs_inline:
            return request.map_fun, args
        return judged(request.map_fun, lambda report: runs.judge(policy, index, report)), args

    return NodeMaker(
        call_of=call_of,
        config_of=lambda index: sizes.config_for(policy.params(index)),
        launcher=runs.launcher,
        spark=session,
        hosts=spark_session.driver_hosts(session) if runs.launcher.spans_hosts and session else _LOOPBACK,
        stores=stores_of(session),
    )


def judged(map_fun: Callable[..., Any], judge: Callable[[MetricsReported], bool]) -> Callable[[Any, Any], Any]:
    """Return the function with a ``ctx.report`` that ends it once ``judge`` says that the trial is cut."""

    def run(args: Any, ctx: Any) -> Any:
        send = ctx.report
        steps = 0

        def report(step: int | None = None, *, total_steps: int | None = None, **metrics: float) -> None:
            nonlocal steps
            steps = int(step) if step is not None else steps + 1
            numbers = {name: float(value) for name, value in metrics.items()}
            send(steps, total_steps=total_steps, **numbers)
            if judge(MetricsReported(
                time_s=time.time(), node="", step=steps, total_steps=total_steps, metrics=numbers
            )):  # fmt: skip
                raise InlineCut

        ctx.report = report
        return call_map_fun(map_fun, args, ctx)

    run.__tfos_implicit__ = getattr(map_fun, "__tfos_implicit__", False)  # type: ignore[attr-defined]
    return run
