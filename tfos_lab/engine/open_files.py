"""The open files that a driver needs for its nodes: their connections and logs."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

from tfos_lab.engine.launchers.capacity import ALWAYS, NODE_FILES, SPARE_FILES
from tfos_lab.errors import NotEnoughRoom


def allow_files_for(nodes: int) -> None:
    """Raise this process's soft limit of open files as far as so many nodes need it.

    Raises
    ------
    NotEnoughRoom
        If the hard limit, which only root may raise, does not suffice.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = _open_files() + SPARE_FILES
    needed = spare + NODE_FILES * nodes
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed and nodes > ALWAYS:
        limit = (
            f"a node takes {NODE_FILES} open files of this process, which may open {hard:,} in all and needs "
            f"{needed:,} (ulimit -Hn; in a container --ulimit nofile)"
        )
        raise NotEnoughRoom(
            wanted=nodes, fits=max(ALWAYS, (hard - spare) // NODE_FILES), limit=limit, option="cluster_size"
        )
    with contextlib.suppress(ValueError, OSError):  # a system may allow less than its hard limit says
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (needed if hard == resource.RLIM_INFINITY else min(needed, hard), hard)
        )


def _open_files() -> int:
    with contextlib.suppress(OSError):
        return len(list(Path("/proc/self/fd").iterdir()))
    return SPARE_FILES
