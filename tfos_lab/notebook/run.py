"""Runs a ``%%tfos`` cell: starts the cluster, shows it, feeds it, waits for it; ■ stops it."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from concurrent.futures import Future
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from tfos_lab.core.config import train_keywords
from tfos_lab.core.launchers import LAUNCHERS
from tfos_lab.core.states import RunState
from tfos_lab.core.threads import on_a_thread
from tfos_lab.driver.cluster import Cluster
from tfos_lab.driver.feed.splits import check_splits, session_of
from tfos_lab.driver.start import clusters, make_cluster
from tfos_lab.errors import ClusterEnded, ClusterInterrupted, ConfigError, WaitTimeout
from tfos_lab.notebook.cell.function import typed_cell
from tfos_lab.notebook.display import Display, open_display
from tfos_lab.notebook.display.kernel import current_kernel, takes_input
from tfos_lab.notebook.display.tensorboard import show_tensorboard
from tfos_lab.notebook.options import CellOptions, is_session
from tfos_lab.notebook.start import STEP_S, begin_launch, finish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tfos_lab.driver.parallel.runs import Feed


# After ■ nobody wants to wait: nodes get no more than this to shut down, whatever `grace` is.
INTERRUPT_GRACE_S = 1.0
# Which cell has started a cluster: a cell that runs again replaces its own run.
_STARTED_BY: WeakKeyDictionary[Cluster, str] = WeakKeyDictionary()
# How long the display stays open for the end of a function that failed in this very process.
STOP_SHOWN_S = 1.0


def run_cell(shell: Any, map_fun: FunctionType, options: CellOptions) -> Mapping[str, object] | None:
    """Run ``map_fun`` with the given options, and return what the nodes returned, if any of them returned something.

    A cell in the background returns nothing. Raises `ClusterInterrupted` if the user interrupted the cell, or stopped
    the cluster while the cell waited, and a `TfosError` for anything that goes wrong.
    """
    __tracebackhide__ = True
    try:
        require_free_name(shell, options)
        session = find_session(shell, options)
        feed = options.feed
        data, splits = check_splits(
            options.data, options.validation, session, columns=feed.columns, objects=feed.objects
        )
        options = dataclasses.replace(options, data=data, validation=splits)
        cluster = make_cluster(map_fun, options.args, spark=session, config=options.cluster)
        put_into(shell, cluster)
        return run_cluster(cluster, map_fun, options)
    except ClusterInterrupted:
        raise
    except KeyboardInterrupt:
        # Before the cluster was made, or after its end; an interrupt in between stops the nodes first.
        raise ClusterInterrupted(options.cluster.name) from None


def run_cluster(
    cluster: Cluster,
    map_fun: Callable[..., Any],
    options: CellOptions,
    *,
    quiet: Display | None = None,
    feed_rows: Feed | None = None,
) -> Mapping[str, object] | None:
    """Launch a cluster that was made, show it, feed it, and wait for its end; returns and raises what `run_cell` does.

    ``quiet`` is polled while the cluster runs, instead of the display that would show it. ``feed_rows`` feeds the
    cluster once its nodes run, instead of feeding the ``data`` of the options.
    """
    __tracebackhide__ = True
    rows = feed_rows or partial(_feed_data, options=options)
    try:
        if options.data is not None:
            cluster.feeding.expect(options.data)
        launch = begin_launch(cluster)
        display = quiet or open_display(cluster, blocking=not options.background)
        if options.cluster.tensorboard and quiet is None:
            show_tensorboard(cluster)
        if options.background:
            finish(launch, display)
            _continue_in_background(cluster, options)
            return None
        with display:
            return _wait(cluster, options, display, map_fun, launch=launch, feed_rows=rows)
    except BaseException:
        if not cluster.ended:
            _stop_at_once(cluster, options)  # nothing shows it, so it must not go on
        raise


def put_into(shell: Any, cluster: Cluster) -> None:
    """Make the cluster a name of the notebook, and the run of the cell that runs now."""
    shell.user_ns[cluster.name] = cluster
    _STARTED_BY[cluster] = typed_cell(shell)


def require_free_name(shell: Any, options: CellOptions) -> None:
    """Make sure that no cluster with the cell's name lives: stop the one that this very cell has started before.

    Raises `ConfigError` for one that another cell has started.
    """
    for cluster in clusters():
        if cluster.name != options.cluster.name or cluster.ended:
            continue
        if _STARTED_BY.get(cluster) != typed_cell(shell):
            name = cluster.name
            problem = (
                f"the cluster '{name}' is still {cluster.state}: wait for it with {name}.wait(), stop it with "
                f"%tfos stop {name}, or give this one another name=..."
            )
            raise ConfigError([problem])
        cluster.stop(grace=min(options.cluster.grace, INTERRUPT_GRACE_S))


def find_session(shell: Any, options: CellOptions) -> SparkSession | None:
    """Return the session to use: the given one, that of the data, or ``spark`` if no other is active."""
    given: SparkSession | None = options.spark
    if given is not None or "pyspark" not in sys.modules:
        return given
    if (of_data := session_of(options.data)) is not None:
        return of_data
    from tfos_lab.launchers.spark.session import active_session

    session: SparkSession | None = shell.user_ns.get("spark")
    return session if active_session() is None and is_session(session) else None


def _wait(
    cluster: Cluster,
    options: CellOptions,
    display: Display,
    map_fun: Callable[..., Any],
    *,
    launch: Future[None],
    feed_rows: Feed,
) -> Mapping[str, object] | None:
    __tracebackhide__ = True

    def work() -> None:
        cluster.wait_until_running()
        feed_rows(cluster)

    feeder: Future[None] | None = None
    try:
        finish(launch, display)
        feeder = on_a_thread(work, name=f"tfos-cell-{cluster.id}")
        finish(feeder, display)
        results = _wait_for_results(cluster, display, map_fun)
    except KeyboardInterrupt:
        _stop_at_once(cluster, options)
        if feeder is not None:
            futures.wait([feeder], INTERRUPT_GRACE_S)  # it cancels Spark's job
        raise ClusterInterrupted(cluster.name) from None
    except ClusterEnded as ended:
        state = RunState(ended.state)
        if state.stop_requested:
            raise ClusterInterrupted(cluster.name) from None
        if state is RunState.FAILED:
            raise cluster.failure() from None  # before rows could be fed
        raise
    except BaseException:
        if not cluster.ended:
            _stop_at_once(cluster, options)  # the cell has failed: nothing of it goes on, and the display shows that
        raise
    return results if any(value is not None for value in results.values()) else None


def _wait_for_results(cluster: Cluster, display: Display, map_fun: Callable[..., Any]) -> Mapping[str, object]:
    __tracebackhide__ = True
    if LAUNCHERS[cluster.view().launcher].runs_inline:
        return _run_here(cluster, map_fun)
    while True:
        display.poll()
        with contextlib.suppress(WaitTimeout):
            return cluster.wait(timeout=STEP_S)


def _run_here(cluster: Cluster, map_fun: Callable[..., Any]) -> Mapping[str, object]:
    """Run the function on this thread; its errors have no frames between the cell's line and its own."""
    __tracebackhide__ = True
    try:
        with stopping_at_breakpoints():
            return cluster.wait()
    except Exception as error:  # noqa: BLE001 - whatever the function raises
        deadline = time.monotonic() + STOP_SHOWN_S
        while not cluster.ended and time.monotonic() < deadline:
            time.sleep(STEP_S)
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code is not getattr(map_fun, "__code__", None):
            frames = frames.tb_next
        raise error.with_traceback(frames or error.__traceback__) from error.__cause__


