"""How many nodes this machine can run: its cores, and its free memory.

More nodes than cores are fine, and usual on a laptop. A number that would exhaust the machine is refused before the
first process is started.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tfos_lab.core.processes import meminfo
from tfos_lab.errors import NotEnoughRoom
from tfos_lab.texts import format_count

# What the agent and the child of a node need once it computes with TensorFlow (measured: 117 MB).
NODE_BYTES = 110_000_000
# With more nodes that train on a core, some are taken for lost, as their agents cannot send heartbeats in time (seen:
# 32 a core).
NODES_PER_CORE = 16
# So many nodes are never refused: free resources are known only roughly.
ALWAYS = 4


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def room(root: Path = Path("/")) -> tuple[int, str]:
    """Return how many nodes can run on this machine, and what limits them; ``root`` is for tests."""
    limits = [
        (NODES_PER_CORE * cores(), f"it has {format_count(cores(), 'core')}, for at most {NODES_PER_CORE} nodes each")
    ]
    sizes = meminfo(root)
    machine = [sizes["MemAvailable"] + sizes.get("SwapFree", 0)] if "MemAvailable" in sizes else []
    for free_bytes in [*machine, *_free_in_control_groups(root)]:
        text = f"a node that trains takes {NODE_BYTES / 1e6:.0f} MB and more, and {free_bytes / 1e9:.1f} GB are free"
        limits.append((free_bytes // NODE_BYTES, text))
    count, text = min(limits)
    return max(count, ALWAYS), text


def require_room(nodes: int, *, option: str = "cluster_size") -> None:
    """Raise `NotEnoughRoom` if this machine cannot run as many nodes as an option asks for."""
    if nodes > ALWAYS:
        fits, limit = room()
        if nodes > fits:
            raise NotEnoughRoom(wanted=nodes, fits=fits, limit=limit, option=option)


def _free_in_control_groups(root: Path) -> Iterator[int]:
    """Yield what is free in each control group (version 2) of this process that has a limit."""
    with contextlib.suppress(OSError, ValueError):
        [path] = [line[3:] for line in (root / "proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
        mount = root / "sys/fs/cgroup"
        for group in [mount / path.strip("/"), *(mount / path.strip("/")).parents]:
            # Within a container, the mount is the group itself.
            with contextlib.suppress(OSError, ValueError):
                limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
                yield max(0, limit - used + _page_cache(group))
            if group == mount:
                return


def _page_cache(group: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        sizes = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return int(sizes.get("inactive_file", 0))
    return 0
