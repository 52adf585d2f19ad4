"""Runs a ``%%tfos`` cell: starts the cluster, shows it, feeds it, waits for it; ■ stops it."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from tfos_lab.engine.cluster import runtime_of
from tfos_lab.engine.registry import clusters
from tfos_lab.errors import ClusterEnded, ClusterInterrupted, ConfigError, WaitTimeout
from tfos_lab.jupyter import breakpoints
from tfos_lab.jupyter.display.base import Display
from tfos_lab.jupyter.display.choose import open_display
from tfos_lab.jupyter.display.tensorboard import show_tensorboard
from tfos_lab.jupyter.options.table import CellOptions

# Short, so that ■ and the display are quick.
STEP_S = 0.05
# What is refused within this time is refused without a display; a launch that takes longer is shown.
UNSEEN_S = 0.15
# After ■ nobody wants to wait: nodes get this long to say good-bye, whatever `grace` is.
INTERRUPT_GRACE_S = 1.0
# How long the display is kept open for the end of a function that failed in this very process.
STOP_SHOWN_S = 1.0


def run_cell(shell: Any, map_fun: Any, options: CellOptions) -> Any:
    """Run ``map_fun`` as the options say.

    Returns
    -------
    Results or None
        What the nodes returned, if any of them returned something; nothing for a cell in the background.

    Raises
    ------
    ClusterInterrupted
        If the user interrupted the cell, or stopped the cluster while the cell waited.
    TfosError
        Whatever went wrong.
    """
    __tracebackhide__ = True
    try:
        return _run(shell, map_fun, options)
    except ClusterInterrupted:
        raise
    except KeyboardInterrupt:
        # Before there was a cluster, or after its end; what is between stops the nodes first.
        raise ClusterInterrupted(options.name) from None


def _run(shell: Any, map_fun: Any, options: CellOptions) -> Any:
    __tracebackhide__ = True
    make_room(options)
    from tfos_lab.engine.start import make_cluster

    cluster = make_cluster(map_fun, options.args, spark=find_session(shell, options), config=options.config())
    shell.user_ns[options.name] = cluster
    launch = _Task(f"tfos-launch-cell-{cluster.id}", runtime_of(cluster).launch)
    try:
        launch.start()
        launch.join(UNSEEN_S)
        launch.raise_error()
        display = open_display(runtime_of(cluster), blocking=not options.background)
        if options.tensorboard:
            show_tensorboard(cluster)
        if options.background:
            launch.finish(display)
            _go_on_in_background(cluster, options)
            return None
    except BaseException:
        _stop_at_once(cluster, options)  # nobody would see it
        raise
    with display:
        return _wait(cluster, options, display, map_fun, launch)


def make_room(options: CellOptions) -> None:
    """See to it that no cluster of that name lives: refuse, or stop the old one if the user said so."""
    for cluster in clusters():
        if cluster.name != options.name or cluster.ended:
            continue
        if not options.replace:
            raise ConfigError([_still_there(cluster)])
        cluster.stop(grace_s=min(options.grace, INTERRUPT_GRACE_S))


def _still_there(cluster: Any) -> str:
    name = cluster.name
    return (
        f"the cluster '{name}' is still {cluster.state}: wait for it with {name}.wait(), stop it with "
        f"%tfos stop {name}, write `replace` to stop it first, or give this one another name=..."
    )


def find_session(shell: Any, options: CellOptions) -> Any:
    """Return the session to use: the one asked for, that of the data, or ``spark`` if no other is active."""
    if options.spark is not None or "pyspark" not in sys.modules:
        return options.spark
    if hasattr(options.data, "sparkSession"):
        return options.data.sparkSession
    from tfos_lab.engine.spark.session import active_session
    from tfos_lab.jupyter.options.values import is_session

    session = shell.user_ns.get("spark")
    return session if active_session() is None and is_session(session) else None


def _wait(cluster: Any, options: CellOptions, display: Display, map_fun: Any, launch: _Task) -> Any:
    __tracebackhide__ = True
    feeder = _Task(f"tfos-cell-{cluster.id}", lambda: feed(cluster, options))
    try:
        launch.finish(display)
        feeder.start()
        feeder.finish(display)
        results = _wait_for_results(cluster, display, map_fun)
    except KeyboardInterrupt:
        _stop_at_once(cluster, options)
        if feeder.is_alive():
            feeder.join(INTERRUPT_GRACE_S)  # Spark's job is cancelled there
        raise ClusterInterrupted(cluster.name) from None
    except ClusterEnded as ended:
        if ended.state in ("stopped", "stopping"):
            raise ClusterInterrupted(cluster.name) from None
        raise
    except BaseException:
        if not cluster.ended:
            _stop_at_once(cluster, options)  # the cell has failed: nothing of it goes on
        raise
    return results if any(value is not None for value in results.values()) else None


def _wait_for_results(cluster: Any, display: Display, map_fun: Any) -> Any:
    __tracebackhide__ = True
    if cluster.view().launcher == "inline":
        return _run_here(cluster, map_fun)
    while True:
        display.poll()
        with contextlib.suppress(WaitTimeout):
            return cluster.wait(timeout_s=STEP_S)


def _run_here(cluster: Any, map_fun: Any) -> Any:
    """Let the function run on this thread; what it raises has no frames between the cell's line and its own."""
    __tracebackhide__ = True
    try:
        with breakpoints.stopping():
            return cluster.wait()
    except Exception as error:  # noqa: BLE001 - whatever the function raises
        deadline = time.monotonic() + STOP_SHOWN_S
        while not cluster.ended and time.monotonic() < deadline:
            time.sleep(STEP_S)
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code is not map_fun.__code__:
            frames = frames.tb_next
        raise error.with_traceback(frames or error.__traceback__) from error.__cause__


