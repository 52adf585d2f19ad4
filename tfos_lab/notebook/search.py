"""`tfos_lab.search`: trials of one function over a space of parameters, as a live table in a notebook, else as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from tfos_lab.core.config import RunOptions
from tfos_lab.core.options import takes_options
from tfos_lab.driver.search import space as values
from tfos_lab.driver.search.results import SearchResults
from tfos_lab.driver.search.runs import ClusterSize, SearchPlan, make_search
from tfos_lab.notebook.parallel import run_shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Search:
    """Search over parameters: ``tfos_lab.search(map_fun, space)`` tries ``map_fun(args, ctx)`` with points of a space.

    Each trial runs on a cluster of its own, of one node by default, as many at once as slots allow. It gets its
    parameters in ``args``, and reports with ``ctx.report``; the driver compares the reports. See `search` for the
    options. ``search.uniform``, ``log_uniform``, ``integers`` and ``choice`` make the values of parameters.

    Attributes
    ----------
    last : SearchResults or None
        What the last search of this process has found, also where it was interrupted or failed.

    Examples
    --------
    >>> import tfos_lab
    >>> def fit(args, ctx):
    ...     for step in range(3):
    ...         ctx.report(step, loss=(args["x"] - 2) ** 2)
    >>> found = tfos_lab.search(fit, {"x": [1, 2, 5]}, show=False)
    >>> found.best.params, found.best.metric
    ({'x': 2}, 0.0)
    """

    uniform = staticmethod(values.uniform)
    log_uniform = staticmethod(values.log_uniform)
    integers = staticmethod(values.integers)
    choice = staticmethod(values.choice)

    def __init__(self) -> None:
        self.last: SearchResults | None = None

    def __repr__(self) -> str:
        return "<tfos_lab.search(map_fun, space, ...)>"

    @takes_options(RunOptions, "search")
    def search(
        self,
        map_fun: Callable[..., Any],
        space: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        strategy: Any = None,
        trials: int | None = None,
        metric: str | None = None,
        mode: str = "min",
        cluster_size: ClusterSize = 1,
        slots: int | None = None,
        seed: int | None = None,
        retries: int = 0,
        timeout: float | None = None,
        reduction: int = 3,
        min_steps: int | None = None,
        args: Any = None,
        data: Any = None,
        validation: Any = None,
        spark: SparkSession | None = None,
        name: str = "search",
        show: bool | None = None,
        **options: Unpack[RunOptions],
    ) -> SearchResults:
        """Try ``map_fun(args, ctx)`` with points of a space, and return what was found when all trials have ended.

        A trial that fails is a row of the table, and does not end the others.

        Parameters
        ----------
        map_fun : callable
            Takes ``(args, ctx)``, as in `tfos_lab.run`. It reports the metric with ``ctx.report(step, loss=…)`` or
            ``ctx.callbacks()``, or returns a dict with the metric in it.
        space : dict, or list of dict
            Each parameter's values: a list, a range, ``search.uniform(low, high)``, ``log_uniform``, ``integers``,
            ``choice``, a distribution of Optuna's, or a single value. Of a list of dicts with listed values, the points
            of all are tried.
        strategy : {"grid", "random", "halving", "optuna"}, or an Optuna sampler or study, optional
            ``"halving"`` draws points at random and stops early, at rungs, the trials that are not among the best there
            so far. By default the whole grid where ``trials`` is not given and the space is finite, else random points.
            Halving, ``"optuna"``, and points of a space whose values are not listed need Optuna.
        trials : int, optional
            How many at most; all points of a finite space by default.
        metric : str, optional
            Which metric is compared, by the best value of each trial; by default the first that is
            reported, or returned in a dict.
        mode : {"min", "max"}
            Whether less or more of it is better.
        cluster_size : int, str or callable
            How many nodes each trial has; or the parameter that says so; or a function of the parameters.
        slots : int, optional
            The most nodes at once. By default as many as the session has free task slots, or this machine has cores.
        seed : int, optional
            Makes random points the same each time.
        retries : int
            How often a trial that failed is tried again.
        timeout : float, optional
            How many seconds a trial may run; then it has failed.
        reduction : int
            With halving, one of so many trials goes on at each rung.
        min_steps : int, optional
            With halving, the step of the first rung. By default rungs are at parts of ``total_steps`` where that is
            reported, else from the first step on.
        args : dict or argparse.Namespace, optional
            What all trials get in ``args`` beside their parameters.
        data, validation : object, optional
            Rows that each trial is fed, and those to compare trials by, as `Cluster.train` takes them; a fraction of
            ``data`` holds out the same rows for all trials.
        spark : SparkSession, optional
            Whose executors to use; the active session by default.
        name : str
            Label of the search, and of its folder.
        show : bool, optional
            Whether progress is shown: a live table in a notebook, lines of text elsewhere. By default in a notebook
            only.
        {options}

        Returns
        -------
        SearchResults
            ``best``, the best trial with its parameters and its model; ``table``, a pandas table of all trials.

        Raises
        ------
        ConfigError, NoSession, PayloadError, ExecutorMismatch
            For what cannot work, before any trial begins; and where the first trial that returns has not reported the
            metric: the others are stopped.
        SearchFailed
            If all trials have failed.
        ParallelInterrupted
            If the user interrupted or stopped the search; its ``results`` hold what was found until then.
        """
        __tracebackhide__ = True
        runs = make_search(
            map_fun,
            space,
            SearchPlan(
                strategy=strategy,
                trials=trials,
                cluster_size=cluster_size,
                metric=metric,
                mode=mode,
                reduction=reduction,
                min_steps=min_steps,
                seed=seed,
            ),
            slots=slots,
            retries=retries,
            timeout=timeout,
            args=args,
            data=data,
            validation=validation,
            spark=spark,
            name=name,
            **options,
        )
        try:
            found: SearchResults = run_shown(runs, show=show)
        finally:
            self.last = runs.results
        if len(found.failures) == len(found):
            raise runs.failure()
        return found

    __call__ = search


search = Search()
