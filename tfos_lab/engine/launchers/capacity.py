"""How many nodes this machine can run: memory, cores, open files, processes.

More nodes than cores are fine, and usual on a laptop. A number that would exhaust the machine is refused before the
first process is started.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfos_lab.errors import NotEnoughRoom
from tfos_lab.texts import format_count

# What the agent and the child of a node need once it computes with TensorFlow (measured: 117 MB and 116 threads on 2
# cores). Without TensorFlow it is a tenth of that.
NODE_BYTES = 110_000_000
NODE_TASKS = 110
# Files that the notebook holds open for a node: two connections and its log.
NODE_FILES = 3
# Agents send heartbeats once a second, and children share the rest; with more nodes, some would be taken for lost.
NODES_PER_CORE = 64
# Kept free for the notebook itself.
SPARE_FILES = 64
# So many nodes are never refused: free resources are known only roughly.
ALWAYS = 4

_UNLIMITED_BYTES = 1 << 60
_PIDS = ("pids.max", "pids.current")
_MEMORY_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
_MEMORY_V2 = ("memory.max", "memory.current")


@dataclass(frozen=True, kw_only=True)
class Room:
    """The free resources of a machine; None for those that it does not report."""

    cores: int
    free_bytes: int | None = None
    free_files: int | None = None
    free_tasks: int | None = None

    def holds(self) -> tuple[int, str]:
        """Return how many nodes can run, and a sentence on what limits them."""
        limits = [
            (
                NODES_PER_CORE * self.cores,
                f"it has {format_count(self.cores, 'core')}, for at most {NODES_PER_CORE} nodes each",
            )
        ]
        if self.free_bytes is not None:
            free = f"{self.free_bytes / 1e9:.1f} GB are free"
            text = f"a node that trains takes {NODE_BYTES / 1e6:.0f} MB and more, and {free}"
            limits.append((self.free_bytes // NODE_BYTES, text))
        if self.free_tasks is not None:
            text = f"a node that trains takes {NODE_TASKS} threads, and {self.free_tasks:,} more may be started"
            limits.append((self.free_tasks // NODE_TASKS, text))
        if self.free_files is not None:
            text = (
                f"a node takes {NODE_FILES} open files of this process, which may open {self.free_files:,} more "
                "(ulimit -n)"
            )
            limits.append(((self.free_files - SPARE_FILES) // NODE_FILES, text))
        count, text = min(limits)
        return max(count, ALWAYS), text


def require_room(nodes: int, *, option: str = "cluster_size") -> None:
    """Raise `NotEnoughRoom` if this machine cannot run as many nodes as an option asks for."""
    if nodes > ALWAYS:
        fits, limit = look_around().holds()
        if nodes > fits:
            raise NotEnoughRoom(wanted=nodes, fits=fits, limit=limit, option=option)


def look_around(root: Path = Path("/")) -> Room:
    """Return what is free on this machine, or in the container of this process; ``root`` is for tests."""
    return Room(
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        free_bytes=min([*_free_memory(root), *_left_in_groups(root, "memory", _MEMORY_V1, _MEMORY_V2)], default=None),
        free_files=_free_files(root),
        free_tasks=min([*_free_tasks(root), *_left_in_groups(root, "pids", _PIDS, _PIDS)], default=None),
    )


def _free_memory(root: Path) -> Iterator[int]:
    """Yield the free memory of the whole machine, swap included."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = (line.split() for line in (root / "proc/meminfo").read_text().splitlines())
        sizes = {fields[0].rstrip(":"): int(fields[1]) * 1024 for fields in lines}
        yield sizes["MemAvailable"] + sizes.get("SwapFree", 0)


def _free_files(root: Path) -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError):
        if soft != resource.RLIM_INFINITY:
            return max(0, soft - len(list((root / "proc/self/fd").iterdir())))
    return None


def _free_tasks(root: Path) -> Iterator[int]:
    """Yield how many more processes and threads the kernel and the user's limit allow."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        there = int((root / "proc/loadavg").read_text().split()[3].partition("/")[2])
        for name in ("pid_max", "threads-max"):
            yield max(0, int((root / "proc/sys/kernel" / name).read_text()) - there)
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and _binds_user():
        yield max(0, soft - sum(_threads_of_user(root)))


def _binds_user() -> bool:
    """Whether the user's limit on processes applies; root has none."""
    return os.geteuid() != 0


def _threads_of_user(root: Path) -> Iterator[int]:
    for process in (root / "proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid == os.geteuid():
                yield len(list((process / "task").iterdir()))


def _left_in_groups(root: Path, controller: str, v1: tuple[str, str], v2: tuple[str, str]) -> Iterator[int]:
    """Yield what is left of the limit of each control group of this process that has one."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                yield from _left(root / "sys/fs/cgroup", path, v2)
            elif controller in controllers.split(","):
                yield from _left(root / "sys/fs/cgroup" / controller, path, v1)


def _left(mount: Path, path: str, names: tuple[str, str]) -> Iterator[int]:
    """Yield what is left in this group and its parents; within a container, the mount is the group itself."""
    folder = mount / path.strip("/")
    for group in (folder, *folder.parents):
        with contextlib.suppress(OSError, ValueError):
            limit, used = (int((group / name).read_text()) for name in names)
            if limit < _UNLIMITED_BYTES:
                yield max(0, limit - used + (_reclaimable(group) if names != _PIDS else 0))
        if group == mount:
            return


def _reclaimable(group: Path) -> int:
    """Return how much of a group's memory is page cache that can be reclaimed."""
    with contextlib.suppress(OSError, ValueError):
        for line in (group / "memory.stat").read_text().splitlines():
            name, _, size = line.partition(" ")
            if name in ("inactive_file", "total_inactive_file"):
                return int(size)
    return 0