def _stop_at_once(cluster: Any, options: CellOptions) -> None:
    """Stop the nodes within a bounded time; a second interrupt leaves them no time at all."""
    try:
        cluster.stop(grace_s=min(options.grace, INTERRUPT_GRACE_S))
    except KeyboardInterrupt:
        cluster.stop(grace_s=0.0)


class _Task(threading.Thread):
    """Does something that takes a while, so that the main thread can show how it goes, and be interrupted."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._work = work
        self._error: BaseException | None = None

    def run(self) -> None:
        """Do it; the error is kept for `raise_error`."""
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - raised on the main thread
            self._error = error

    def finish(self, display: Display) -> None:
        """Wait for the end, and raise what went wrong, if anything did."""
        __tracebackhide__ = True
        while self.is_alive():
            display.poll()
            self.join(STEP_S)
        self.raise_error()

    def raise_error(self) -> None:
        """Raise what has gone wrong so far, if anything has."""
        __tracebackhide__ = True
        if self._error is not None:
            raise self._error


def feed(cluster: Any, options: CellOptions) -> None:
    """Wait until all nodes run, then feed ``data``, if there is any."""
    cluster.wait_until_running()
    if options.data is not None:
        cluster.train(
            options.data,
            epochs=options.epochs,
            columns=options.columns,
            remainder=options.remainder,
            timeout_s=options.feed_timeout,
        )


def _go_on_in_background(cluster: Any, options: CellOptions) -> None:
    """Feed and wait on a thread of its own; nothing is printed, `cluster.wait` raises what went wrong."""

    def go_on() -> None:
        try:
            feed(cluster, options)
            if options.data is not None or cluster.view().launcher == "inline":
                cluster.wait()  # without data the user may still feed from another cell
        except Exception as error:  # noqa: BLE001 - `cluster.wait` and the display tell what the engine knows
            if not cluster.ended:
                runtime_of(cluster).note(f"stopped: {error}")  # a print would go to whichever cell runs
                cluster.stop()

    threading.Thread(target=go_on, name=f"tfos-cell-{cluster.id}", daemon=True).start()
