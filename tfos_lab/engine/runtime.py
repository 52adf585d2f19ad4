"""What runs a cluster behind its handle: the run's folder, bus and history, and the generation of nodes that lives now.

`tfos_lab.engine.cluster.Cluster` is what users hold. The notebook and tests reach the runtime with
`tfos_lab.engine.cluster.runtime_of`.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.states import RunState
from tfos_lab.engine.bus import Bus
from tfos_lab.engine.diagnosis.diagnosis import Assessor, Diagnosis
from tfos_lab.engine.feed.feeding import Feeding
from tfos_lab.engine.generation import failure_of
from tfos_lab.engine.generation_maker import GenerationMaker, RunServices
from tfos_lab.engine.generations import WAIT_STEP_S, Generations
from tfos_lab.engine.history import History
from tfos_lab.engine.profile.profiles import NO_TRACE
from tfos_lab.engine.publisher import make_publisher
from tfos_lab.engine.record.inputs import Plain, plain_inputs
from tfos_lab.engine.record.recorders import Recorders
from tfos_lab.engine.results import Results
from tfos_lab.engine.run_dir import RunDir
from tfos_lab.engine.runs.keep import keep_newest
from tfos_lab.engine.spark import session as spark_session
from tfos_lab.engine.state.events import (
    ClusterView,
    EvaluatorFailed,
    Event,
    LogText,
    MetricsReported,
    NodeStartedAgain,
    NodeView,
    RowsUnread,
    RowsUntouched,
)
from tfos_lab.engine.state.node_views import rank_of
from tfos_lab.engine.state.readers import unread_text, untouched_text
from tfos_lab.errors import ClusterEnded, FeedError, ProfileFailed, TfosError, WaitTimeout
from tfos_lab.messages import LogRecord
from tfos_lab.texts import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tfos_lab.engine.feed.inference import Inference
    from tfos_lab.engine.generation import Generation
    from tfos_lab.engine.profile.profiles import Profile
    from tfos_lab.messages import Outcome

logger = logging.getLogger(__name__)

# Once the first cause of a failure is known, the reports of other nodes are waited for this long.
LAST_ERRORS_S = 1.0
# A disk that hangs must not hang the notebook.
RECORD_TIMEOUT_S = 2.0


class ClusterRuntime:
    """One cluster: starts its nodes, waits for them, restarts and stops them. Safe to use from any thread.

    Parameters
    ----------
    maker : GenerationMaker
        Makes the nodes' generations.
    run_dir : RunDir
        The run's folder.
    published : bool
        Whether other processes see the cluster.

    Attributes
    ----------
    id, name : str
        Unique identifier; the label that the user gave.
    config : ClusterConfig
        What was asked for.
    spark : SparkSession or None
        Whose executors are used.
    files : RunDir
        The run's folder.
    history : History
        What has happened.
    bus : Bus
        What happens, as it happens.
    services : RunServices
        What stores the logs, event files and output that nodes send.
    feeding : Feeding
        What the nodes have been fed.
    results : Results
        What nodes have returned so far.
    publisher : Publisher or None
        Shows the cluster to other processes; None where it is not published, or no socket can be made for it.
    """

    def __init__(self, maker: GenerationMaker, run_dir: RunDir, *, published: bool = True) -> None:
        self.id = run_dir.id
        self.name = maker.config.name
        self.config: ClusterConfig = maker.config
        self.spark: SparkSession | None = maker.spark
        self.files = run_dir
        self.history = History(maker.called_s)
        self.bus = Bus(self._on_events)
        self.services = RunServices.make(maker.config, run_dir, history=self.history, bus=self.bus)
        self._maker = maker
        self._spark_ui = spark_session.ui_of(maker.spark) if maker.spark is not None else ""
        self._generations = Generations(maker, self.services, self._on_over)
        self.feeding = Feeding(self)
        self.results = Results(self._outcomes, run_dir.result)
        self._assessor = Assessor()
        self._inference: Inference | None = None
        self._first_inference = threading.Lock()
        self._recorders = Recorders(run_dir, self, self._on_recorded)
        self.publisher = None
        if published:
            self.publisher = make_publisher(
                run_dir, lambda: self.event_dir, lambda: self.ended, tensorboard=self.config.tensorboard
            )
        if self.publisher is not None:
            self.publisher.publish()

    # ---- the cluster as it is now -----------------------------------------------------------------------------------

    def view(self) -> ClusterView:
        """Return all that can be seen of the cluster now, as one value."""
        generation, output = self.generation, self.services.output
        with generation.server.lock:
            state, nodes = generation.cluster_state.state, generation.cluster_state.views
            reason = generation.cluster_state.reason
        view = ClusterView(
            cluster_id=self.id,
            name=self.name,
            state=state,
            launcher=generation.launcher.traits.name,
            started_s=self._maker.called_s,
            ended_s=self.history.ended_s,
            nodes=nodes,
            timings=dict(self.history.timings),
            restarts=self.history.restarts,
            feeds=self.history.feeds,
            reason=str(generation.control.launch_error or reason),
            notes=(*self.history.notes, *(output.notes_at_the_end() if state.ended else output.notes)),
            spark_ui=self._spark_ui,
            tensorboard=self.publisher is not None and self.publisher.shows_tensorboard,
        )
        return self._assessor.assess(view, time.time())

    def diagnose(self) -> Diagnosis:
        """Return why training is as slow as it is; see `Cluster.diagnose`."""
        return self._assessor.diagnose(self.view())

    @property
    def generation(self) -> Generation:
        """The nodes as they are now; another generation after each restart."""
        return self._generations.current

    @property
    def nodes(self) -> tuple[NodeView, ...]:
        """The nodes, in launch order: ps, chief, evaluator, workers."""
        return self.view().nodes

    @property
    def state(self) -> RunState:
        """The state of the cluster as a whole; see `ClusterView`."""
        return self.generation.state

    @property
    def ended(self) -> bool:
        """Whether the cluster has ended, well or badly."""
        return self.state.ended

    @property
    def run_dir(self) -> Path:
        """The run's folder."""
        return self.files.path

    @property
    def event_dir(self) -> str:
        """The folder with its event files, on this machine."""
        return self.services.event_files.folder

    @property
    def map_fun(self) -> Callable[..., Any]:
        """The user's function."""
        return self._maker.call[0]

    @functools.cached_property
    def inputs(self) -> dict[str, Plain]:
        """The plain values that the function was called with, by name, for the run record."""
        return plain_inputs(*self._maker.call)

    @property
    def inference(self) -> Inference:
        """What the nodes answer for, made when it is first asked for."""
        from tfos_lab.engine.feed.inference import Inference

        with self._first_inference:
            if self._inference is None:
                self._inference = Inference(self, self.feeding)
            return self._inference

    def _outcomes(self) -> dict[str, Outcome]:
        generation = self.generation
        with generation.server.lock:
            return generation.cluster_state.outcomes

    def reports_after(self, count: int = 0) -> tuple[list[MetricsReported], int]:
        """Return the metrics reported after the first ``count`` ones, and how many there have been in all."""
        return self.history.metrics_after(count)

    def logs(self, node: str | None = None, tail: int | None = None) -> str:
        """Return what a node, or each node, has written; see `Cluster.logs`."""
        if node is None:
            return self.services.log_writer.read_all([view.node for view in self.nodes], tail)
        self.log_path(node)
        return self.services.log_writer.read(node, tail)

    def stacks(self, node: str | None, timeout_s: float) -> dict[str, str]:
        """Return where the threads of a node, or of all, are now; see `Cluster.stacks`."""
        generation = self.generation
        with generation.server.lock:
            views = generation.cluster_state.views
        return generation.server.stacks.of(views, node, timeout_s)

    def profile(self, node: str | None, seconds: float, *, trace: bool | None) -> Profile:
        """Profile a node, the one that leads by default; see `Cluster.profile`."""
        generation = self.generation
        with generation.server.lock:
            views = generation.cluster_state.views
        rank = rank_of(views, node or next(view.node for view in views if view.is_chief))
        view = views[rank]
        if not view.state.is_up or view.state.ended:
            raise ProfileFailed(node=view.node, reason=f"its function does not run: its state is {view.state}")
        if reason := generation.server.stacks.why_deaf(rank):
            raise ProfileFailed(node=view.node, reason=reason)
        may_trace = len(views) == 1 if trace is None else trace
        no_trace = "" if may_trace else NO_TRACE
        return generation.server.profiles.make(view.node, rank, seconds, self.files, no_trace=no_trace)

    def log_path(self, node: str) -> Path:
        """Return the log file of ``node``, which exists once the node has written something.

        Raises
        ------
        KeyError
            If there is no such node.
        """
        rank_of(self.nodes, node)
        return self.files.log(node)

    # ---- events -----------------------------------------------------------------------------------------------------

    def _on_events(self, *events: Event) -> None:
        """Record events before the bus's subscribers get them; called by the thread that publishes them."""
        self.history.record(*events)
        for event in events:
            if isinstance(event, MetricsReported):  # most are
                self._recorders.on_event(event)
            elif not isinstance(event, LogText):
                self._on_event(event)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, RowsUnread):
            self.note(unread_text(event))
        elif isinstance(event, RowsUntouched):
            self.note(untouched_text(event))
        elif isinstance(event, NodeStartedAgain):
            again = f"restart {event.restart} of {event.restarts}, of {event.node} alone, while the others go on"
            self.note(f"{again}: {event.reason}")
        elif isinstance(event, EvaluatorFailed):
            self._tell_of_evaluator(event)
        self._recorders.on_event(event)

    def _tell_of_evaluator(self, event: EvaluatorFailed) -> None:
        """Say that training goes on without the evaluator, and write its traceback into its log."""
        text = f"{event.node} failed, and training goes on without it: {event.kind}: {first_line(event.message)}"
        advice = f'see cluster.logs("{event.node}"); on_evaluator_failure="fail" ends the run in such a case'
        self.note(f"{text} ({advice})")
        logger.warning("%s: %s", self.name, text)
        if event.traceback:
            record = LogRecord(event.time_s, "stderr", f"{event.traceback.rstrip()}\n".encode())
            for written in self.services.log_writer.write(event.node, [record]):
                self.bus.publish(written)

    def note(self, text: str) -> None:
        """Add a sentence that the cell shows beside the table."""
        self.history.add_note(text)

    # ---- start and stop ---------------------------------------------------------------------------------------------

    def launch(self) -> None:
        """Start the nodes; returns when all are on their way, or the cluster has been stopped meanwhile."""
        self._recorders.start()
        self._generations.launch()
        if self.config.restarts:
            from tfos_lab.engine.restarts import Restarter

            Restarter(self, self.feeding).start()

    def listen(self, generation: Generation) -> None:
        """Start to receive messages of a generation's nodes; may be called twice."""
        self._generations.listen(generation)

    def next_generation(self) -> Generation | None:
        """Make the generation that follows a lost one and return it, or None if the user has stopped the cluster."""
        return self._generations.next()

    def stop(self, *, grace_s: float | None = None) -> None:
        """Stop all nodes; see `Cluster.stop`."""
        self._recorders.start()
        self._generations.stop(grace_s=grace_s)
        self._recorders.finish()
        self._recorders.join(RECORD_TIMEOUT_S)

    def close(self) -> None:
        """Stop at once, and remove what other processes see of the cluster; for Python's exit."""
        try:
            if not self.ended:
                self.stop(grace_s=0.0)
            self._recorders.join(RECORD_TIMEOUT_S)
        finally:
            if self.publisher is not None:
                self.publisher.close()

    def _on_over(self, state: RunState) -> None:
        """A generation has ended; called by its server's thread."""
        if state.ended:
            self._recorders.finish()

    def _on_recorded(self) -> None:
        """The last record has been written; called by the recorder's thread."""
        keep_newest(self.files, self.config)
        if self.publisher is not None:
            self.publisher.end()

    # ---- waiting ----------------------------------------------------------------------------------------------------

    def wait_until_running(self, timeout_s: float | None = None, *, generation: Generation | None = None) -> None:
        """Wait until all nodes run, or ``generation`` is over; see `Cluster.wait_until_running`."""
        timeout_s = self.config.reservation_timeout_s if timeout_s is None else timeout_s
        self._generations.wait_until_running(timeout_s, generation=generation)
        if self.state is RunState.FAILED:
            self._raise_failure()

    def wait_for_generation(self, number: int) -> None:
        """Wait until the nodes have been restarted for the ``number``-th time, or the cluster has ended."""
        while self.generation.number < number and not self.ended:
            time.sleep(WAIT_STEP_S)

    def wait(self, timeout_s: float | None = None) -> Results:
        """Wait until all training nodes have returned; see `Cluster.wait`."""
        self.feeding.end()
        try:
            if not self.ended:
                self.generation.launcher.run_here()
        except BaseException:
            self.generation.server.over.wait(LAST_ERRORS_S)  # so that the cluster's state shows the failure, too
            raise
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.wait_a_step():
            if deadline is not None and time.monotonic() > deadline:
                running = [view.node for view in self.nodes if not view.state.ended]
                raise WaitTimeout(waited_s=float(timeout_s or 0), still_running=running)
        self.feeding.settle()
        if self.generation.server.over.is_set():
            self._recorders.join(RECORD_TIMEOUT_S)
        if self.state is RunState.FAILED:
            self._raise_failure()
        if self.state is RunState.STOPPED:
            raise ClusterEnded(cluster=self.name, state="stopped", asked="wait for results")
        if reason := self.generation.feed_state.nothing_read:
            raise FeedError(reason=reason)
        return self.results

    def wait_a_step(self) -> bool:
        """Wait a little; return whether the cluster has ended and nothing more is expected from its nodes."""
        if self.generation.server.over.wait(WAIT_STEP_S) and self.ended:
            return True
        if self.state is RunState.RESTARTING:
            time.sleep(WAIT_STEP_S)
        ended_s = self.history.ended_s
        is_old = self.state is RunState.FAILED and ended_s is not None and time.time() - ended_s > LAST_ERRORS_S
        return is_old and not self.services.output.awaited

    # ---- failure ----------------------------------------------------------------------------------------------------

    def _raise_failure(self) -> None:
        self.generation.server.over.wait(LAST_ERRORS_S)
        raise self.failure()

    def failure(self) -> TfosError:
        """Return the error that says why the cluster failed."""
        return failure_of(self.generation, self.services.log_writer) or ClusterEnded(
            cluster=self.name, state=self.state, asked="tell a failure"
        )
