"""One start of all nodes of a cluster: their state, the server that talks to them, the launcher that started them.

A cluster has one generation, and another for each restart after a lost node: with new keys, and nothing of the old one.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfos_lab import messages as m
from tfos_lab.core.states import RunState
from tfos_lab.engine.launchers.base import Launcher
from tfos_lab.engine.logs.writer import LogWriter
from tfos_lab.engine.server import Server
from tfos_lab.engine.state.cluster_state import ClusterState
from tfos_lab.engine.state.feed_state import FeedState
from tfos_lab.engine.state.instructions import Failure, SendTo
from tfos_lab.errors import NodeFailed, TfosError

LOG_TAIL_LINES = 20


class NodeControl:
    """Changes one generation's state from outside; what its launcher reports arrives here. Safe from any thread.

    Parameters
    ----------
    cluster_state : ClusterState
        The nodes.
    server : Server
        Whose thread makes the changes.

    Attributes
    ----------
    launch_error : TfosError or None
        The first error with which the launcher gave up.
    """

    def __init__(self, cluster_state: ClusterState, server: Server) -> None:
        self._cluster_state = cluster_state
        self._server = server
        self.launch_error: TfosError | None = None

    def fail(self, failure: Failure) -> None:
        """End the nodes for a reason that no node has reported."""
        self._server.request(lambda now_s: self._cluster_state.fail(failure, now_s))

    def fail_launch(self, error: TfosError | None, reason: str) -> None:
        """End the nodes because they cannot be started, or because Spark took them away."""
        if error is not None and self.launch_error is None:
            self.launch_error = error
        self.fail(Failure("launcher", "LaunchFailed", reason))

    def lose(self, rank: int, why: str) -> None:
        """Record that a node's agent is gone."""
        self._server.request(lambda now_s: self._cluster_state.lose(rank, why, now_s))

    def lose_executor(self, executor: str, why: str) -> None:
        """Record that an executor is gone, and all nodes on it."""
        with self._server.lock:
            ranks = [rank for rank, view in enumerate(self._cluster_state.views) if view.executor == executor]
        for rank in ranks:
            self.lose(rank, why)
        if not ranks:
            self.fail(Failure("launcher", "LaunchFailed", why, gone=True))

    def executors(self) -> set[str]:
        """Return the executors that have live nodes."""
        with self._server.lock:
            return {view.executor for view in self._cluster_state.views if view.executor and not view.state.ended}

    def missing(self) -> list[str]:
        """Return the nodes that have not reserved, by name."""
        with self._server.lock:
            return self._cluster_state.missing

    def free_slots(self) -> None:
        """Have all agents give their Spark task slots back."""
        self._server.request(
            lambda _now_s: [SendTo(rank, m.FreeSlot()) for rank in range(len(self._cluster_state.views))]
        )


@dataclass
class Generation:
    """One start of all nodes.

    Attributes
    ----------
    number : int
        0 for the first one.
    cluster_state, feed_state
        The state of the nodes, and of the rows that they were fed. Only the server's thread changes them.
    server, launcher
        The thread that talks to the nodes, and what starts them.
    control : NodeControl
        Changes the state from outside.
    feeds : int
        How many of the cluster's feeds these nodes have been given.
    caught_up : bool
        Whether they have been given all feeds that earlier generations had.
    """

    number: int
    cluster_state: ClusterState
    feed_state: FeedState
    server: Server
    control: NodeControl
    launcher: Launcher
    caught_up: bool
    feeds: int = 0

    @property
    def state(self) -> RunState:
        """The state of the nodes as a whole; see `ClusterView`."""
        with self.server.lock:
            return self.cluster_state.state

    def fail(self, failure: Failure) -> None:
        """End the nodes for a reason that no node has reported."""
        self.control.fail(failure)


def failure_of(generation: Generation, log_writer: LogWriter) -> TfosError | None:
    """Return the error that says why the nodes failed, or None if they did not."""
    if generation.control.launch_error is not None:
        return generation.control.launch_error
    with generation.server.lock:
        causes = generation.cluster_state.causes
        failure, also, consequences = causes.first, list(causes.also), dict(causes.consequences)
    if failure is None:
        return None
    return NodeFailed(
        node=failure.node,
        kind=failure.kind,
        message=failure.message,
        traceback=failure.traceback,
        also=also,
        consequences=consequences,
        log_tail=log_writer.read(failure.node, LOG_TAIL_LINES) if ":" in failure.node else "",
    )
