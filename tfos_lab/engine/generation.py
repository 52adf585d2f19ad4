"""One start of a cluster's nodes: the state of it, and who brings them to life and hears them.

A cluster has one generation, and another for each restart after a lost node: new ranks, new keys, nothing of the old
one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tfos_lab import messages as m
from tfos_lab.core.states import RunState
from tfos_lab.engine.launchers.base import Launcher
from tfos_lab.engine.server import Server
from tfos_lab.engine.state.cluster_state import ClusterState
from tfos_lab.engine.state.feed_state import FeedState
from tfos_lab.engine.state.instructions import Failure, SendTo
from tfos_lab.engine.tensorboard.tunnel import Tunnel


@dataclass
class Generation:
    """What a cluster consists of while its nodes live.

    Attributes
    ----------
    number : int
        0 for the first one.
    cluster state, feed state
        Who is where; which rows count. Changed by the server's thread only.
    server, launcher
        Who hears the nodes; who brings them to life.
    tunnel : Tunnel or None
        The way to the chief's TensorBoard, where it has one.
    feeds : int
        How many of the cluster's feeds these nodes have been given.
    caught_up : bool
        Whether they have been given all that earlier generations had.
    """

    number: int
    cluster_state: ClusterState
    feed_state: FeedState
    server: Server
    launcher: Launcher = field(init=False)
    tunnel: Tunnel | None = None
    feeds: int = 0
    caught_up: bool = field(init=False)

    def __post_init__(self) -> None:
        self.caught_up = self.number == 0

    @property
    def state(self) -> RunState:
        """The state that the cluster state has come to."""
        with self.server.lock:
            return self.cluster_state.state

    def listen(self) -> None:
        """Begin to hear the nodes that the launcher will bring to life."""
        self.server.start(self.tunnel, self.launcher.close)

    def fail(self, failure: Failure) -> None:
        """End the nodes for a reason that none of them has told."""
        self.server.request(lambda now_s: self.cluster_state.fail(failure, now_s))

    def lose(self, rank: int, why: str) -> None:
        """The launcher saw a node's agent go."""
        self.server.request(lambda now_s: self.cluster_state.lose(rank, why, now_s))

    def lose_executor(self, executor: str, why: str) -> None:
        """The launcher saw an executor go, and all nodes on it."""
        with self.server.lock:
            ranks = [rank for rank, view in enumerate(self.cluster_state.views) if view.executor == executor]
        for rank in ranks:
            self.lose(rank, why)
        if not ranks:
            self.fail(Failure("launcher", "LaunchFailed", why, gone=True))

    def executors(self) -> set[str]:
        """Return the executors that nodes live on."""
        with self.server.lock:
            return {view.executor for view in self.cluster_state.views if view.executor and not view.state.ended}

    def free_slots(self) -> None:
        """Have all agents give their Spark task slots back."""
        self.server.request(
            lambda _now_s: [SendTo(rank, m.FreeSlot()) for rank in range(len(self.cluster_state.views))]
        )
