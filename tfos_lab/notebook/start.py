"""`tfos_lab.run` and `tfos_lab.start`: start a cluster, feed it, and in a notebook show it as a cell does."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Unpack

from tfos_lab.core.config import ClusterConfig, ClusterOptions, FedClusterOptions, make_configs, train_keywords
from tfos_lab.core.options import given_options, takes_options
from tfos_lab.core.threads import on_a_thread
from tfos_lab.driver.cluster import Cluster
from tfos_lab.driver.feed.splits import check_splits, session_of
from tfos_lab.driver.interactive import InteractiveCluster, make_interactive
from tfos_lab.driver.start import make_cluster
from tfos_lab.errors import NodeFailed
from tfos_lab.notebook.display import Display, is_shown, open_display, render_errors
from tfos_lab.notebook.display.kernel import current_kernel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Short, so that ■ and the display react quickly.
STEP_S = 0.05
# An error within this time is raised without a display; a launch that takes longer is shown.
_UNSEEN_S = 0.15
# For the last lines of a script's cluster, when Python exits.
_LAST_LINES_S = 2.0


@takes_options(FedClusterOptions, "run")
def run(
    map_fun: Callable[..., Any],
    args: Any = None,
    *,
    spark: SparkSession | None = None,
    data: Any = None,
    validation: Any = None,
    show: bool | None = None,
    **options: Unpack[FedClusterOptions],
) -> Cluster:
    """Start ``map_fun(args, ctx)`` on a cluster of nodes; returns when all of them run, and have the rows of ``data``.

    Parameters
    ----------
    map_fun : callable
        Runs on every node, in a process of its own; takes ``(args, ctx)``, ``(args)``, ``(ctx)`` or nothing.
    args : object
        What the function gets as ``args`` (pickled with cloudpickle).
    spark : SparkSession, optional
        Whose executors to use; by default that of ``data``, or the active session.
    data, validation : object, optional
        Rows for ``ctx.dataset`` and ``ctx.validation``, as `Cluster.train` takes them. Further rows can be fed with
        that once this returns.
    show : bool, optional
        Whether the cluster is shown: live in a notebook, as lines of text elsewhere. By default in a notebook only.
    {options}

    Returns
    -------
    Cluster
        Also a context manager, which stops it at the end.

    Raises
    ------
    ConfigError, NoSession, NotEnoughSlots, NotEnoughRoom, ExecutorMismatch, PayloadError
        Before anything is started.
    ReservationTimeout, NodeFailed
        If the nodes do not come up; nothing is left running.
    FeedError
        If the rows cannot be fed; nothing is left running.

    Examples
    --------
    >>> import tfos_lab
    >>> with tfos_lab.run(lambda args, ctx: args * ctx.world_size, 21, cluster_size=2) as cluster:
    ...     dict(cluster.wait())
    {'chief:0': 42, 'worker:0': 42}
    """
    __tracebackhide__ = True
    config, feed = make_configs(**options)
    session = spark if spark is not None else session_of(data)
    data, splits = check_splits(data, validation, session, columns=feed.columns, objects=feed.objects)
    cluster = make_cluster(map_fun, args, spark=session, config=config)
    try:
        if data is not None:
            cluster.feeding.expect(data)
        bring_up(cluster, show=show, folds_error=True)
        if data is not None:
            with cluster.feeding.required():
                cluster.train(data, validation=splits, **train_keywords(vars(feed)))
    except NodeFailed:
        cluster.stop()  # what the function has written before is still on its way
        raise
    except BaseException:
        cluster.stop(grace=0.0)
        raise
    return cluster


@takes_options(ClusterOptions, "run")
def start(
    args: Any = None,
    *,
    spark: SparkSession | None = None,
    show: bool | None = None,
    **options: Unpack[ClusterOptions],
) -> InteractiveCluster:
    """Start nodes that wait for cells; returns when all of them wait.

    Parameters
    ----------
    args : object
        What cells see as ``args`` (pickled with cloudpickle).
    spark : SparkSession, optional
        Whose executors to use; the active session by default.
    show : bool, optional
        Whether the nodes are shown, as by `tfos_lab.run`.
    {options}

    Returns
    -------
    InteractiveCluster
        Also a context manager, which stops it at the end. Its `run_cell` runs code on the nodes; in a notebook,
        ``%%tfos on=NAME`` runs a cell.

    Raises
    ------
    ConfigError, NoSession, NotEnoughSlots, NotEnoughRoom, ExecutorMismatch, PayloadError
        Before anything is started.
    ReservationTimeout, NodeFailed
        If the nodes do not come up; nothing is left running.
    """
    __tracebackhide__ = True
    config = ClusterConfig(**given_options(ClusterOptions, "run", options, function="start"))
    cluster = make_interactive(args, spark=spark, config=config)
    try:
        bring_up(cluster, show=show)
    except BaseException:
        cluster.stop(grace=0.0)
        raise
    return cluster


def bring_up(cluster: Cluster, *, show: bool | None = None, folds_error: bool = False) -> None:
    """Launch a cluster, and return when all its nodes run; show it from then on, if asked to (see `open_display`)."""
    __tracebackhide__ = True
    if is_shown(show=show):
        finish(begin_launch(cluster), _shown(cluster, folds_error=folds_error))
    else:
        cluster.launch()
    cluster.wait_until_running()


def begin_launch(cluster: Cluster) -> Future[None]:
    """Begin to launch a cluster; an error that comes at once is raised here, before anything is shown."""
    __tracebackhide__ = True
    launch = on_a_thread(cluster.launch, name=f"tfos-launch-{cluster.id}")
    if futures.wait([launch], _UNSEEN_S).done:
        launch.result()
    return launch


def _shown(cluster: Cluster, *, folds_error: bool) -> Display:
    """Show a cluster for as long as it lives: nothing waits for it here."""
    render_errors()
    in_kernel = current_kernel() is not None
    display = open_display(cluster, blocking=not in_kernel, folds_error=folds_error)
    if in_kernel and cluster.config.tensorboard:
        from tfos_lab.notebook.display.tensorboard import show_tensorboard

        show_tensorboard(cluster)
    if not in_kernel:
        lines = threading.Thread(target=_write_lines, args=(cluster, display), name="tfos-lines", daemon=True)
        lines.start()
        atexit.register(lambda: lines.join(_LAST_LINES_S) if cluster.ended else None)
    return display


def _write_lines(cluster: Cluster, display: Display) -> None:
    while not cluster.ended:
        display.poll()
        time.sleep(STEP_S)
    display.close()


def finish(task: Future[None], display: Display) -> None:
    """Wait for the end of work on a thread, and raise its error, if there was one."""
    __tracebackhide__ = True
    while not futures.wait([task], STEP_S).done:
        display.poll()
    task.result()
