"""Divides this machine's GPUs among local nodes."""

from __future__ import annotations

import os
from pathlib import Path

from tfos_lab.errors import ConfigError


def visible_gpus() -> list[str]:
    """Return the indices of the NVIDIA GPUs that this process may use, without loading a driver library."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [gpu.strip() for gpu in visible.split(",") if gpu.strip() and gpu.strip() != "-1"]
    cards = Path("/proc/driver/nvidia/gpus")
    return [str(index) for index in range(len(list(cards.iterdir())))] if cards.is_dir() else []


def share_out_gpus(per_node: int | None, nodes: int) -> list[list[str] | None]:
    """Return each node's GPU indices; None leaves all of them visible to a node.

    Raises
    ------
    ConfigError
        If there are fewer GPUs than asked for.
    """
    if per_node is None:
        return [None] * nodes
    gpus = visible_gpus()
    if per_node * nodes > len(gpus):
        raise ConfigError(
            [
                (
                    f"gpus={per_node} for {nodes} nodes needs {per_node * nodes} GPUs, and this machine has "
                    f"{len(gpus)}; ask for gpus={len(gpus) // nodes}, or leave the option out to share them"
                )
            ]
        )
    return [gpus[index * per_node : (index + 1) * per_node] for index in range(nodes)]
