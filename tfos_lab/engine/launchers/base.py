"""What a launcher is: the one way in which nodes come to life somewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.roles import NodeSpec
from tfos_lab.errors import TfosError
from tfos_lab.messages import DriverAddress


@dataclass(frozen=True)
class LaunchPlan:
    """What a launcher is given.

    ``shared_dir`` is a folder that nodes on several hosts must all see, or "".
    ``fail(error, reason)``, ``lose(rank, why)`` and ``lose_executor(executor, why)`` are how it tells the cluster that
    nodes cannot come, or have gone; ``executors()`` names the executors that nodes live on; ``free_slots()`` has all
    agents give their Spark task slots back.
    """

    cluster_id: str
    config: ClusterConfig
    node_specs: list[NodeSpec]
    driver: DriverAddress
    shared_dir: str
    fail: Callable[[TfosError | None, str], None]
    lose: Callable[[int, str], None]
    lose_executor: Callable[[str, str], None]
    executors: Callable[[], set[str]]
    free_slots: Callable[[], None]


class Launcher(Protocol):
    """Brings the agents of one cluster to life, and lets go of them."""

    @property
    def name(self) -> str:
        """``"spark"``, ``"local"`` or ``"inline"``."""
        ...

    def launch(self) -> None:
        """Start one agent for each rank; returns when all are on their way, or `cancel` was called meanwhile."""
        ...

    def run_here(self) -> None:
        """Run the user's function on the calling thread, where that is the launcher's way; else do nothing."""
        ...

    def free_slots(self) -> None:
        """Make sure that a feed job finds task slots, although nodes run; does nothing where there are no slots."""
        ...

    def on_executor_end(self, executor: str) -> None:
        """A node has seen its executor end; does nothing where there are no executors."""
        ...

    def cancel(self) -> None:
        """Stop launching what has not begun; nodes that run are stopped through the control channel."""
        ...

    def hint(self) -> str:
        """Return a sentence on what to do when nodes are missing, or nothing."""
        ...

    def close(self) -> None:
        """Let go of everything, ending agents that are still there; may be called twice."""
        ...
