"""What feeds need of their cluster, as narrow protocols: tests stand in for it without nodes, sockets or Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tfos_lab.core.states import RunState
    from tfos_lab.engine.launchers.base import Launcher
    from tfos_lab.engine.state.events import NodeView
    from tfos_lab.engine.state.feed_state import FeedState
    from tfos_lab.engine.state.instructions import Failure, Instruction
    from tfos_lab.errors import TfosError
    from tfos_lab.messages import Stacks


class AsksForStacks(Protocol):
    """Asks nodes where they are."""

    def answers(self, ranks: AbstractSet[int], timeout_s: float) -> dict[int, Stacks]:
        """Ask nodes, and return what those say that answer in time, by rank."""
        ...


class FeedServer(Protocol):
    """The thread that owns the state of a generation."""

    @property
    def stacks(self) -> AsksForStacks:
        """Asks its nodes where they are."""
        ...

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Guards the state for readers on other threads."""
        ...

    def request(self, change: Callable[[float], list[Instruction]]) -> None:
        """Have ``change(now_s)`` made, and its instructions carried out; does not wait for that."""
        ...


class NodeStates(Protocol):
    """How the nodes of a generation are doing."""

    @property
    def reason(self) -> str:
        """Why it failed, or is restarted."""
        ...

    @property
    def views(self) -> Sequence[NodeView]:
        """The nodes, by rank."""
        ...

    def fail(self, failure: Failure, now_s: float) -> list[Instruction]:
        """End the nodes for a cause that none of them has reported; called by the server's thread."""
        ...


class FedGeneration(Protocol):
    """The nodes of one generation, as their feeds see them.

    Attributes
    ----------
    feeds : int
        How many of the cluster's feeds these nodes have been given.
    caught_up : bool
        Whether they have been given all that earlier generations had.
    """

    feeds: int
    caught_up: bool

    @property
    def number(self) -> int:
        """0 for the first generation."""
        ...

    @property
    def state(self) -> RunState:
        """Its state as a whole."""
        ...

    @property
    def cluster_state(self) -> NodeStates:
        """The state of its nodes."""
        ...

    @property
    def feed_state(self) -> FeedState:
        """The state of its feeds; changed by the server's thread only."""
        ...

    @property
    def server(self) -> FeedServer:
        """Its server."""
        ...

    @property
    def launcher(self) -> Launcher:
        """What started its nodes."""
        ...

    def fail(self, failure: Failure) -> None:
        """Fail the nodes for a reason that none of them has reported."""
        ...


class SessionOwner(Protocol):
    """Has a SparkSession to read an RDD with, or none."""

    @property
    def spark(self) -> SparkSession | None:
        """The session whose executors are used."""
        ...


class AskedCluster(SessionOwner, Protocol):
    """A cluster that is asked to take rows: what the checks before a feed need."""

    @property
    def name(self) -> str:
        """The user's label for it."""
        ...

    @property
    def state(self) -> RunState:
        """Its state as a whole."""
        ...

    @property
    def ended(self) -> bool:
        """Whether it has ended, well or badly."""
        ...

    @property
    def generation(self) -> FedGeneration:
        """Its nodes as they are now."""
        ...

    def wait_until_running(self) -> None:
        """Wait until all nodes run; raise if they fail."""
        ...


class JobCluster(Protocol):
    """A cluster, as a feed to the nodes of one generation sees it."""

    @property
    def id(self) -> str:
        """Its unique identifier."""
        ...

    @property
    def name(self) -> str:
        """The user's label for it."""
        ...

    @property
    def ended(self) -> bool:
        """Whether it has ended, well or badly."""
        ...

    def failure(self) -> TfosError:
        """Return the error that explains why it failed."""
        ...

    def note(self, text: str) -> None:
        """Add a sentence that is shown beside its table."""
        ...


class FedCluster(JobCluster, AskedCluster, Protocol):
    """A cluster, as all its feeds see it: its nodes may be started again."""

    def wait_for_generation(self, number: int) -> None:
        """Wait until this generation has begun, or the cluster has ended."""
        ...
