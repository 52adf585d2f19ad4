"""How many nodes this machine has room for: memory, cores, open files, processes.

More nodes than cores are fine, and usual on a laptop. What is refused is a number that would exhaust the machine,
before a single process is made.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfos_lab.errors import NotEnoughRoom

# What a node takes that has begun to compute with TensorFlow: its agent and its child (seen: 117 MB, 116 threads on 2
# cores). One that does not holds a tenth of it.
NODE_BYTES = 110_000_000
NODE_TASKS = 110
# What it takes of the notebook's own open files: a connection that holds it, one that it talks on, its log.
NODE_FILES = 3
# Agents beat once a second and children share the rest: beyond this, nodes are taken for lost rather than trained.
NODES_PER_CORE = 64
# Kept free for the notebook itself.
SPARE_FILES = 64
# So many nodes are never refused: what a machine has left is known only roughly.
ALWAYS = 4

_UNLIMITED_BYTES = 1 << 60
_PIDS = ("pids.max", "pids.current")
_MEMORY_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
_MEMORY_V2 = ("memory.max", "memory.current")


@dataclass(frozen=True, kw_only=True)
class Room:
    """What there is; None for what this machine does not tell."""

    cores: int
    free_bytes: int | None = None
    free_files: int | None = None
    free_tasks: int | None = None

    def holds(self) -> tuple[int, str]:
        """Return how many nodes there is room for, and in words what limits them."""
        limits = [
            (NODES_PER_CORE * self.cores, f"it has {_cores(self.cores)}, for at most {NODES_PER_CORE} nodes each")
        ]
        if self.free_bytes is not None:
            free = f"{self.free_bytes / 1e9:.1f} GB are free"
            words = f"a node that trains takes {NODE_BYTES / 1e6:.0f} MB and more, and {free}"
            limits.append((self.free_bytes // NODE_BYTES, words))
        if self.free_tasks is not None:
            words = f"a node that trains takes {NODE_TASKS} threads, and {self.free_tasks:,} more may be started"
            limits.append((self.free_tasks // NODE_TASKS, words))
        if self.free_files is not None:
            words = (
                f"a node takes {NODE_FILES} open files of this process, which may open {self.free_files:,} more "
                "(ulimit -n)"
            )
            limits.append(((self.free_files - SPARE_FILES) // NODE_FILES, words))
        count, words = min(limits)
        return max(count, ALWAYS), words


def require_room(nodes: int) -> None:
    """Raise `NotEnoughRoom` where this machine cannot hold so many nodes."""
    if nodes > ALWAYS:
        fits, words = look_around().holds()
        if nodes > fits:
            raise NotEnoughRoom(wanted=nodes, fits=fits, limit=words)


def look_around(root: Path = Path("/")) -> Room:
    """Return what is free on this machine, or in the container that this process runs in; ``root`` is for tests."""
    return Room(
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        free_bytes=min([*_free_memory(root), *_left_in_groups(root, "memory", _MEMORY_V1, _MEMORY_V2)], default=None),
        free_files=_free_files(root),
        free_tasks=min([*_free_tasks(root), *_left_in_groups(root, "pids", _PIDS, _PIDS)], default=None),
    )


def _cores(count: int) -> str:
    return f"{count} cores" if count > 1 else "1 core"


def _free_memory(root: Path) -> Iterator[int]:
    """Yield what the whole machine has left, swap included."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = (line.split() for line in (root / "proc/meminfo").read_text().splitlines())
        sizes = {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}
        yield sizes["MemAvailable"] + sizes.get("SwapFree", 0)


def _free_files(root: Path) -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError):
        if soft != resource.RLIM_INFINITY:
            return max(0, soft - len(list((root / "proc/self/fd").iterdir())))
    return None


def _free_tasks(root: Path) -> Iterator[int]:
    """Yield how many processes and threads the kernel, and the user's own limit, leave."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        there = int((root / "proc/loadavg").read_text().split()[3].partition("/")[2])
        for name in ("pid_max", "threads-max"):
            yield max(0, int((root / "proc/sys/kernel" / name).read_text()) - there)
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and _binds_user():
        yield max(0, soft - sum(_threads_of_user(root)))


def _binds_user() -> bool:
    """Whether the user's limit on processes holds for this one; root has none."""
    return os.geteuid() != 0


def _threads_of_user(root: Path) -> Iterator[int]:
    for process in (root / "proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid == os.geteuid():
                yield len(list((process / "task").iterdir()))


def _left_in_groups(root: Path, controller: str, v1: tuple[str, str], v2: tuple[str, str]) -> Iterator[int]:
    """Yield what each control group that this process is in leaves of its limit, if it has one."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                yield from _left(root / "sys/fs/cgroup", path, v2)
            elif controller in controllers.split(","):
                yield from _left(root / "sys/fs/cgroup" / controller, path, v1)


def _left(mount: Path, path: str, names: tuple[str, str]) -> Iterator[int]:
    """Yield what is left here and in the groups around; within a container, the mount is the group itself."""
    folder = mount / path.strip("/")
    for group in (folder, *folder.parents):
        with contextlib.suppress(OSError, ValueError):
            limit, used = (int((group / name).read_text()) for name in names)
            if limit < _UNLIMITED_BYTES:
                yield max(0, limit - used + (_reclaimable(group) if names != _PIDS else 0))
        if group == mount:
            return


def _reclaimable(group: Path) -> int:
    """Return what of a group's memory is files that nobody needs just now."""
    with contextlib.suppress(OSError, ValueError):
        for line in (group / "memory.stat").read_text().splitlines():
            name, _, size = line.partition(" ")
            if name in ("inactive_file", "total_inactive_file"):
                return int(size)
    return 0
