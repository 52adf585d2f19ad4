"""The answers of the server extension; ``extensions/jupyterlab`` and the pictures of running clusters read them.

Their TypeScript types are generated from the ones here by ``make format``. Metrics that are not finite are null.
"""

from __future__ import annotations

from typing import TypedDict

import msgspec

from tfos_lab.engine.state.events import NodeView


class Figures(msgspec.Struct, frozen=True):
    """How far a cluster is: its slowest node's step, and one metric, which is the loss where there is one.

    ``progress`` is how much of the training is done, 0 to 1; like ``seconds_left`` it is None where it is not known.
    """

    step: int | None = None
    total_steps: int | None = None
    metric: str = ""
    value: float | None = None
    progress: float | None = None
    seconds_left: float | None = None


class ClusterInfo(TypedDict):
    """What the browser may know of a cluster: no paths of sockets.

    `notebook` is a path below the server's root, or empty; `kernel_state` is what the kernel does besides, such as
    `busy`, or empty.
    """

    id: str
    name: str
    state: str
    reason: str
    launcher: str
    started_s: float
    kernel_id: str
    kernel_state: str
    notebook: str
    pid: int
    run_dir: str
    nodes: list[NodeView]
    figures: Figures
    alarm: str
    verdict: str
    tensorboard: bool


class ClusterList(TypedDict):
    """``GET tfos-lab/clusters``: the live clusters; times are seconds since the epoch, by the server's clock."""

    now_s: float
    clusters: list[ClusterInfo]


class RunInfo(TypedDict):
    """A run that has ended; `outcome` is `done`, `failed`, `stopped` or `lost`."""

    id: str
    name: str
    launcher: str
    outcome: str
    reason: str
    started_s: float
    ended_s: float
    notebook: str
    run_dir: str
    nodes: int
    figures: Figures
    tensorboard: bool


class RunList(TypedDict):
    """``GET tfos-lab/runs``: the latest ended runs, the newest first."""

    now_s: float
    runs: list[RunInfo]
