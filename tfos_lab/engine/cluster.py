"""A cluster, as its user holds it: wait for it, feed it, read what it says, stop it.

The state lives in the roster (who is where) and the ledger (which rows count), which the server's thread alone changes;
a launcher brings the nodes to life. This class is the door to the three, safe to use from any thread.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tfos_lab.config import ClusterConfig
from tfos_lab.engine.bus import Bus
from tfos_lab.engine.events import ClusterView, Event, NodeView
from tfos_lab.engine.journal import Journal
from tfos_lab.engine.log_keeper import LogKeeper
from tfos_lab.engine.results import Results
from tfos_lab.engine.roster import Failure, Instruction, Roster
from tfos_lab.engine.server import Server
from tfos_lab.errors import ClusterEnded, NodeFailed, ReservationTimeout, TfosError, WaitTimeout

if TYPE_CHECKING:
    from tfos_lab.engine.feed_ledger import FeedLedger
    from tfos_lab.engine.launchers.base import Launcher
    from tfos_lab.messages import TlsIdentity

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
    roster, ledger
        Who is where; which rows count. Changed through `request` only.
    """

    def __init__(
        self,
        *,
        cluster_id: str,
        config: ClusterConfig,
        run_dir: Path,
        called_s: float,
        roster: Roster,
        ledger: FeedLedger,
        journal: Journal,
        bus: Bus,
        logs: LogKeeper,
        server: Server,
        launcher: Launcher,
        spark: Any,
    ) -> None:
        self.id = cluster_id
        self.name = config.name
        self.config = config
        self.run_dir = run_dir
        self.bus = bus
        self.spark = spark
        self._called_s = called_s
        self.roster = roster
        self.ledger = ledger
        self.feeding = threading.Lock()
        self._journal = journal
        self._logs = logs
        self._server = server
        self._launcher = launcher
        self._results = Results(self._outcomes)
        self._launch_error: TfosError | None = None
        self._notes: list[str] = []
        self._tls: TlsIdentity | None = None

    def __repr__(self) -> str:
        view = self.view()
        up = sum(node.state in ("running", "serving", "done") for node in view.nodes)
        return f"<Cluster {self.name!r}: {view.state}, {up}/{len(view.nodes)} nodes, {view.launcher}>"

    # ---- what it is doing -------------------------------------------------------------------------------------------

    def view(self) -> ClusterView:
        """Return all that can be seen of the cluster now, as one value."""
        with self._server.lock:
            nodes, state, reason = self.roster.views, self.roster.state, self.roster.reason
        return ClusterView(
            cluster_id=self.id,
            name=self.name,
            state=state,
            launcher=self._launcher.name,
            started_s=self._called_s,
            ended_s=self._journal.ended_s,
            nodes=nodes,
            timings=dict(self._journal.timings),
            feed=self._journal.feed,
            reason=str(self._launch_error or reason),
            notes=tuple(self._notes),
        )

    @property
    def nodes(self) -> tuple[NodeView, ...]:
        """The nodes, in launch order: ps, chief, evaluator, workers."""
        return self.view().nodes

    @property
    def state(self) -> str:
        """The state of the cluster as a whole; see `ClusterView`."""
        with self._server.lock:
            return self.roster.state

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
    def events(self) -> list[Event]:
        """What has happened, oldest first; log text is in `logs`."""
        return self._journal.events

    def _outcomes(self) -> dict[str, Any]:
        with self._server.lock:
            return self.roster.outcomes

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
            if node not in names:
                raise KeyError(f"no node {node!r} in this cluster; there are {', '.join(names)}")
            return self._logs.read(node, tail)
        return "\n".join(f"[{name}] {line}" for name in names for line in self._logs.read(name, tail).splitlines())

    def note(self, text: str) -> None:
        """Add a sentence that the cell shows beside the table."""
        self._notes.append(text)

    def request(self, change: Callable[[float], list[Instruction]]) -> None:
        """Have the server's thread make a change to roster or ledger; safe from any thread."""
        self._server.request(change)

    # ---- life -------------------------------------------------------------------------------------------------------

    def launch(self) -> None:
        """Bring the nodes to life; returns at once."""
        self._server.start()
        try:
            self._launcher.launch()
        except BaseException as error:
            self.launch_failed(error if isinstance(error, TfosError) else None, str(error))
            self._server.over.wait(STOP_EXTRA_S)
            raise

    def launch_failed(self, error: TfosError | None, reason: str) -> None:
        """The launcher found out that the nodes cannot come (or that Spark took them away)."""
        if error is not None and self._launch_error is None:
            self._launch_error = error
        self.request(lambda now_s: self.roster.fail(Failure("launcher", "LaunchFailed", reason), now_s))

    def lose(self, seat: int, why: str) -> None:
        """The launcher saw a node's agent go."""
        self.request(lambda now_s: self.roster.lose(seat, why, now_s))

    def lose_executor(self, executor: str, why: str) -> None:
        """The launcher saw an executor go, and all nodes on it."""
        seats = [seat for seat, view in enumerate(self.nodes) if view.executor == executor]
        for seat in seats:
            self.lose(seat, why)
        if not seats:
            self.launch_failed(None, why)

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

    def _has_begun(self) -> bool:
        # Inline, the function runs while it is waited for: before that there is no more than a reservation.
        begun: tuple[str, ...] = ("starting",) if self._launcher.name == "inline" else ()
        begun += ("running", "stopping", "done", "failed", "stopped")
        return self._journal.wait_for(lambda: self.roster.state in begun, WAIT_STEP_S)

    def _give_up_waiting(self, limit_s: float) -> None:
        with self._server.lock:
            missing, nodes = self.roster.missing, self.roster.views
        hint = self._launcher.hint()
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
                self._launcher.run_here()
        except BaseException:
            self._server.over.wait(LAST_WORDS_S)  # so that the cluster's state tells of it, too
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
        if self._server.over.wait(WAIT_STEP_S):
            return True
        ended_s = self._journal.ended_s
        return self.state == "failed" and ended_s is not None and time.time() - ended_s > LAST_WORDS_S

    def _raise_failure(self) -> None:
        self._server.over.wait(LAST_WORDS_S)
        error = self.failure()
        raise error

    def failure(self) -> TfosError:
        """Return the error that tells why the cluster failed."""
        if self._launch_error is not None:
            return self._launch_error
        with self._server.lock:
            failure = self.roster.failure
            also, consequences = list(self.roster.also), dict(self.roster.consequences)
        if failure is None:
            return ClusterEnded(cluster=self.name, state=self.state, asked="tell a failure")
        tail = self._logs.read(failure.node, LOG_TAIL_LINES) if ":" in failure.node else ""
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
        self.request(lambda now_s: self.roster.stop(now_s, grace_s=grace_s))
        limit_s = (self.config.grace_s if grace_s is None else grace_s) + STOP_EXTRA_S
        self._launcher.cancel()
        if not self._server.over.wait(limit_s):
            logger.warning("cluster %s did not end within %.0f s", self.id, limit_s)
        self._launcher.close()
        self._server.join(STOP_EXTRA_S)

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
    ) -> None:
        """Feed a DataFrame (or RDD) to the nodes that train; returns when all rows have been stored with them.

        Parameters
        ----------
        data : pyspark.sql.DataFrame or pyspark.RDD
            The rows. Each one reaches exactly one node, exactly once per epoch.
        epochs : int
            How often the nodes are to read them; they find it in ``ctx.epochs``.
        columns : list of str, optional
            Which columns; all by default.
        remainder : {"pad", "drop"}
            What happens at the end of an epoch; see ``ctx.dataset``.
        timeout_s : float
            Seconds without any progress after which the feed fails.

        Raises
        ------
        FeedError
            If the rows cannot be fed; the cause is named, and the nodes are stopped.
        NodeFailed
            If a node failed meanwhile.
        """
        from tfos_lab.engine.feed import feed_rows

        feed_rows(self, self._launcher, data, epochs=epochs, columns=columns, remainder=remainder, timeout_s=timeout_s)

    def tls_identity(self) -> TlsIdentity:
        """Return the certificate and key of this cluster's endpoints for rows, made when first asked for."""
        if self._tls is None:
            from tfos_lab.engine.certificates import make_identity

            self._tls = make_identity()
        return self._tls

    def end_feed(self) -> None:
        """Tell the nodes that no further rows will come; what was fed can be read to its end."""
        with contextlib.suppress(OSError):
            self.request(lambda _now_s: self.ledger.end())
