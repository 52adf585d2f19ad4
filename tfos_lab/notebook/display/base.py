"""What a display is, and what it needs of a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Protocol, Self

from tfos_lab.driver.bus import Bus
from tfos_lab.driver.state.events import ClusterView, MetricsReported


class WatchedCluster(Protocol):
    """The part of a cluster that displays use."""

    @property
    def id(self) -> str:
        """Unique id of the run."""

    @property
    def name(self) -> str:
        """The label that the user gave."""

    @property
    def bus(self) -> Bus:
        """Publishes the events."""

    @property
    def run_dir(self) -> str | Path:
        """The folder with the complete logs."""

    def view(self) -> ClusterView:
        """Return the cluster as it is now."""

    def stop(self) -> None:
        """Stop the cluster; may be called twice."""

    def logs(self, node: str | None = None, tail: int | None = None) -> str:
        """Return the log of a node, or its last lines."""

    def log_path(self, node: str) -> Path:
        """Return the file with the log of a node; raises ``KeyError`` for an unknown node."""

    def failure(self) -> Exception:
        """Return the error that explains why the cluster failed."""

    def reports_after(self, count: int = 0) -> tuple[list[MetricsReported], int]:
        """Return the metrics reported after the first ``count`` ones, and how many there have been in all."""


class Display(ABC):
    """The output of one cell while its cluster lives; a context manager that closes it."""

    def poll(self) -> None:  # noqa: B027 - most displays need no poll
        """Called by the main thread, often, while it waits."""

    @abstractmethod
    def close(self) -> None:
        """Show the end and release everything; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
