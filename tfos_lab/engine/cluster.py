"""A cluster, as its user holds it: wait for it, feed it, read what it says, stop it.

The state lives in an attempt: the roster (who is where) and the ledger (which rows count), which the server's thread
alone changes, and a launcher that brings the nodes to life. This class is the door to them, safe to use from any
thread.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tfos_lab.engine import spark_session
from tfos_lab.engine.bus import Bus
from tfos_lab.engine.events import ClusterView, Event, MetricsReported, NodeView
from tfos_lab.engine.feeding import Feeding, FeedRequest
from tfos_lab.engine.instructions import Failure, Publish
from tfos_lab.engine.journal import Journal
from tfos_lab.engine.log_keeper import LogKeeper
from tfos_lab.engine.metrics import draw_cluster, metrics_frame
from tfos_lab.engine.results import Results
from tfos_lab.errors import ClusterEnded, NodeFailed, ReservationTimeout, TfosError, WaitTimeout

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas as pd

    from tfos_lab.engine.attempt import Attempt
    from tfos_lab.engine.attempt_maker import AttemptMaker
    from tfos_lab.engine.inference import Inference
    from tfos_lab.engine.presence import Presence
    from tfos_lab.engine.stream import StreamFeed

logger = logging.getLogger(__name__)

# Short enough that ■ in a notebook is quick: Python sees an interrupt between two waits.
WAIT_STEP_S = 0.1
# After the first cause is known, other nodes' last words are waited for this long.
LAST_WORDS_S = 1.0
STOP_EXTRA_S = 5.0
LOG_TAIL_LINES = 20


class Cluster:
    """All nodes of one run. Made by `tfos_lab.run`; usable with ``with``, which stops it at the end.

    Attributes
    ----------
    id, name : str
        Unique identifier; the label that the user gave.
    run_dir : pathlib.Path
        Folder on this machine that holds the nodes' whole logs.
    bus : Bus
        What happens, as it happens.
    log_keeper : LogKeeper
        Who writes what the nodes say into `run_dir`.
    attempt : Attempt
        The nodes as they are now; another one after each restart.
    feeding : Feeding
        What the nodes are fed.
    """

    def __init__(
        self,
        maker: AttemptMaker,
        *,
        run_dir: Path,
        called_s: float,
    ) -> None:
        self.id = run_dir.name
        self.config = maker.config
        self.name = self.config.name
        self.run_dir = run_dir
        self.bus = Bus(self.note_event)
        self.log_keeper = LogKeeper(run_dir)
        self.spark = maker.spark
        self.feeding = Feeding(self)
        self._maker = maker
        self._called_s = called_s
        self._journal = Journal(called_s)
        self._life = threading.RLock()
        self._stopping = False
        self._results = Results(self._outcomes)
        self._launch_error: TfosError | None = None
        self._notes: list[str] = []
        self._spark_ui = spark_session.ui_of(self.spark) if self.spark is not None else ""
        self.presence: Presence | None = None
        self._inference: Inference | None = None
        self.attempt = maker.make(self, 0)

    def __repr__(self) -> str:
        view = self.view()
        up = sum(node.state in ("running", "serving", "done") for node in view.nodes)
        return f"<Cluster {self.name!r}: {view.state}, {up}/{len(view.nodes)} nodes, {view.launcher}>"

    # ---- what it is doing -------------------------------------------------------------------------------------------

    def view(self) -> ClusterView:
        """Return all that can be seen of the cluster now, as one value."""
        attempt = self.attempt
        with attempt.server.lock:
            nodes, state, reason = attempt.roster.views, attempt.roster.state, attempt.roster.reason
        return ClusterView(
            cluster_id=self.id,
            name=self.name,
            state=state,
            launcher=attempt.launcher.name,
            started_s=self._called_s,
            ended_s=self._journal.ended_s,
            nodes=nodes,
            timings=dict(self._journal.timings),
            feed=self._journal.feed,
            reason=str(self._launch_error or reason),
            notes=tuple(self._notes),
            spark_ui=self._spark_ui,
        )

    @property
    def nodes(self) -> tuple[NodeView, ...]:
        """The nodes, in launch order: ps, chief, evaluator, workers."""
        return self.view().nodes

    @property
    def state(self) -> str:
        """The state of the cluster as a whole; see `ClusterView`."""
        return self.attempt.state

    @property
    def ended(self) -> bool:
        """Whether the cluster has ended, well or badly."""
        return self.state in ("done", "failed", "stopped")

    @property
    def results(self) -> Results:
        """What nodes have returned so far: ``results["worker:0"]``."""
        return self._results

    @property
    def timings(self) -> dict[str, float]:
        """Seconds from the call to the end of each phase: launched, reserved, released, running, done."""
        return dict(self._journal.timings)

    @property
    def metrics(self) -> pd.DataFrame:
        """What nodes have reported so far, as a table.

        Columns: ``time`` (float64, seconds since the call), ``node`` (string), ``step`` (Int64, may be missing), and
        one float64 column for each metric, NaN where a report did not hold it. Rows are in the order of arrival.
        """
        return metrics_frame(self._journal.metrics, self._called_s)

    def plot(self) -> matplotlib.figure.Figure:
        """Draw the metrics, one line for each node, and where the seconds went; returns matplotlib's Figure."""
        return draw_cluster(self.view(), self._journal.metrics)

    def reports_after(self, count: int = 0) -> tuple[list[MetricsReported], int]:
        """Return the metrics reported after the first ``count`` ones, and how many there have been in all."""
        return self._journal.metrics_after(count)

    @property
    def events(self) -> list[Event]:
        """What has happened, oldest first; log text is in `logs`."""
        return self._journal.events

    @property
    def tensorboard_url(self) -> str | None:
        """Where the notebook's Jupyter server shows TensorBoard, also when the cluster has ended.

        None without ``tensorboard=True``, and in a program that belongs to no Jupyter server.
        """
        return self.presence.tensorboard_url if self.presence is not None else None

    def note_event(self, event: Event) -> None:
        """Hear each event first; for the bus."""
        self._journal.note(event)
        if self.presence is not None:
            self.presence.note(event)

    def note_release(self) -> None:
        """Hear that the nodes are told to begin."""
        self._journal.mark_released(time.time())

    def _outcomes(self) -> dict[str, Any]:
        attempt = self.attempt
        with attempt.server.lock:
            return attempt.roster.outcomes

    def logs(self, node: str | None = None, tail: int | None = None) -> str:
        """Return what a node wrote, or all nodes with their names before each line.

        Parameters
        ----------
        node : str, optional
            Such as ``"worker:0"``; all nodes by default.
        tail : int, optional
            Only the last so many lines of each node.

        Raises
        ------
        KeyError
            If there is no such node.
        """
        names = [view.node for view in self.nodes]
        if node is not None:
            self.log_path(node)
            return self.log_keeper.read(node, tail)
        return "\n".join(f"[{name}] {line}" for name in names for line in self.log_keeper.read(name, tail).splitlines())

    def log_path(self, node: str) -> Path:
        """Return the file that holds the whole log of ``node``; it comes with the node's first words.

        Raises
        ------
        KeyError
            If there is no such node.
        """
        names = [view.node for view in self.nodes]
        if node not in names:
            raise KeyError(f"no node {node!r} in this cluster; there are {', '.join(names)}")
        return self.log_keeper.path(node)

    def note(self, text: str) -> None:
        """Add a sentence that the cell shows beside the table."""
        self._notes.append(text)

    # ---- life -------------------------------------------------------------------------------------------------------

    def launch(self) -> None:
        """Bring the nodes to life; returns at once."""
        attempt = self.attempt
        attempt.listen()
        try:
            attempt.launcher.launch()
        except BaseException as error:
            self.launch_failed(error if isinstance(error, TfosError) else None, str(error))
            attempt.server.over.wait(STOP_EXTRA_S)
            raise
        if self.config.restarts:
            from tfos_lab.engine.restarts import Restarter

            Restarter(self).start()

    def next_attempt(self) -> Attempt | None:
        """Make the attempt that follows a lost one and return it, or None if the user has stopped the cluster."""
        with self._life:
            lost = self.attempt
            if self._stopping:
                self._abandon(lost)
                return None
            number = lost.number + 1
            self.note(f"restart {number} of {self.config.restarts}, as {lost.roster.reason}")
            self.attempt = self._maker.make(self, number)
            return self.attempt

    def _abandon(self, lost: Attempt) -> None:
        with lost.server.lock:
            for instruction in lost.roster.abandon(time.time()):
                if isinstance(instruction, Publish):
                    self.bus.publish(instruction.event)

    def launch_failed(self, error: TfosError | None, reason: str, attempt: Attempt | None = None) -> None:
        """The launcher found out that the nodes cannot come (or that Spark took them away)."""
        if error is not None and self._launch_error is None:
            self._launch_error = error
        (attempt or self.attempt).fail(Failure("launcher", "LaunchFailed", reason))

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
        if self.state == "failed":
            self._raise_failure()

    def wait_for_attempt(self, number: int) -> None:
        """Wait until the nodes have been started again for the ``number``-th time, or the cluster has ended."""
        while self.attempt.number < number and not self.ended:
            time.sleep(WAIT_STEP_S)

    def _has_begun(self) -> bool:
        # Inline, the function runs while it is waited for: before that there is no more than a reservation.
        begun: tuple[str, ...] = ("starting",) if self.attempt.launcher.name == "inline" else ()
        begun += ("running", "stopping", "done", "failed", "stopped")
        return self._journal.wait_for(lambda: self.attempt.roster.state in begun, WAIT_STEP_S)

    def _give_up_waiting(self, limit_s: float) -> None:
        attempt = self.attempt
        with attempt.server.lock:
            missing, nodes = attempt.roster.missing, attempt.roster.views
        hint = attempt.launcher.hint()
        self.stop(grace_s=0.0)
        if missing:
            raise ReservationTimeout(
                reserved=len(nodes) - len(missing), wanted=len(nodes), waited_s=limit_s, missing=missing, hint=hint
            )
        late = [view.node for view in nodes if view.state in ("reserved", "importing", "starting")]
        raise WaitTimeout(waited_s=limit_s, still_running=late)

    def wait(self, timeout_s: float | None = None) -> Results:
        """Wait until all training nodes have returned, and return what they returned.

        Parameters
        ----------
        timeout_s : float, optional
            Give up waiting after so many seconds; the cluster goes on.

        Raises
        ------
        NodeFailed
            With the remote traceback of the first node that failed.
        WaitTimeout
            If nodes are still running after ``timeout_s``.
        ClusterEnded
            If the cluster was stopped before its nodes returned.
        """
        self.end_feed()
        try:
            if not self.ended:
                self.attempt.launcher.run_here()
        except BaseException:
            self.attempt.server.over.wait(LAST_WORDS_S)  # so that the cluster's state tells of it, too
            raise
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._settled():
            if deadline is not None and time.monotonic() > deadline:
                running = [view.node for view in self.nodes if view.state not in ("done", "failed", "lost", "stopped")]
                raise WaitTimeout(waited_s=float(timeout_s or 0), still_running=running)
        if self.state == "failed":
            self._raise_failure()
        if self.state == "stopped":
            raise ClusterEnded(cluster=self.name, state="stopped", asked="wait for results")
        return self._results

    def _settled(self) -> bool:
        """Whether all that is to be known is known; waits one step."""
        if self.attempt.server.over.wait(WAIT_STEP_S) and self.ended:
            return True
        if self.state == "restarting":
            time.sleep(WAIT_STEP_S)
        ended_s = self._journal.ended_s
        return self.state == "failed" and ended_s is not None and time.time() - ended_s > LAST_WORDS_S

    def _raise_failure(self) -> None:
        self.attempt.server.over.wait(LAST_WORDS_S)
        error = self.failure()
        raise error

    def failure(self) -> TfosError:
        """Return the error that tells why the cluster failed."""
        if self._launch_error is not None:
            return self._launch_error
        attempt = self.attempt
        with attempt.server.lock:
            failure = attempt.roster.failure
            also, consequences = list(attempt.roster.also), dict(attempt.roster.consequences)
        if failure is None:
            return ClusterEnded(cluster=self.name, state=self.state, asked="tell a failure")
        tail = self.log_keeper.read(failure.node, LOG_TAIL_LINES) if ":" in failure.node else ""
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
        """End all nodes: SIGTERM, then SIGKILL after ``grace_s`` seconds. May be called twice, and from any thread."""
        with self._life:
            self._stopping = True
            attempt = self.attempt
        attempt.server.request(lambda now_s: attempt.roster.stop(now_s, grace_s=grace_s))
        limit_s = (self.config.grace_s if grace_s is None else grace_s) + STOP_EXTRA_S
        attempt.launcher.cancel()
        if not attempt.server.over.wait(limit_s):
            logger.warning("cluster %s did not end within %.0f s", self.id, limit_s)
        attempt.launcher.close()
        attempt.server.join(STOP_EXTRA_S)
        self._abandon(attempt)

    def shutdown(self, timeout_s: float | None = None) -> None:
        """Let the nodes work to their end, wait for it, and give everything back; may be called twice.

        Raises
        ------
        NodeFailed, WaitTimeout
            As `wait` does; the cluster is stopped in any case.
        """
        try:
            if not self.ended:
                self.wait(timeout_s)
        finally:
            self.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # ---- rows -------------------------------------------------------------------------------------------------------

    def train(
        self,
        data: Any,
        epochs: int = 1,
        columns: list[str] | None = None,
        remainder: str = "pad",
        timeout_s: float = 600.0,
        *,
        spool_bytes: int | None = None,
        checkpoint: str | None = None,
    ) -> StreamFeed | None:
        """Feed a DataFrame (or RDD) to the nodes that train; returns when all rows have been stored with them.

        Parameters
        ----------
        data : pyspark.sql.DataFrame or pyspark.RDD
            The rows. Each one reaches exactly one node, exactly once per epoch. Of a streaming DataFrame, all rows make
            one epoch, which goes on until the stream or the cluster is stopped.
        epochs : int
            How often the nodes are to read them; they find it in ``ctx.epochs``.
        columns : list of str, optional
            Which columns; all by default.
        remainder : {"pad", "drop"}
            What happens at the end of an epoch; see ``ctx.dataset``. Of a stream, at the end of each micro-batch.
        timeout_s : float
            Seconds without any progress after which the feed fails.
        spool_bytes : int, optional
            How much disk the rows may take on each node; most of what is free by default. Rows that are read once wait
            for room; rows that are read again, or shuffled, have to fit.
        checkpoint : str, optional
            Folder in which Spark keeps how far a stream has been read: another cluster that is given it goes on there.

        Returns
        -------
        None or StreamFeed
            For a stream, at once: a handle to stop it. `wait` waits for its end.

        Raises
        ------
        ConfigError
            For columns that are not there or cannot become tensors, and options that do not fit.
        FeedError
            If the rows cannot be fed; the cause is named, and the nodes are stopped.
        NodeFailed
            If a node failed meanwhile.
        """
        from tfos_lab.engine.feed import checked_frame
        from tfos_lab.engine.stream import feed_stream

        frame = checked_frame(self, data, epochs=epochs, columns=columns, remainder=remainder, spool_bytes=spool_bytes)
        if frame.isStreaming:
            folder = checkpoint or str(self.run_dir / f"checkpoint-{len(self.feeding.streams)}")
            stream: StreamFeed = feed_stream(self, frame, remainder=remainder, timeout_s=timeout_s, checkpoint=folder)
            return stream
        self.feeding.feed(FeedRequest(frame, epochs, remainder, timeout_s, spool_bytes or 0))
        return None

    def inference(self, data: Any, columns: list[str] | None = None, *, schema: Any = None) -> Any:
        """Have the nodes answer for the rows of a DataFrame: their functions read them and put results.

        The function loops over ``ctx.dataset(batch_size)`` and calls ``ctx.put_results`` once per batch. Several
        inferences may follow one another; the loops end with `wait` or `shutdown`.

        Parameters
        ----------
        data : pyspark.sql.DataFrame or pyspark.RDD
            The rows; also a streaming DataFrame.
        columns : list of str, optional
            Which of them the nodes see; all by default.
        schema : str or pyspark.sql.types.StructType, optional
            Names and types of the results, such as ``"prediction float"``. Without it, one row is sent to find out.

        Returns
        -------
        pyspark.sql.DataFrame or pyspark.RDD
            All columns of ``data`` and those of the results, in the order of the rows within each partition. It is
            lazy: rows travel when it is used, as often as it is used, and the cluster has to live until then. For an
            RDD, an RDD of the results.

        Raises
        ------
        ConfigError
            For columns that are not there or cannot become tensors, and where results cannot be found out.
        FeedError
            If the row that is sent to find out is not answered.
        ClusterEnded, NodeFailed
            If the nodes do not live.
        """
        from tfos_lab.engine.inference import Inference

        with self._life:
            if self._inference is None:
                self._inference = Inference(self)
        return self._inference.of(data, columns, schema)

    def end_feed(self) -> None:
        """Tell the nodes that no further rows will come; what was fed can be read to its end."""
        self.feeding.end()
