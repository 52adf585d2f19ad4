"""The answers of the server extension; ``extensions/jupyterlab`` and the pictures of running clusters read them.

Their TypeScript types are generated from the ones here by ``make format``.
"""

from __future__ import annotations

from typing import TypedDict


class NodeInfo(TypedDict):
    """One node of a cluster."""

    node: str
    state: str
    host: str


class ClusterInfo(TypedDict):
    """What the browser may know of a cluster: no paths of sockets."""

    id: str
    name: str
    state: str
    launcher: str
    started_s: float
    kernel_id: str
    pid: int
    run_dir: str
    nodes: list[NodeInfo]
    tensorboard: bool


class ClusterList(TypedDict):
    """``GET tfos-lab/clusters``: the live clusters; times are seconds since the epoch, by the server's clock."""

    now_s: float
    clusters: list[ClusterInfo]
