"""Checks what `tfos_lab.parallel` is asked for, and makes the runs; nothing is started yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from tfos_lab.core.config import NodeOptions, make_config
from tfos_lab.core.options import given_options, whole
from tfos_lab.core.payload import LIMIT_BYTES, pack
from tfos_lab.driver.parallel.runs import ParallelRuns
from tfos_lab.driver.parallel.slots import slots_for
from tfos_lab.driver.parallel.tries import Feed
from tfos_lab.driver.run_store import with_store
from tfos_lab.driver.start import choose_launcher
from tfos_lab.errors import ConfigError, NotAllAtOnce
from tfos_lab.launchers.spark.slots import await_slots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make_runs(
    map_fun: Callable[..., Any],
    args_list: Iterable[Any],
    *,
    slots: int | None = None,
    at_once: bool = False,
    retries: int = 0,
    timeout: float | None = None,
    spark: SparkSession | None = None,
    name: str = "parallel",
    feed: Feed | None = None,
    **options: Unpack[NodeOptions],
) -> ParallelRuns:
    """Return independent runs of ``map_fun(args, ctx)``, one for each argument; see `tfos_lab.parallel`.

    With ``at_once``, all go on at once or none. ``feed`` feeds the nodes of each run their rows, once they run. Raises
    for what cannot work, before anything is started.
    """
    problems = list(problems_with(slots, retries, timeout))
    if problems:
        raise ConfigError(problems)
    args = _checked_list(args_list)
    config = make_config(name=name, **given_options(NodeOptions, "parallel", options))
    session, launcher = choose_launcher(config, spark)
    config = with_store(config, session)
    if not launcher.runs_inline:
        # Each run is packed when it begins; what cannot be packed is refused now.
        pack(map_fun, args, limit_bytes=LIMIT_BYTES * max(1, len(args)))
    places = slots_for(launcher, session, limit=slots, gpus=config.gpus)
    if at_once:
        if session is not None:
            await_slots(session, len(args))
        free = places.free(0, 0)
        if free < len(args):
            raise NotAllAtOnce(wanted=len(args), free=free, total=max(places.total, free))
    return ParallelRuns(
        map_fun, args, config, launcher, session, slots=places, retries=retries, timeout_s=timeout, feed=feed
    )


def problems_with(slots: object, retries: object, timeout: object) -> Iterable[str]:
    """Return what is wrong with the limits of independent runs."""
    if slots is not None:
        yield from whole(1, needs="a whole number from 1 on is needed, or None for as many as there are")(
            "slots", slots
        )
    yield from whole(0, needs="a whole number from 0 on is needed")("retries", retries)
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0):
        yield f"timeout={timeout!r}: a number of seconds, more than 0, is needed, or None"


def _checked_list(args_list: Iterable[Any]) -> list[Any]:
    if isinstance(args_list, str | bytes | Mapping) or not isinstance(args_list, Iterable):
        needed = "a list of arguments is needed, one for each run, such as [{'lr': 0.1}, {'lr': 0.01}] or range(10)"
        raise ConfigError([f"args_list is a {type(args_list).__name__}: {needed}"])
    if hasattr(args_list, "columns"):  # a table, whose iterator gives the names of its columns
        advice = "for a dict of each of its rows, as of a pandas table, write df.to_dict('records')"
        raise ConfigError([f"args_list is a {type(args_list).__name__}: {advice}"])
    return list(args_list)
