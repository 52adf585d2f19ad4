"""What TFoS told of a cluster: ``cluster_info``, a dict for each node, and ``cluster_meta``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from tfos_lab.engine.cluster import Cluster
    from tfos_lab.engine.state.events import NodeView


def cluster_info(cluster: Cluster, tensorboard_url: str | None) -> list[dict[str, Any]]:
    """Return a dict for each node, in the order of ``executor_id``.

    The keys are TFoS's. ``tb_port`` is the port of ``tensorboard_url`` on the chief, and 0 elsewhere. There is no
    manager to connect to and no process to end by its pid, so ``addr``, ``authkey`` and ``tb_pid`` are empty.
    """
    tb_port = _port_of(tensorboard_url) if tensorboard_url else 0
    return [_node_info(rank, view, tb_port if view.is_chief else 0) for rank, view in enumerate(cluster.nodes)]


def _node_info(rank: int, view: NodeView, tb_port: int) -> dict[str, Any]:
    host, _, port = view.address.rpartition(":")
    return {
        "executor_id": rank,
        "host": host.strip("[]"),
        "job_name": view.job_name,
        "task_index": view.task_index,
        "port": int(port),
        "tb_pid": 0,
        "tb_port": tb_port,
        "addr": None,
        "authkey": b"",
    }


def _port_of(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def cluster_template(cluster: Cluster) -> dict[str, list[int]]:
    """Return the numbers of the nodes of each job."""
    template: dict[str, list[int]] = {}
    for rank, view in enumerate(cluster.nodes):
        template.setdefault(view.job_name, []).append(rank)
    return template
