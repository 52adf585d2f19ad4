"""Makes the cluster in which a run goes on, and turns its end into an outcome."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfos_lab.core.config import ClusterConfig, assign_roles
from tfos_lab.core.gpu_shares import ALL
from tfos_lab.core.launchers import LauncherTraits
from tfos_lab.core.payload import pack
from tfos_lab.core.roles import NodeSpec, chief_of
from tfos_lab.data.session_stores import SessionStores
from tfos_lab.driver.cluster import Cluster
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.driver.state.instructions import Failure
from tfos_lab.errors import LaunchFailed, NodeFailed, ReservationTimeout, RunFailed, TfosError
from tfos_lab.node.traceback_text import format_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Names that `Failure.kind` has for nodes whose function has not raised.
_EXITED, _LOST, _HUNG = "Exited", ("Lost", "LaunchFailed"), "Hung"


@dataclass(frozen=True)
class NodeMaker:
    """Makes the cluster for each try of each run.

    Attributes
    ----------
    call_of : callable
        Returns the function, and what it gets, in a run.
    config_of : callable
        Returns what a run is asked for.
    launcher : LauncherTraits
        Who starts the nodes.
    spark : SparkSession or None
        Whose executors to use.
    hosts, stores
        See `Cluster`.
    """

    call_of: Callable[[int], tuple[Callable[..., Any], Any]]
    config_of: Callable[[int], ClusterConfig]
    launcher: LauncherTraits
    spark: SparkSession | None
    hosts: tuple[str, str]
    stores: SessionStores

    def make(self, index: int, run_dir: RunDir, extra_env: Mapping[str, str]) -> Cluster:
        """Return the cluster of a run's next try, which is not launched yet."""
        config = self.config_of(index)
        if extra_env:
            config = dataclasses.replace(config, env={**config.env, **extra_env}, gpus=None)
        elif config.gpus is None:
            config = dataclasses.replace(config, gpus=ALL)  # else the first run would take all
        map_fun, args = self.call_of(index)
        return Cluster(
            config,
            (map_fun, args),
            launcher=self.launcher,
            node_specs=node_specs_of(config, self.launcher),
            files=run_dir,
            payload=b"" if self.launcher.runs_inline else pack(map_fun, args, with_modules=True),
            spark=self.spark,
            hosts=self.hosts,
            stores=self.stores,
            chief_stays_here=False,  # runs would collide there
            published=False,
        )


def node_specs_of(config: ClusterConfig, launcher: LauncherTraits) -> list[NodeSpec]:
    """Return a run's nodes; inline, there is no more than one."""
    return assign_roles(ClusterConfig(name=config.name) if launcher.runs_inline else config)


def leader_of(cluster: Cluster) -> str:
    """Return the name of the node that leads."""
    return chief_of(node_specs_of(cluster.config, cluster.launcher)).node


def value_of(cluster: Cluster) -> Any:
    """Return what the function returned on the node that leads."""
    return cluster.results.get(leader_of(cluster))


def failure_from_error(error: BaseException, cluster: Cluster | None) -> RunFailed:
    """Return the failure of a run whose node ended with an error; the caller fills in which run it was."""
    match error:
        case NodeFailed():
            where = f"{error.node}: " if cluster is not None and len(cluster.nodes) > 1 else ""
            return RunFailed(
                run=-1,
                kind=_kind_of(error.kind, _first_cause(cluster)),
                error="" if error.kind in (_EXITED, *_LOST, _HUNG) else error.kind,
                message=where + error.message,
                traceback=error.traceback,
                log_tail=error.log_tail,
            )
        case LaunchFailed() | ReservationTimeout():
            return RunFailed(run=-1, kind="lost", message=str(error))
        case SystemExit():
            return RunFailed(run=-1, kind="exited", message=f"the function called sys.exit({error.code!r})")
        case TfosError():
            return RunFailed(run=-1, kind="raised", error=type(error).__name__, message=str(error))
    name, message, text = format_remote(error)
    return RunFailed(run=-1, kind="raised", error=name, message=message, traceback=text)


def _first_cause(cluster: Cluster | None) -> Failure | None:
    return cluster.head.state.causes.first if cluster is not None else None


def _kind_of(error: str, cause: Failure | None) -> str:
    """Return which kind of failure it was; a process that a signal has ended was taken from outside."""
    if error in _LOST or (error == _EXITED and cause is not None and cause.gone):
        return "lost"
    if error == _HUNG:
        return "hung"
    return "exited" if error == _EXITED else "raised"
