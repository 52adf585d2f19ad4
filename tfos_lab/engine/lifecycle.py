"""The life of a cluster: whose nodes they are now, how it stands, and the wish to end it.

The state lives in a generation: the cluster state (who is where) and the feed state (which rows count), which the
server's thread alone changes, and a launcher that brings the nodes to life.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.states import RunState
from tfos_lab.engine.bus import Bus
from tfos_lab.engine.files.output import OutputReceiver
from tfos_lab.engine.history import History
from tfos_lab.engine.logs.writer import LogWriter
from tfos_lab.engine.spark import session as spark_session
from tfos_lab.engine.state.events import ClusterView, Event, NodeView, RowsUnread
from tfos_lab.engine.state.instructions import Failure, Publish
from tfos_lab.engine.state.readers import unread_text
from tfos_lab.engine.tensorboard.event_files import EventFileReceiver
from tfos_lab.errors import ClusterEnded, NodeFailed, ReservationTimeout, TfosError, WaitTimeout

if TYPE_CHECKING:
    from tfos_lab.engine.generation import Generation
    from tfos_lab.messages import SavesTo

logger = logging.getLogger(__name__)

# Short enough that ■ in a notebook is quick: Python sees an interrupt between two waits.
WAIT_STEP_S = 0.1
# After the first cause is known, other nodes' last words are waited for this long.
LAST_ERRORS_S = 1.0
STOP_EXTRA_S = 5.0
LOG_TAIL_LINES = 20


class Lifecycle:
    """What the parts of a cluster see of it; safe to use from any thread.

    Parameters
    ----------
    config : ClusterConfig
        What was asked for.
    run_dir : pathlib.Path
        Folder on this machine that holds the nodes' whole logs; its name is the cluster's identifier.
    called_s : float
        When it was asked for, in seconds since the epoch.
    spark : SparkSession or None
        Whose executors are used.
    make_generation : callable
        Called with this object and the number of the generation, from 0.

    Attributes
    ----------
    id, name : str
        Unique identifier; the label that the user gave.
    bus : Bus
        What happens, as it happens.
    history : Journal
        What has happened.
    log_writer : LogWriter
        Who writes what the nodes say into `run_dir`.
    event_files : EventFileReceiver
        Where their event files are.
    output : OutputReceiver
        Who brings home what they write to ``ctx.output_dir``.
    generation : Generation
        The nodes as they are now; another one after each restart.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        run_dir: Path,
        called_s: float,
        spark: Any,
        make_generation: Callable[[Lifecycle, int], Generation],
    ) -> None:
        self.id = run_dir.name
        self.name = config.name
        self.config = config
        self.run_dir = run_dir
        self.called_s = called_s
        self.spark = spark
        self.bus = Bus(self.record_event)
        self.history = History(called_s)
        self.log_writer = LogWriter(run_dir, self.note)
        home = run_dir / "events"
        self.event_files = EventFileReceiver(config.log_dir or str(home), home, self.note)
        limit_bytes, of_all = config.output_limit_bytes, config.output == "all"
        self.output = OutputReceiver(run_dir / "output", limit_bytes=limit_bytes, of_all=of_all)
        self._make_generation = make_generation
        self._changing = threading.RLock()
        self._stopping = False
        self._launch_error: TfosError | None = None
        self._notes: list[str] = []
        self._spark_ui = spark_session.ui_of(spark) if spark is not None else ""
        self.generation = make_generation(self, 0)

    # ---- what it is doing -------------------------------------------------------------------------------------------

    def view(self) -> ClusterView:
        """Return all that can be seen of the cluster now, as one value."""
        generation = self.generation
        with generation.server.lock:
            nodes, state, reason = (
                generation.cluster_state.views,
                generation.cluster_state.state,
                generation.cluster_state.reason,
            )
        return ClusterView(
            cluster_id=self.id,
            name=self.name,
            state=state,
            launcher=generation.launcher.traits.name,
            started_s=self.called_s,
            ended_s=self.history.ended_s,
            nodes=nodes,
            timings=dict(self.history.timings),
            restarts=self.history.restarts,
            feeds=self.history.feeds,
            reason=str(self._launch_error or reason),
            notes=(*self._notes, *(self.output.notes_at_the_end() if state.ended else self.output.notes)),
            spark_ui=self._spark_ui,
        )

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

    # ---- what is told to it ------------------------------------------------------------------------------------------

    def record_event(self, event: Event) -> None:
        """Hear each event first; for the bus."""
        self.history.note(event)
        if isinstance(event, RowsUnread):
            self.note(unread_text(event))

    def record_start(self) -> None:
        """Hear that the nodes are told to begin."""
        self.history.mark_released(time.time())

    def on_saving(self, saving: SavesTo) -> None:
        """Hear where the chief is going to save, and say so where this machine will not find it."""
        problems = []
        if saving.mark and not Path(saving.mark).exists():
            problems.append("where this machine does not see it")
        if saving.vanishes:
            problems.append("in Spark's folder for the job, which Spark removes")
        if problems:
            chief = self.nodes[saving.rank]
            self.note(
                f"{chief.node} saves to {saving.path} on {chief.host}, {' and '.join(problems)}: use ctx.save_model or "
                "ctx.output_dir to have it here, or give ctx.model_dir the full path of a folder that is shared"
            )

    def note(self, text: str) -> None:
        """Add a sentence that the cell shows beside the table."""
        self._notes.append(text)

    # ---- nodes come and go -------------------------------------------------------------------------------------------

    def launch(self) -> None:
        """Bring the nodes to life; returns when all are on their way, or the cluster has been stopped meanwhile."""
        with self._changing:
            generation = self.generation
            generation.listen()
        try:
            generation.launcher.launch()
        except BaseException as error:
            self.launch_failed(error if isinstance(error, TfosError) else None, str(error))
            generation.server.over.wait(STOP_EXTRA_S)
            raise

    def next_generation(self) -> Generation | None:
        """Make the generation that follows a lost one and return it, or None if the user has stopped the cluster."""
        with self._changing:
            lost = self.generation
            if self._stopping:
                self._abandon(lost)
                return None
            number = lost.number + 1
            self.note(f"restart {number} of {self.config.restarts}, as {lost.cluster_state.reason}")
            self.generation = self._make_generation(self, number)
            return self.generation

    def _abandon(self, lost: Generation) -> None:
        with lost.server.lock:
            for instruction in lost.cluster_state.abandon(time.time()):
                if isinstance(instruction, Publish):
                    self.bus.publish(instruction.event)
                    for event in self.output.conclude(time.time(), is_last=True):
                        self.bus.publish(event)

    def launch_failed(self, error: TfosError | None, reason: str, generation: Generation | None = None) -> None:
        """The launcher found out that the nodes cannot come (or that Spark took them away)."""
        if error is not None and self._launch_error is None:
            self._launch_error = error
        (generation or self.generation).fail(Failure("launcher", "LaunchFailed", reason))

    def wait_until_running(self, timeout_s: float | None = None) -> None:
        """Wait until all nodes run.

        Raises
        ------
        ReservationTimeout
            If nodes are missing after ``timeout_s`` (``reservation_timeout_s`` by default); the cluster is stopped.
        NodeFailed
            If a node failed before.
        """
        limit_s = self.config.reservation_timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        while not self._has_begun():
            if time.monotonic() > deadline:
                self._give_up_waiting(limit_s)
        if self.state is RunState.FAILED:
            self.raise_failure()

    def wait_for_generation(self, number: int) -> None:
        """Wait until the nodes have been started again for the ``number``-th time, or the cluster has ended."""
        while self.generation.number < number and not self.ended:
            time.sleep(WAIT_STEP_S)

    def _has_begun(self) -> bool:
        # Inline, the function runs while it is waited for: before that there is no more than a reservation.
        may_start_later = self.generation.launcher.traits.runs_inline

        def has_begun() -> bool:
            state = self.generation.cluster_state.state
            return state.has_begun or (may_start_later and state is RunState.STARTING)

        return self.history.wait_for(has_begun, WAIT_STEP_S)

    def _give_up_waiting(self, limit_s: float) -> None:
        generation = self.generation
        with generation.server.lock:
            missing, nodes = generation.cluster_state.missing, generation.cluster_state.views
        hint = generation.launcher.hint()
        self.stop(grace_s=0.0)
        if missing:
            raise ReservationTimeout(
                reserved=len(nodes) - len(missing), wanted=len(nodes), waited_s=limit_s, missing=missing, hint=hint
            )
        late = [view.node for view in nodes if view.state.is_present and not view.state.is_up]
        raise WaitTimeout(waited_s=limit_s, still_running=late)

    def wait_a_step(self) -> bool:
        """Wait a little; return whether all that is to be known is known."""
        if self.generation.server.over.wait(WAIT_STEP_S) and self.ended:
            return True
        if self.state is RunState.RESTARTING:
            time.sleep(WAIT_STEP_S)
        ended_s = self.history.ended_s
        is_told = self.state is RunState.FAILED and ended_s is not None and time.time() - ended_s > LAST_ERRORS_S
        return is_told and not self.output.awaited

    def raise_failure(self) -> None:
        """Raise `failure`, after a moment for other nodes' last words."""
        self.generation.server.over.wait(LAST_ERRORS_S)
        error = self.failure()
        raise error

    def failure(self) -> TfosError:
        """Return the error that tells why the cluster failed."""
        if self._launch_error is not None:
            return self._launch_error
        generation = self.generation
        with generation.server.lock:
            failure = generation.cluster_state.failure
            also, consequences = list(generation.cluster_state.also), dict(generation.cluster_state.consequences)
        if failure is None:
            return ClusterEnded(cluster=self.name, state=self.state, asked="tell a failure")
        tail = self.log_writer.read(failure.node, LOG_TAIL_LINES) if ":" in failure.node else ""
        return NodeFailed(
            node=failure.node,
            kind=failure.kind,
            message=failure.message,
            traceback=failure.traceback,
            also=also,
            consequences=consequences,
            log_tail=tail,
        )

    def stop(self, *, grace_s: float | None = None) -> None:
        """End all nodes: SIGTERM, then SIGKILL after ``grace_s`` seconds. May be called twice, and from any thread.

        Waits while nodes on other hosts bring what they have written to ``ctx.output_dir``; a second call with
        ``grace_s=0`` does not.
        """
        with self._changing:
            is_in_haste = self._stopping and grace_s == 0.0
            self._stopping = True
            generation = self.generation
            generation.listen()  # a cluster that was never launched ends in the same way
        generation.server.request(lambda now_s: generation.cluster_state.stop(now_s, grace_s=grace_s))
        limit_s = (self.config.grace_s if grace_s is None else grace_s) + STOP_EXTRA_S
        generation.launcher.cancel()
        if not self._wait_for_end(generation, limit_s, for_files=not is_in_haste):
            logger.warning("cluster %s did not end within %.0f s", self.id, limit_s)
        generation.launcher.close()
        generation.server.request(generation.cluster_state.give_up)
        generation.server.join(STOP_EXTRA_S)
        self._abandon(generation)

    def _wait_for_end(self, generation: Generation, limit_s: float, *, for_files: bool) -> bool:
        deadline = time.monotonic() + limit_s
        while not generation.server.over.wait(WAIT_STEP_S):
            if for_files:
                deadline = max(deadline, self.output.moved_at + STOP_EXTRA_S)
            if time.monotonic() > deadline:
                return False
        return True
