"""Checks what `tfos_lab.parallel` is asked for, and makes the runs; nothing is started yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from tfos_lab.core.config import NodeOptions, make_config
from tfos_lab.core.options import given_options, is_int
from tfos_lab.core.payload import LIMIT_BYTES, pack
from tfos_lab.data.session_stores import stores_of
from tfos_lab.data.spark_python import use_right_python
from tfos_lab.driver.parallel.feeder import Feed
from tfos_lab.driver.parallel.nodes import NodeMaker
from tfos_lab.driver.parallel.runner import Runner
from tfos_lab.driver.parallel.runs import ParallelRuns
from tfos_lab.driver.parallel.short_text import short
from tfos_lab.driver.parallel.slots import Slots, slots_for
from tfos_lab.driver.parallel.state import ParallelState
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.driver.run_store import with_store
from tfos_lab.driver.start import choose_launcher
from tfos_lab.errors import ConfigError, NotAllAtOnce
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.launchers.spark.slots import await_slots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOPBACK = ("127.0.0.1", "127.0.0.1")


@dataclass(frozen=True, kw_only=True)
class ParallelPlan:
    """How to run independent runs.

    Attributes
    ----------
    slots : int or None
        The most runs at once.
    at_once : bool
        All at once or none: refused where there are too few slots.
    retries : int
        How often a run that failed is tried again.
    timeout : float or None
        How long a try may run.
    """

    slots: int | None = None
    at_once: bool = False
    retries: int = 0
    timeout: float | None = None

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise ConfigError(problems)

    def _problems(self) -> Iterable[str]:
        if self.slots is not None and (not is_int(self.slots) or self.slots < 1):
            yield f"slots={self.slots!r}: a whole number from 1 on is needed, or None for as many as there are"
        if not is_int(self.retries) or self.retries < 0:
            yield f"retries={self.retries!r}: a whole number from 0 on is needed"
        limit = self.timeout
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int | float) or not limit > 0):
            yield f"timeout={limit!r}: a number of seconds, more than 0, is needed, or None"


def make_runs(
    map_fun: Callable[..., Any],
    args_list: Iterable[Any],
    plan: ParallelPlan,
    *,
    spark: SparkSession | None = None,
    name: str = "parallel",
    feed: Feed | None = None,
    **options: Unpack[NodeOptions],
) -> tuple[ParallelRuns, Runner]:
    """Return independent runs of ``map_fun(args, ctx)``, one for each argument, and what runs them.

    ``feed``, if given, feeds the nodes of each run their rows, once they run.

    Raises
    ------
    ConfigError, NoSession, NotAllAtOnce, PayloadError
        For what cannot work, before anything is started.
    """
    args = _checked_list(args_list)
    config = make_config(name=name, **given_options(NodeOptions, "parallel", options))
    session, launcher = choose_launcher(config, spark)
    if session is not None:
        use_right_python(session)
    config = with_store(config, session)
    if not launcher.runs_inline:
        # Each run is packed when it begins; what cannot be packed is refused now.
        pack(map_fun, args, limit_bytes=LIMIT_BYTES * max(1, len(args)))
    slots = slots_for(launcher, session, limit=plan.slots, gpus=config.gpus)
    if plan.at_once:
        _require_slots(slots, len(args), session)
    nodes = NodeMaker(
        call_of=lambda index: (map_fun, args[index]),
        config_of=lambda _index: config,
        launcher=launcher,
        spark=session,
        hosts=spark_session.driver_hosts(session) if launcher.spans_hosts and session else _LOOPBACK,
        stores=stores_of(session),
    )
    state = ParallelState([short(one) for one in args], plan.retries)
    runs = ParallelRuns(config, launcher, state, slots, RunDir.make(config.name), call=(map_fun, None))
    return runs, Runner(runs, nodes, timeout_s=plan.timeout, feed=feed)


def _checked_list(args_list: Iterable[Any]) -> list[Any]:
    if isinstance(args_list, str | bytes | Mapping) or not isinstance(args_list, Iterable):
        raise ConfigError(
            [
                (
                    f"args_list is a {type(args_list).__name__}: a list of arguments is needed, one for each run, "
                    "such as [{'lr': 0.1}, {'lr': 0.01}] or range(10)"
                )
            ]
        )
    return list(args_list)


def _require_slots(slots: Slots, wanted: int, session: SparkSession | None) -> None:
    """Raise `NotAllAtOnce` if so many runs cannot go on at once."""
    if session is not None:
        await_slots(session, wanted)
    free = slots.free(0, 0)
    if free < wanted:
        raise NotAllAtOnce(wanted=wanted, free=free, total=max(slots.total, free))