def _stop_at_once(cluster: Cluster, options: CellOptions) -> None:
    """Stop the nodes within a short time; a second interrupt gives them no time at all."""
    try:
        cluster.stop(grace=min(options.cluster.grace, INTERRUPT_GRACE_S))
    except KeyboardInterrupt:
        cluster.stop(grace=0.0)


def _feed_data(cluster: Cluster, options: CellOptions) -> None:
    if options.data is None:
        return
    with cluster.feeding.required():
        cluster.train(options.data, validation=options.validation, **train_keywords(vars(options.feed)))


def _continue_in_background(cluster: Cluster, options: CellOptions) -> None:
    """Feed and wait on a thread; nothing is printed, `cluster.wait` raises errors."""

    def work() -> None:
        try:
            cluster.wait_until_running()
            _feed_data(cluster, options)
            if options.data is not None or LAUNCHERS[cluster.view().launcher].runs_inline:
                cluster.wait()  # without data, another cell may still feed the nodes
        except Exception as error:  # noqa: BLE001 - `cluster.wait` and the display report what the driver knows
            if not cluster.ended:
                cluster.history.add_note(f"stopped: {error}")  # a print would go to whichever cell runs
                cluster.stop()

    threading.Thread(target=work, name=f"tfos-cell-{cluster.id}", daemon=True).start()


# ---- breakpoints in a function that runs in this process -------------------------------------------------------------


@contextlib.contextmanager
def stopping_at_breakpoints() -> Iterator[None]:
    """Make ``breakpoint()`` stop within this context."""
    before = sys.breakpointhook
    if not before.__module__.startswith("debugpy"):
        yield  # somebody chose another debugger
        return

    def stop(*args: Any, **named: Any) -> Any:
        kernel = current_kernel()
        debugpy = sys.modules.get("debugpy")
        is_attached = debugpy is not None and bool(debugpy.is_client_connected())
        if is_attached or kernel is None or not takes_input(kernel):
            return before(*args, **named)
        from IPython.core.debugger import set_trace

        return set_trace(sys._getframe(1))  # type: ignore[no-untyped-call]  # noqa: SLF001 - as pdb does

    sys.breakpointhook = stop
    try:
        yield
    finally:
        sys.breakpointhook = before
