"""`tfos_lab.parallel`: independent runs of one function, shown as a live table in a notebook and as text elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Unpack

from tfos_lab.core.config import NodeOptions
from tfos_lab.core.options import takes_options
from tfos_lab.driver.parallel.results import ParallelResults
from tfos_lab.driver.parallel.runs import ParallelRuns, make_runs
from tfos_lab.notebook.display import is_shown, open_display, render_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@takes_options(NodeOptions, "parallel")
def parallel(
    map_fun: Callable[..., Any],
    args_list: Iterable[Any],
    *,
    slots: int | None = None,
    retries: int = 0,
    timeout: float | None = None,
    spark: SparkSession | None = None,
    name: str = "parallel",
    raise_failures: bool = True,
    show: bool | None = None,
    **options: Unpack[NodeOptions],
) -> ParallelResults:
    """Run ``map_fun(args, ctx)`` once for each argument, in processes of their own; returns when all have ended.

    A run that fails does not end the others. There may be more runs than slots: the rest waits.

    Parameters
    ----------
    map_fun : callable
        Takes ``(args, ctx)``, ``(args)``, ``(ctx)`` or nothing. ``ctx`` is that of a cluster of one node:
        ``ctx.report`` shows metrics in the table, ``ctx.output_dir`` keeps files in the run's folder.
    args_list : iterable
        What the runs get as ``args``.
    slots : int, optional
        The most runs at once. By default as many as the session has free task slots, or this machine has cores.
    retries : int
        How often a run that failed is tried again, for whatever reason.
    timeout : float, optional
        How many seconds a try may run; then it is stopped and has failed.
    spark : SparkSession, optional
        Whose executors to use; the active session by default.
    name : str
        Label of the runs, and of their folder.
    raise_failures : bool
        Whether runs that failed for good raise `ParallelFailed` at the end; else they stand in the results.
    show : bool, optional
        Whether progress is shown: a live table in a notebook, lines of text elsewhere. By default in a notebook only.
    {options}

    Returns
    -------
    ParallelResults
        What the runs returned, in the order of ``args_list``; `ParallelResults.table` is a pandas table of it.

    Raises
    ------
    ConfigError, NoSession, PayloadError, ExecutorMismatch
        For what cannot work, before any run begins.
    ParallelFailed
        If runs have failed: with each failure and its traceback, and the results of the others.
    ParallelInterrupted
        If the user interrupted or stopped them; all are stopped.

    Examples
    --------
    >>> import tfos_lab
    >>> list(tfos_lab.parallel(lambda args, ctx: args * args, range(4), show=False))
    [0, 1, 4, 9]
    """
    __tracebackhide__ = True
    limits = {"slots": slots, "retries": retries, "timeout": timeout}
    return run_all(
        map_fun, args_list, spark=spark, name=name, raise_failures=raise_failures, show=show, **limits, **options
    )


def run_all(
    map_fun: Callable[..., Any],
    args_list: Iterable[Any],
    *,
    raise_failures: bool = True,
    show: bool | None = None,
    **options: Any,
) -> ParallelResults:
    """Run everything to its end, and show it; see `parallel`, and `make_runs` for the options."""
    __tracebackhide__ = True
    runs = make_runs(map_fun, args_list, **options)
    results: ParallelResults = run_shown(runs, show=show)
    if results.failures and raise_failures:
        raise runs.failure()
    return results


def run_shown(runs: ParallelRuns, *, show: bool | None = None) -> Any:
    """Run everything to its end, and show it meanwhile; return the results."""
    __tracebackhide__ = True
    render_errors()
    if not (is_shown(show=show) and runs.view().nodes):
        return runs.run()
    with open_display(runs) as display:
        return runs.run(display.poll)
