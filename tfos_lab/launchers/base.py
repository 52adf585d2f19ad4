"""The interface of launchers."""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from tfos_lab.core.messages import LaunchSpec
from tfos_lab.core.node_addresses import node_addresses
from tfos_lab.core.roles import NodeSpec

if TYPE_CHECKING:
    from tfos_lab.driver.head import Head

_WITH_DRIVER_PS = "tfos_lab.launchers.spark.launcher:DriverPsLauncher"


class Launcher(ABC):
    """Starts the agents of one head's nodes, or of some of them, and ends them; tells the head what happens to them.

    Derived classes define `launch`, `cancel` and `close`. The other methods do nothing unless they are overridden.
    """

    def __init__(self, head: Head, node_specs: list[NodeSpec] | None = None) -> None:
        self._head, self._cluster = head, head.cluster
        self._node_specs = head.cluster.node_specs if node_specs is None else node_specs

    def _launch_spec(self, **own: Any) -> LaunchSpec:
        """Return what the agent of a node needs; ``own`` are the fields that only this launcher knows."""
        cluster = self._cluster
        spans_hosts = cluster.launcher.spans_hosts
        ports, network = node_addresses() if spans_hosts else (None, "")
        return LaunchSpec(
            cluster_id=cluster.id,
            driver=self._head.address,
            extra_env=dict(cluster.config.env),
            # Nodes on several hosts must all see it.
            shared_dir=cluster.files.backup_home if spans_hosts and cluster.config.restarts else "",
            ports=ports,
            network=network,
            **own,
        )

    @abstractmethod
    def launch(self) -> None:
        """Start one agent for each rank; returns when all are on their way, or `cancel` was called meanwhile."""

    @abstractmethod
    def cancel(self) -> None:
        """Stop launching what has not begun; nodes that run are stopped through the control channel."""

    @abstractmethod
    def close(self) -> None:
        """Release everything, and end agents that are still there; may be called twice."""

    def run_here(self) -> None:  # noqa: B027 - a hook
        """Run the user's function on the calling thread, if that is how the launcher works."""

    def free_slots(self) -> None:  # noqa: B027 - a hook
        """Free Spark task slots for a feed job, if the nodes hold them."""

    def on_executor_end(self, executor: str) -> None:  # noqa: B027 - a hook
        """Find out why an executor has ended, if there are executors; an agent reported its end."""

    def hint(self) -> str:
        """Return a sentence on what to do when nodes are missing, or ""."""
        return ""


def make_launcher(head: Head) -> Launcher:
    """Make the launcher of a head's nodes; its module is imported now."""
    traits = head.cluster.launcher
    factory = _WITH_DRIVER_PS if head.cluster.config.driver_ps and traits.spans_hosts else traits.factory
    launcher: Launcher = pkgutil.resolve_name(factory)(head)
    return launcher
