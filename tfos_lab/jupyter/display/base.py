"""What every display of a cluster is, what it needs of the cluster, and where it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Protocol, Self

from tfos_lab.engine.bus import Bus
from tfos_lab.engine.state.events import ClusterView, MetricsReported


class WatchedCluster(Protocol):
    """What a display needs of a cluster."""

    @property
    def id(self) -> str:
        """Unique id of the run."""

    @property
    def name(self) -> str:
        """The label that the user gave."""

    @property
    def bus(self) -> Bus:
        """Where events come from."""

    @property
    def run_dir(self) -> str | Path:
        """The folder with the whole logs."""

    def view(self) -> ClusterView:
        """Return the cluster as it is now."""

    def stop(self) -> None:
        """End the cluster; may be called twice."""

    def logs(self, node: str | None = None, tail: int | None = None) -> str:
        """Return the (last lines of the) log of a node as text."""

    def log_path(self, node: str) -> Path:
        """Return where the whole log of a node is; raises ``KeyError`` for what is no node."""

    def failure(self) -> Exception:
        """Return the error that tells why the cluster failed."""

    def reports_after(self, count: int = 0) -> tuple[list[MetricsReported], int]:
        """Return the metrics reported after the first ``count`` ones, and how many there have been in all."""


class Display(ABC):
    """The output of one cell while its cluster lives."""

    def poll(self) -> None:  # noqa: B027 - most displays need no poll
        """Called by the main thread, often, while it waits."""

    @abstractmethod
    def close(self) -> None:
        """Show how it ended, and let everything go; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
