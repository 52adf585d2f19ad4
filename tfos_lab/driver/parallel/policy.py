"""What may decide about independent runs beside the order in which they wait: how large each is, and which is cut."""

from __future__ import annotations

from typing import Any

from tfos_lab.core.states import NodeState
from tfos_lab.driver.parallel.state import RunEntry
from tfos_lab.driver.state.events import MetricsReported
from tfos_lab.errors import TfosError


class RunPolicy:
    """Leaves each run as it is; a search decides more. Called with the runs' lock held."""

    def size(self, entry: RunEntry) -> int:
        """Return how many slots a run takes that may begin next."""
        return entry.slots

    def prepare(self, entry: RunEntry) -> None:
        """A run begins its next try."""

    def reported(self, entry: RunEntry, order: int, report: MetricsReported) -> bool:  # noqa: ARG002 - a hook
        """Return whether a run is to be cut, as a node has reported; ``order`` is 0 for the one that leads."""
        return False

    def returned(self, entry: RunEntry, value: Any) -> TfosError | None:  # noqa: ARG002 - a hook
        """Return why no run can succeed, if the value that one has returned proves it."""
        return None

    def ended(self, entry: RunEntry, state: NodeState) -> None:
        """A run has ended for good."""

    def close(self) -> None:
        """No run begins or goes on any more."""
