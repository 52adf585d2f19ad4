"""The interface of launchers, and what they are given to work with."""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.launchers import LauncherTraits
from tfos_lab.core.roles import NodeSpec
from tfos_lab.errors import TfosError
from tfos_lab.messages import DriverAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WITH_DRIVER_PS = "driver_ps:DriverPsLauncher"


@dataclass(frozen=True)
class LaunchPlan:
    """Which nodes to launch, and how to report what happens to them.

    Attributes
    ----------
    traits : LauncherTraits
        The launcher's entry in `tfos_lab.core.launchers`.
    driver : DriverAddress
        Where the agents report.
    shared_dir : str
        A folder that nodes on several hosts must all see, or "".
    fail : callable
        ``fail(error, reason)``: the nodes cannot be launched, or all of them have gone.
    lose : callable
        ``lose(rank, why)``: a node has gone.
    lose_executor : callable
        ``lose_executor(executor, why)``: an executor has gone, with all nodes on it.
    executors : callable
        Returns the executors that nodes live on.
    free_slots : callable
        Has all agents give their Spark task slots back.
    missing : callable
        Returns the nodes that have not reserved, by name.
    note : callable
        ``note(text)``: adds a sentence that the cell shows.
    spark : SparkSession or None
        The session to use, if there is one.
    call : tuple
        The user's function and its ``args``, for launchers that run it in this process.
    chief_stays_here : bool
        Whether a chief on this machine works in the folder of the notebook, and not in one of its own.
    """

    traits: LauncherTraits
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
    missing: Callable[[], list[str]]
    note: Callable[[str], None]
    spark: SparkSession | None
    call: tuple[Callable[..., Any], Any]
    chief_stays_here: bool = True


class Launcher(ABC):
    """Starts the agents of one cluster somewhere, and ends them.

    Derived classes define `launch`, `cancel` and `close`. The other methods do nothing unless they are overridden.
    """

    def __init__(self, plan: LaunchPlan) -> None:
        self._plan = plan

    @property
    def traits(self) -> LauncherTraits:
        """What the launcher can do."""
        return self._plan.traits

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


def launcher_factory(traits: LauncherTraits, *, driver_ps: bool = False) -> Callable[[LaunchPlan], Launcher]:
    """Return the class of a launcher; its module is imported now."""
    factory = _WITH_DRIVER_PS if driver_ps and traits.spans_hosts else traits.factory
    name = factory if "." in factory else f"{__package__}.{factory}"
    return cast("Callable[[LaunchPlan], Launcher]", pkgutil.resolve_name(name))


def make_launcher(plan: LaunchPlan) -> Launcher:
    """Make the launcher that the plan names."""
    return launcher_factory(plan.traits, driver_ps=plan.config.driver_ps)(plan)
