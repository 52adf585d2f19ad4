"""How many of a host's GPUs each node is to take, and what to say where there are too few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.gpu_shares import EQUAL, gpus_wanted
from tfos_lab.core.roles import NodeSpec
from tfos_lab.errors import ConfigError, NotEnoughGpus
from tfos_lab.node.gpus import visible_gpus
from tfos_lab.texts import format_count

if TYPE_CHECKING:
    from tfos_lab.driver.state.events import NodeView


def wanted_of(config: ClusterConfig, spec: NodeSpec) -> int | None:
    """Return how many GPUs a node wants: a number, `EQUAL`, or None where its environment decides."""
    return gpus_wanted(config.gpus, spec.job_name, config.env)


def require_gpus(wanted: Sequence[int | None]) -> None:
    """Raise `ConfigError` if nodes on this machine want more GPUs than it has; `EQUAL` shares always fit."""
    counts = [count for count in wanted if count is not None and count > 0]
    needed = sum(counts)
    gpus = visible_gpus() if needed else []
    if needed > len(gpus):
        per_node, nodes = max(counts), len(counts)
        raise ConfigError(
            [
                (
                    f"gpus={per_node} for {format_count(nodes, 'node')} needs {format_count(needed, 'GPU')}, and this "
                    f"machine has {len(gpus)}; ask for gpus={len(gpus) // nodes}, or leave the option out to "
                    "divide them"
                )
            ]
        )


def check_assigned(config: ClusterConfig, per_task: int | None) -> None:
    """Raise `ConfigError` if nodes are to have more GPUs than Spark assigns to their tasks; None if it assigns none."""
    counts = config.gpus.values() if isinstance(config.gpus, Mapping) else [config.gpus]
    most = max((count for count in counts if isinstance(count, int)), default=0)
    if per_task is not None and most > per_task:
        raise ConfigError(
            [
                (
                    f"gpus={most}: Spark assigns {per_task} to each task; ask for gpus={per_task}, or set "
                    f"spark.task.resource.gpu.amount={most} before the session starts"
                )
            ]
        )


def shortage(config: ClusterConfig, node_specs: Sequence[NodeSpec], views: Sequence[NodeView]) -> NotEnoughGpus | None:
    """Return an error if nodes that have reserved got fewer GPUs than they were to have, else None."""
    wanted = {spec.node: wanted_of(config, spec) or 0 for spec in node_specs}
    if all(len(view.gpus) >= wanted[view.name] for view in views):
        return None
    hosts: dict[str, list[int]] = {}
    for view in views:
        if wanted[view.name] > 0:
            nodes, there, taken = hosts.get(view.host, [0, 0, 0])
            hosts[view.host] = [nodes + 1, max(there, view.gpu_count), taken + len(view.gpus)]
    return NotEnoughGpus(wanted=max(wanted.values()), hosts=hosts)


def uneven(config: ClusterConfig, node_specs: Sequence[NodeSpec], views: Sequence[NodeView]) -> str:
    """Return a sentence if hosts had too few GPUs to give each node that trains as many as the others, else ""."""
    sharing = {spec.node for spec in node_specs if wanted_of(config, spec) == EQUAL}
    sharers = [view for view in views if view.name in sharing and view.gpu_count]
    poor = [view for view in sharers if not view.gpus]
    if not poor:
        return ""
    hosts = ", ".join(sorted({f"{view.host} has {view.gpu_count}" for view in poor}))
    nodes = ", ".join(view.name for view in poor)
    return (
        f"no GPU was left for {nodes} ({hosts}), which compute on the CPU: ask for fewer nodes, or for gpus=all to "
        "let nodes share them"
    )
