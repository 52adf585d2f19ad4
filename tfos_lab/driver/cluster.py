"""A cluster as its user holds it, which is one run: feed it, wait for it, read what it reports, stop it.

It has a folder (`RunDir`), a history and a bus of what happens, and the head of the nodes that live now
(`tfos_lab.driver.head`). When a node is taken away and ``restarts`` are left, another head takes its place: a function
that raised would raise again, but a node that was killed, is silent, or went with its executor may do better elsewhere.
What the nodes had learned is the function's own to keep: `ctx.callbacks()` does so for Keras' ``fit``.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from tfos_lab.core.config import ClusterConfig, RowOptions
from tfos_lab.core.launchers import LauncherTraits
from tfos_lab.core.listener import Listener
from tfos_lab.core.messages import INPUT_QUEUE, KEPT, FilePiece, FromAgent, LogRecord
from tfos_lab.core.options import given_options, takes_options
from tfos_lab.core.roles import NodeSpec
from tfos_lab.core.states import RunState
from tfos_lab.data.frames import is_stream
from tfos_lab.data.session_stores import SessionStores
from tfos_lab.driver.bus import Bus
from tfos_lab.driver.cells import Cells
from tfos_lab.driver.diagnosis.diagnosis import Assessor, Diagnosis
from tfos_lab.driver.feed.feeding import UNFED, Feeding
from tfos_lab.driver.head import LAST_ERRORS_S, Head, HeadLost
from tfos_lab.driver.history import History
from tfos_lab.driver.logs import LogWriter, read_log, read_logs
from tfos_lab.driver.metrics import draw_cluster, metrics_frame
from tfos_lab.driver.output import OutputReceiver
from tfos_lab.driver.profile import NO_TRACE, profile_node
from tfos_lab.driver.publisher import make_publisher
from tfos_lab.driver.record.inputs import Plain, plain_inputs
from tfos_lab.driver.record.mlflow import MlflowLogger, make_logger
from tfos_lab.driver.record.recorder import LAST_RECORD_S, RunRecorder, take_snapshot
from tfos_lab.driver.results import Results, find_run_model, load_run_model
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.driver.runs.keep import keep_newest
from tfos_lab.driver.runs.run import Run
from tfos_lab.driver.shown import ShownFiles
from tfos_lab.driver.state.cluster_state import MOVES, STOP_EXTRA_S, RestartBudget
from tfos_lab.driver.state.events import (
    ClusterView,
    EvaluatorFailed,
    Event,
    LogText,
    MetricsReported,
    NodeStartedAgain,
    NodeView,
    Noted,
    rank_of,
)
from tfos_lab.driver.state.instructions import Publish
from tfos_lab.errors import (
    ClusterEnded,
    ConfigError,
    NotEnoughSlots,
    ProfileFailed,
    TfosError,
    WaitTimeout,
)
from tfos_lab.launchers.base import Launcher, make_launcher
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.texts import first_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    import matplotlib.figure
    import pandas as pd
    from pyspark.sql import SparkSession

    from tfos_lab.core.messages import Outcome
    from tfos_lab.driver.feed.inference import Inference
    from tfos_lab.driver.feed.stream import DStreamFeed, StreamFeed
    from tfos_lab.driver.profile import Profile

logger = logging.getLogger(__name__)

# Short enough that ■ in a notebook is quick: Python sees an interrupt between two waits.
WAIT_STEP_S = 0.1
# Spark takes a while to replace a lost executor.
_SLOTS_POLL_S = 1.0


class Cluster:
    """All nodes of one run. Made by `tfos_lab.run`; usable with ``with``, which stops it at the end.

    Safe to use from any thread.
    """

    # Whether the run has failed if its evaluator has.
    needs_evaluator = False
    # What only the rest of the package uses, as it does the attributes: users who press tab see neither.
    _internal = frozenset({
        "close", "failure", "inputs", "launch", "log_path", "map_fun", "needs_evaluator", "on_over", "reports_after",
    })  # fmt: skip

    def __init__(
        self,
        config: ClusterConfig,
        call: tuple[Callable[..., Any], Any],
        *,
        launcher: LauncherTraits,
        node_specs: list[NodeSpec],
        files: RunDir,
        payload: bytes = b"",
        spark: SparkSession | None = None,
        hosts: tuple[str, str] = ("127.0.0.1", "127.0.0.1"),
        stores: SessionStores | None = None,
        called_s: float | None = None,
        chief_stays_here: bool = True,
        published: bool = True,
        make_listener: Callable[[str, str, int], Listener] = Listener,
        make_launcher: Callable[[Head], Launcher] = make_launcher,
    ) -> None:
        # What was asked for, what it is started with, and where the driver listens and is reached.
        self.config, self.call, self.payload = config, call, payload
        self.launcher, self.node_specs = launcher, node_specs
        self.spark, self.stores, self.hosts = spark, stores or SessionStores(), hosts
        self.called_s = time.time() if called_s is None else called_s
        self.working_dir = str(Path.cwd())
        self.chief_stays_here = chief_stays_here
        self.make_listener, self.make_launcher = make_listener, make_launcher
        # What has happened, and what nodes have sent: all heads share it.
        self.files = files
        self.history = History(self.called_s)
        self.bus = Bus(self._on_events)
        self.log_writer = LogWriter(files, self.history.add_note)
        self.output = OutputReceiver(files, of_all=config.collect == "all", notify=self.history.add_note)
        self.shown = ShownFiles(files.path)
        self.cells = Cells()
        self.restarts = RestartBudget(config.restarts)
        self.feeding = Feeding(self)
        self._results = Results(self._outcomes, files.result)
        self._inference: Inference | None = None
        self._assessor = Assessor()
        self._spark_ui = spark_session.ui_of(spark) if spark is not None else ""
        self._changing = threading.RLock()
        self._stopping = False
        try:
            self.head = Head(self, 0)
        except BaseException:
            self.output.conclude(is_last=True)
            raise
        # Whoever writes the run down while it goes on: ``run.json``, and MLflow where a run of it is active here.
        self._recorder = RunRecorder(self, self._on_recorded)
        mlflow = make_logger(self)
        self._recorders: list[RunRecorder | MlflowLogger] = [self._recorder, *([mlflow] if mlflow is not None else [])]
        self.publisher = None
        if published:
            self.publisher = make_publisher(
                files, lambda: self.output.events.folder, lambda: self.ended, tensorboard=config.tensorboard
            )
            self.publisher.publish()

    def __dir__(self) -> list[str]:
        return sorted(set(dir(type(self))) - self._internal)

    def __repr__(self) -> str:
        view = self.view()
        up = sum(node.state.is_up for node in view.nodes)
        return f"<Cluster {self.name!r}: {view.state}, {up}/{len(view.nodes)} nodes, {view.launcher}>"

    def _repr_html_(self) -> str:
        return self._as_run()._repr_html_()

    def _as_run(self) -> Run:
        return Run(take_snapshot(self), self.files.path)

    # ---- what it is -------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Unique identifier: the name of `run_dir`."""
        return self.files.id

    @property
    def name(self) -> str:
        """The label that the user gave."""
        return str(self.config.name)

    @property
    def run_dir(self) -> Path:
        """Folder on this machine with the nodes' whole logs, a record of the run, and their output.

        `output_dir` is in it, and ``run.json`` with the run's options, versions, metrics and outcome.
        """
        return self.files.path

    @property
    def output_dir(self) -> Path:
        """Folder in `run_dir` with what the nodes wrote to ``ctx.output_dir``; there once they have sent something."""
        return self.files.output

    @property
    def state(self) -> RunState:
        """The state of the cluster as a whole; see `ClusterView`."""
        with self.head.lock:
            return self.head.state.state

    @property
    def ended(self) -> bool:
        """Whether the cluster has ended, well or badly."""
        return self.state.ended

    @property
    def nodes(self) -> tuple[NodeView, ...]:
        """The nodes, in launch order: ps, chief, evaluator, workers."""
        return self.view().nodes

    def view(self) -> ClusterView:
        """Return all that can be seen of the cluster now, as one value."""
        head = self.head
        with head.lock:
            state, nodes, reason = head.state.state, head.state.views, head.state.reason
        view = ClusterView(
            cluster_id=self.id,
            name=self.name,
            state=state,
            launcher=self.launcher.name,
            started_s=self.called_s,
            ended_s=self.history.ended_s,
            nodes=nodes,
            timings=self.timings,
            restarts=self.history.restarts,
            feeds=self.history.feeds,
            reason=str(head.launch_error or reason),
            notes=(*self.history.notes, *self.output.notes(ended=state.ended)),
            spark_ui=self._spark_ui,
            tensorboard=self.publisher is not None and self.publisher.shows_tensorboard,
            shown=self.shown.views,
        )
        return self._assessor.assess(view, time.time())

    # ---- what it reports --------------------------------------------------------------------------------------------

    @property
    def results(self) -> Results:
        """What nodes have returned so far: ``results["worker:0"]``."""
        return self._results

    def _outcomes(self) -> dict[str, Outcome]:
        head = self.head
        with head.lock:
            return head.state.outcomes

    @property
    def timings(self) -> dict[str, float]:
        """Seconds from the call to the end of each phase: launched, reserved, released, running, done."""
        return dict(self.history.timings)

    @property
    def metrics(self) -> pd.DataFrame:
        """What nodes have reported so far, as a table.

        Columns: ``time`` (float64, seconds since the call), ``node`` (string), ``step`` (Int64, may be missing), and
        one float64 column for each metric, NaN where a report lacks it. Rows are in the order of arrival.
        """
        return metrics_frame(self.history.metrics, self.called_s)

    def diagnose(self) -> Diagnosis:
        """Say why training is as slow as it is, from what the nodes have measured in the last seconds.

        Returns
        -------
        Diagnosis
            ``kind`` and ``verdict`` say what limits the speed, the second one in words; ``nodes`` has each node's step
            time, what it waits for, and what it takes of its host. ``progress`` and ``seconds_left`` are of the whole
            training. Of a cluster that has ended, what was known last.

        Examples
        --------
        >>> print(cluster.diagnose())  # doctest: +SKIP
        compute bound: 93 % of a step of 210 ms is spent in TensorFlow, on 1.9 cores of each node; more nodes or GPUs …
        """
        return self._assessor.diagnose(self.view())

    def reports_after(self, count: int = 0) -> tuple[list[MetricsReported], int]:
        """Return the metrics reported after the first ``count`` ones, and how many there have been in all."""
        return self.history.metrics_after(count)

    def plot(self) -> matplotlib.figure.Figure:
        """Draw the metrics, one line for each node, and a timeline of the phases."""
        return draw_cluster(self.view(), self.history.metrics)

    def report(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the run, as it is now, as one HTML file to send to somebody; see `Run.report`, which takes the same."""
        return self._as_run().report(path)

    @property
    def events(self) -> list[Event]:
        """What has happened, oldest first; for log text, see `logs`."""
        return self.history.events

    def story(self) -> str:
        """Return how the cluster came to be where it is: a line for each change of its state and its nodes'.

        Each with the seconds since the cluster was asked for, oldest first: what to send along with a question.
        """
        return self.history.story()

    @property
    def tensorboard_url(self) -> str | None:
        """Where a browser shows TensorBoard, also when the cluster has ended; None without ``tensorboard=True``.

        In a notebook it is an address of its Jupyter server, behind the user's login. Where no Jupyter server with our
        extension shows it (a script, IPython in a terminal, papermill), it is a link for browsers on this machine. The
        link works as long as this process lives: a port on 127.0.0.1, opened when the link is first asked for, that
        answers only to this link. It has been tried when it is returned, which may take some seconds.
        """
        return self.publisher.tensorboard_url if self.publisher is not None else None

    def logs(self, node: str | None = None, tail: int | None = None) -> str:
        """Return what a node has written, or all nodes, with their names before each line.

        Parameters
        ----------
        node : str, optional
            Such as ``"worker:0"``; all nodes by default.
        tail : int, optional
            Only the last so many lines of each node, without some misleading lines of TensorFlow and Keras.

        Raises
        ------
        KeyError
            If there is no such node.
        """
        if node is None:
            return read_logs({view.name: self.files.log(view.name) for view in self.nodes}, tail)
        return read_log(self.log_path(node), tail)

    def log_path(self, node: str) -> Path:
        """Return the log file of ``node``, which exists once that has written something; KeyError for no such node."""
        head = self.head
        with head.lock:
            rank_of(head.state.views, node)
        return self.files.log(node)

    def stacks(self, node: str | None = None, *, timeout: float = 5.0) -> dict[str, str]:
        """Return where the threads of a node, or of all nodes, are now, without stopping them.

        Parameters
        ----------
        node : str, optional
            Such as ``"worker:0"``; all nodes by default.
        timeout : float
            How many seconds to wait for answers. A process whose interpreter is locked by a long call into C is asked
            with a signal meanwhile; one that is stopped has no stacks.

        Returns
        -------
        dict of str to str
            The Python stacks of all threads by node, most recent call last; or why there are none.

        Raises
        ------
        KeyError
            If there is no such node.
        """
        return self.head.stacks_of(node, timeout)

    def profile(self, node: str | None = None, seconds: float = 5.0, *, trace: bool | None = None) -> Profile:
        """Find out what a node spends its time on, while it goes on.

        Parameters
        ----------
        node : str, optional
            Such as ``"worker:0"``; by default the one that leads.
        seconds : float
            How long; at most 600.
        trace : bool, optional
            Whether to take a trace with TensorFlow's own profiler, too. By default only of a node that is alone in its
            cluster: TensorFlow 2.21 may crash when the trace of a node ends that works with others, and the run fails.

        Returns
        -------
        Profile
            In a notebook, a flame graph of the Python functions; it is kept in `run_dir`. The trace is put among the
            run's event files, where TensorBoard shows it if its profile plugin is installed.

        Raises
        ------
        ConfigError
            If the time is none, or too long.
        KeyError
            If there is no such node.
        ProfileFailed
            If its function does not run, or its process does not answer.
        """
        head = self.head
        with head.lock:
            views = head.state.views
        rank = rank_of(views, node or next(view.name for view in views if view.is_chief))
        view = views[rank]
        if not view.state.is_up or view.state.ended:
            raise ProfileFailed(node=view.name, reason=f"its function does not run: its state is {view.state}")
        no_trace = "" if (len(views) == 1 if trace is None else trace) else NO_TRACE
        return profile_node(head, view, rank, seconds, no_trace=no_trace)

    @property
    def map_fun(self) -> Callable[..., Any]:
        """The user's function."""
        return self.call[0]

    @functools.cached_property
    def inputs(self) -> dict[str, Plain]:
        """The plain values that the function was called with, by name."""
        return plain_inputs(*self.call)

    # ---- the model --------------------------------------------------------------------------------------------------

    @property
    def model_path(self) -> Path:
        """The model that ``ctx.save_model`` saved on the chief, a path on this machine for `tfos_lab.predict`.

        Raises
        ------
        NoModel
            While the run goes on, and where nothing was saved.
        """
        return find_run_model(self.files.output, name=self.name, state=self.state)

    def model(
        self,
        *,
        custom_objects: Mapping[str, Any] | None = None,
        compile: bool = True,  # noqa: A002 - Keras' own name
        safe_mode: bool = True,
    ) -> Any:
        """Load the model that ``ctx.save_model`` saved on the chief; this imports TensorFlow into the kernel.

        Parameters
        ----------
        custom_objects : mapping of str to object, optional
            Classes and functions that the model was made with and Keras does not know.
        compile : bool
            Also restore optimizer, loss and metrics.
        safe_mode : bool
            Refuse models that hold Python code, as ``Lambda`` layers do.

        Returns
        -------
        keras.Model, tf_keras.Model or tf.Module
            The kind that was saved.

        Raises
        ------
        NoModel
            While the run goes on, where nothing was saved, and where this kernel lacks TensorFlow.

        Examples
        --------
        >>> model = cluster.model()  # doctest: +SKIP
        >>> model.predict(images)  # doctest: +SKIP
        """
        return load_run_model(self.model_path, custom_objects=custom_objects, compile=compile, safe_mode=safe_mode)

    # ---- events -----------------------------------------------------------------------------------------------------

    def _on_events(self, *events: Event) -> None:
        """Record events before the bus's subscribers get them; called by the thread that publishes them."""
        self.history.record(*events)
        for event in events:
            match event:
                case MetricsReported() | LogText():  # most are
                    continue
                case Noted(text=text):
                    self.history.add_note(text)
                case NodeStartedAgain():
                    which = f"restart {event.restart} of {event.restarts}, of {event.node} alone"
                    self.history.add_note(f"{which}, while the others go on: {event.reason}")
                case EvaluatorFailed():
                    self._tell_of_evaluator(event)
            self._recorder.on_event(event)

    def _tell_of_evaluator(self, event: EvaluatorFailed) -> None:
        """Say that training goes on without the evaluator, and write its traceback into its log."""
        text = f"{event.node} failed, and training goes on without it: {event.kind}: {first_line(event.message)}"
        self.history.add_note(f'{text} (see cluster.logs("{event.node}"))')
        logger.warning("%s: %s", self.name, text)
        if event.traceback:
            record = LogRecord(event.time_s, "stderr", f"{event.traceback.rstrip()}\n".encode())
            self.bus.publish(*self.log_writer.write(event.node, [record]))

    # ---- start ------------------------------------------------------------------------------------------------------

    def launch(self) -> None:
        """Start the nodes; returns when all are on their way, or the cluster has been stopped meanwhile."""
        self._start_recording()
        with self._changing:
            head = self.head
            head.listen()
        try:
            head.launcher.launch()
            head.await_start(self.config.start_timeout)
        except BaseException as error:
            head.fail_launch(error if isinstance(error, TfosError) else None, str(error))
            head.over.wait(STOP_EXTRA_S)
            raise

    def wait_until_running(self, timeout: float | None = None) -> None:
        """Wait until all nodes run.

        Raises
        ------
        ReservationTimeout
            If nodes are missing after ``timeout`` (``start_timeout`` by default); the cluster has failed.
        NodeFailed
            If a node failed before.
        """
        if timeout is not None and not self._has_begun():
            self.head.await_start(timeout)
        while not self.head.wait_for(self._has_begun, WAIT_STEP_S):
            pass
        if self.state is RunState.FAILED:
            self._raise_failure()

    def _has_begun(self) -> bool:
        # Inline, the function runs while it is waited for: before that there is no more than a reservation.
        state = self.head.state.state
        return state.has_begun or (self.launcher.runs_inline and state is RunState.STARTING)

    # ---- wait and stop ----------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> Results:
        """Wait until all training nodes have returned, and return what they returned.

        Parameters
        ----------
        timeout : float, optional
            Give up waiting after so many seconds; the cluster goes on.

        Raises
        ------
        NodeFailed
            With the remote traceback of the first node that failed.
        WaitTimeout
            If nodes are still running after ``timeout``.
        ClusterEnded
            If the cluster was stopped before its nodes returned.
        FeedError
            If the functions have returned, and none has read any of the rows that were fed.
        """
        self.feeding.end()
        try:
            if not self.ended:
                self.head.launcher.run_here()
        except BaseException:
            self.head.await_ends()
            raise
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.head.wait_for(self._is_over, WAIT_STEP_S):
            if deadline is not None and time.monotonic() > deadline:
                running = [view.name for view in self.nodes if not view.state.ended]
                raise WaitTimeout(waited_s=float(timeout or 0), still_running=running)
        self.feeding.settle()
        if self.head.over.is_set():
            self._join_recorders()
        if self.state is RunState.FAILED:
            self._raise_failure()
        if self.state is RunState.STOPPED:
            raise ClusterEnded(cluster=self.name, state="stopped", asked="wait for results")
        return self.results

    def _is_over(self) -> bool:
        """Whether the cluster has ended and nothing more is expected from its nodes."""
        if self.head.over.is_set():
            return self.ended
        ended_s = self.history.ended_s
        is_old = self.state is RunState.FAILED and ended_s is not None and time.time() - ended_s > LAST_ERRORS_S
        return is_old and not self.output.awaited

    def stop(self, *, grace: float | None = None) -> None:
        """Stop all nodes: SIGTERM, then SIGKILL after ``grace`` seconds. May be called twice, and from any thread.

        Waits while nodes on other hosts send what they have written to ``ctx.output_dir``, and while nodes put their
        event files at a remote ``log_dir``; a second call with ``grace=0`` does not.
        """
        self._stop(grace, () if self._stopping and grace == 0.0 else MOVES)

    def _stop(self, grace: float | None, awaits: tuple[type[FromAgent], ...]) -> None:
        self._start_recording()
        with self._changing:
            self._stopping = True
            head = self.head
            head.listen()  # a cluster that was never launched ends in the same way
        head.request(lambda now_s: head.state.stop(now_s, grace_s=grace, awaits=awaits))
        head.launcher.cancel()
        was_over = head.over.is_set()
        while head.is_at_work and not head.over.wait(WAIT_STEP_S):
            pass
        if head.state.gave_up and not was_over:
            logger.warning("cluster %s did not end in time: not all nodes have said how they ended", self.id)
        head.join(STOP_EXTRA_S)
        self._abandon(head, RunState.STOPPED)
        self._finish_recording()
        self._join_recorders()

    def shutdown(self, timeout: float | None = None) -> None:
        """Wait until the nodes have finished their work, then stop the cluster; may be called twice.

        Raises
        ------
        NodeFailed, WaitTimeout, FeedError
            As `wait` does; the cluster is stopped in any case.
        """
        try:
            if not self.ended:
                self.wait(timeout)
        finally:
            self.stop()

    def close(self) -> None:
        """Stop at once, waiting for no store, and remove what other processes see of the cluster; for Python's exit."""
        try:
            if not self.ended:
                self._stop(0.0, (FilePiece,))
            self._join_recorders()
        finally:
            if self.publisher is not None:
                self.publisher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, UNFED):
            self.feeding.fail(error)
        self.stop()

    # ---- when nodes are gone ----------------------------------------------------------------------------------------

    def on_over(self, head: Head) -> None:
        """A head's nodes are gone; called by its thread, at its end."""
        if head.state.state.ended:
            self._finish_recording()
        elif head.state.state is RunState.RESTARTING:
            name = f"tfos-restarts-{self.id}"
            threading.Thread(target=self._restart, args=(head,), name=name, daemon=True).start()

    def _restart(self, lost: Head) -> None:
        """Start all nodes again after one was lost, and feed them what the old ones had been fed."""
        head = self._make_next(lost)
        if head is None:
            return
        try:
            head.listen()
            self._launch_again(head)
            head.await_start(self.config.start_timeout)
            while not head.wait_for(lambda: self._has_begun() or head.over.is_set(), WAIT_STEP_S):
                pass
            # They may be lost before they run, such as with a host that Spark does not know to be gone.
            if head.state.state is RunState.RUNNING:
                self.feeding.catch_up(head)
        except HeadLost:
            pass  # another head follows, and catches up
        except Exception as error:
            if len(head.feed_state.returned) == len(head.feed_state.ranks):
                return  # the functions have returned: nobody was left to read the rows
            if not head.state.state.stop_requested:
                logger.exception("restart %d of cluster %s failed", head.number, self.id)
            head.fail_launch(error if isinstance(error, TfosError) else None, str(error))

    def _make_next(self, lost: Head) -> Head | None:
        """Make the head that follows a lost one; None if the user has stopped the cluster, or none can be made."""
        with self._changing:
            if self._stopping:
                self._abandon(lost, RunState.STOPPED)
                return None
            restart = f"restart {self.restarts.used} of {self.restarts.total}"
            self.history.add_note(f"{restart}, as {lost.state.reason}")
            try:
                self.head = Head(self, lost.number + 1)
            except Exception as error:  # noqa: BLE001 - such as no free port: the cluster fails as without restarts
                self.history.add_note(f"{restart} failed: {error}")
                self._abandon(lost, RunState.FAILED)
                self._finish_recording()
                return None
            return self.head

    def _launch_again(self, head: Head) -> None:
        deadline = time.monotonic() + self.config.start_timeout
        while True:
            try:
                head.launcher.launch()
                return
            except NotEnoughSlots:
                if time.monotonic() > deadline or self.ended:
                    raise
            time.sleep(_SLOTS_POLL_S)

    def _abandon(self, lost: Head, state: RunState) -> None:
        """End a cluster that was stopped while it was about to restart, or that cannot restart."""
        with lost.lock:
            for instruction in lost.state.abandon(time.time(), state):
                if isinstance(instruction, Publish):
                    self.bus.publish(instruction.event)
                    self.output.conclude(is_last=True)

    def _raise_failure(self) -> None:
        self.head.await_ends()
        raise self.failure()

    def failure(self) -> TfosError:
        """Return the error that says why the cluster failed."""
        return self.head.failure() or ClusterEnded(cluster=self.name, state=self.state, asked="tell a failure")

    # ---- what is written down ---------------------------------------------------------------------------------------

    def _start_recording(self) -> None:
        for one in self._recorders:
            one.start()

    def _finish_recording(self) -> None:
        for one in self._recorders:
            one.finish()

    def _join_recorders(self) -> None:
        deadline = time.monotonic() + LAST_RECORD_S
        for one in self._recorders:
            one.join(max(0.0, deadline - time.monotonic()))

    def _on_recorded(self) -> None:
        """The last record has been written; called by the recorder's thread."""
        keep_newest(self.files, self.config)
        if self.publisher is not None:
            self.publisher.end()

    # ---- rows -------------------------------------------------------------------------------------------------------

    @takes_options(RowOptions, "train")
    def train(
        self,
        data: Any,
        epochs: int = 1,
        *,
        validation: Any = None,
        timeout: float = 600.0,
        checkpoint: str | None = None,
        queue: str = INPUT_QUEUE,
        **options: Unpack[RowOptions],
    ) -> StreamFeed | DStreamFeed | None:
        """Feed a DataFrame (or RDD), or files, to the nodes that train.

        It returns when all rows have been stored with them; for files, when each node knows which rows it will read.

        In a cluster with parameter servers, it first waits until each node has asked for rows or has begun to serve:
        with ParameterServerStrategy the chief reads all rows, and where each worker trains by itself, the workers share
        them.

        Parameters
        ----------
        data : pyspark.sql.DataFrame, pyspark.RDD, DStream, pandas.DataFrame, arrays, or names of files
            The rows. Each one reaches exactly one node, exactly once per epoch. All rows of a streaming DataFrame or a
            DStream make one epoch, which lasts until the stream or the cluster is stopped. A NumPy array of shape
            ``(rows, …)`` is the column ``x``, a tuple of arrays the columns ``x``, ``y`` and ``w``; a dict of arrays, a
            structured array and a pandas DataFrame have names of their own. Spark lacks some dtypes: uint8 becomes
            int16, uint16 int32, uint32 and uint64 int64, and float16 and bfloat16 float32.

            A path, a pattern, a folder (``year=2024`` in folders' names are columns) or a list of them names Parquet,
            TFRecord, CSV (with a header) or JSON files (an object per line), at any address that all nodes can open.
            Each node reads its own equal share of the rows itself, in each epoch anew, around Spark; no session is
            needed. The types of CSV and JSON are those of each file's first rows. A name without ``/`` and wildcards,
            of which there is no file, is a table of Parquet files in Spark's catalog.
        epochs : int
            How often the nodes are to read them; they find it in ``ctx.epochs``.
        validation : object, optional
            Rows that ``ctx.validation(batch_size)`` reads: another source, or a fraction of ``data`` that is held out
            of it, such as 0.1 (the same rows each time; of a table or arrays, not of files or a stream). A dict has
            several by name, as in ``{"validation": 0.1, "test": test_df}``, for ``ctx.dataset(64, split="test")``.
            They come first, stay with the nodes, and are read as often as the function likes. A split has its rows
            from one call of a cluster.
        timeout : float
            The feed fails after so many seconds in which Spark ends no task, and nodes neither get nor take a row.
        queue : str
            Which ``ctx.data_feed(queue=...)`` reads the rows; ``ctx.dataset`` reads those of ``"input"``.
        checkpoint : str, optional
            Folder in which Spark records how far it has read a stream. Another cluster that is given this folder
            continues from there, also after this kernel was killed; the micro-batch that was under way is then read
            again, from its first row.
        {options}

        Returns
        -------
        None, StreamFeed or DStreamFeed
            For a stream, at once: a handle to stop it. `wait` waits for its end. Rows of a DStream come once its
            ``StreamingContext`` is started.

        Raises
        ------
        ConfigError
            For columns that do not exist or cannot become tensors, options that do not fit, and files that are not
            there, differ in format or columns, or cannot be read.
        FeedError
            If the rows cannot be fed, as where one cannot be pickled; the cause is named, and the nodes are stopped.
        NodeFailed
            If a node failed meanwhile.
        """
        from tfos_lab.driver.feed.request import is_dstream, make_request
        from tfos_lab.driver.feed.splits import split_rows
        from tfos_lab.driver.feed.stream import feed_dstream, feed_stream

        feeding = self.feeding
        asked = {"epochs": epochs, "feed_timeout": timeout, **given_options(RowOptions, "train", options)}
        data, splits = split_rows(data, validation)
        if is_dstream(data):
            self._feed_splits(splits, asked)
            dstream: DStreamFeed = feed_dstream(self, feeding, data, asked, queue)
            return dstream
        request = make_request(self, data, asked, queue)
        self._feed_splits(splits, asked)
        request = replace(request, source=feeding.next_source())
        if is_stream(request.frame):
            folder = checkpoint or self.files.checkpoint(len(feeding.streams))
            stream: StreamFeed = feed_stream(self, feeding, replace(request, stream=True), checkpoint=folder)
            return stream
        feeding.feed(request)
        return None

    def _feed_splits(self, splits: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
        """Feed the rows of splits, which nodes keep; raises as `train` does."""
        from tfos_lab.driver.feed.request import make_request
        from tfos_lab.driver.feed.splits import as_split

        kept = {**asked, "epochs": KEPT, "objects": False}
        if given := sorted(self.feeding.splits & set(splits)):
            names = ", ".join(map(repr, given))
            raise ConfigError(
                [f"validation: {names} has its rows already; give other rows another name, or leave it out"]
            )
        requests = []
        for name, rows in splits.items():
            with as_split(name):
                requests.append(make_request(self, rows, kept, name))
        self.feeding.splits.update(splits)
        for request in requests:
            self.feeding.feed(request)

    def inference(
        self,
        data: Any,
        columns: list[str] | None = None,
        *,
        schema: Any = None,
        objects: bool | None = None,
        queue: str = "input",
        timeout: float = 600.0,
    ) -> Any:
        """Have the nodes compute results for rows.

        The function loops over ``ctx.dataset(batch_size)`` and calls ``ctx.put_results`` once per batch; or it takes
        rows as Python objects from ``ctx.data_feed(train_mode=False)``, and gives one result for each to its
        ``batch_results``. Several inferences may follow one another; the loops end with `wait` or `shutdown`.

        Parameters
        ----------
        data : DataFrame, RDD, or arrays
            The rows; also a streaming DataFrame, and what `train` takes of pandas and NumPy.
        columns : list of str, optional
            Which columns the nodes see; all by default.
        schema : str or pyspark.sql.types.StructType, optional
            Names and types of the results, such as ``"prediction float"``. Without it, one row is sent to find out.
        objects : bool, optional
            Whether rows and results travel as Python objects, of any type, exactly as they are. By default an RDD's do
            if the nodes read rows with ``ctx.data_feed``; this waits until one of them asks for rows.
        queue : str
            Which ``ctx.data_feed(queue=...)`` reads the rows; ``ctx.dataset`` reads those of ``"input"``.
        timeout : float
            What uses the results fails after rows have waited so many seconds without any result.

        Returns
        -------
        pyspark.sql.DataFrame or pyspark.RDD
            All columns of ``data`` and those of the results, in the order of the rows within each partition. It is
            lazy: rows travel when it is used, as often as it is used, and the cluster has to live until then. For an
            RDD, or with ``objects=True``, an RDD of the results: one for each row, in order within each partition.

            Results of a DataFrame are typed columns all the way. Those of an RDD are pickled by Spark's Python workers,
            and pyspark unpickles them here when ``collect`` or another action brings them: as for every RDD, executors
            have to be trusted.

        Raises
        ------
        ConfigError
            For columns that do not exist or cannot become tensors, and where results cannot be found out.
        FeedError
            If there is no answer to the row that is sent to find out.
        ClusterEnded, NodeFailed
            If the nodes do not run any more.
        """
        from tfos_lab.driver.feed.inference import Inference

        with self._changing:
            if self._inference is None:
                self._inference = Inference(self, self.feeding)
        return self._inference.of(data, columns, schema, objects=objects, queue=queue, timeout_s=timeout)
