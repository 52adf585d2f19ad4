"""What the parts of `tfos_lab.engine.feed` need of a cluster, as protocols from narrow to wide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tfos_lab.engine.generation import Generation
    from tfos_lab.errors import TfosError


class SessionOwner(Protocol):
    """Has a SparkSession, or none: to read an RDD with."""

    @property
    def spark(self) -> SparkSession | None:
        """Whose executors are used."""
        ...


class AskedCluster(SessionOwner, Protocol):
    """Is asked to take rows: for the checks before a feed."""

    @property
    def name(self) -> str:
        """The label that the user gave."""
        ...

    @property
    def state(self) -> RunState:
        """The state of the cluster as a whole."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the cluster has ended."""
        ...


class JobCluster(Protocol):
    """Is fed by one job to the nodes of one generation."""

    @property
    def id(self) -> str:
        """Unique identifier."""
        ...

    @property
    def name(self) -> str:
        """The label that the user gave."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the cluster has ended."""
        ...

    def note(self, text: str) -> None:
        """Add a sentence that the cell shows beside the table."""
        ...

    def failure(self) -> TfosError:
        """Return why the cluster failed."""
        ...


class FedCluster(JobCluster, AskedCluster, Protocol):
    """Is fed, whatever happens to its nodes meanwhile."""

    @property
    def generation(self) -> Generation:
        """The nodes as they are now."""
        ...

    def wait_until_running(self) -> None:
        """Wait until all nodes run."""
        ...

    def wait_for_generation(self, number: int) -> None:
        """Wait until the nodes have been restarted for the ``number``-th time, or the cluster has ended."""
        ...
