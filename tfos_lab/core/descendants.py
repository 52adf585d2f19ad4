"""What a process has started and left behind, whatever session, parent or environment it has now; for Linux.

A child *marks* itself before the user's function runs. The mark is inherited by all that the function starts: programs
have it in their environment, and processes that were only forked have a file of that name in their memory map. The
fork server adopts what loses its parent (``PR_SET_CHILD_SUBREAPER``), so that nothing leaves its tree of processes.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tfos_lab.core.processes import open_pidfd

#: The environment variable of the mark: the path of a file that no other child has.
MARK = "TFOS_LAB_CHILD"
_worn: list[mmap.mmap] = []


class Relative(NamedTuple):
    """A process below another one: its parent, and its process group."""

    pid: int
    parent: int
    group: int


def wear_mark(mark: str) -> None:
    """Mark this process; the environment variable is set by others."""
    with contextlib.suppress(OSError), Path(mark).open("w+b") as file:
        file.truncate(mmap.PAGESIZE)
        _worn.append(mmap.mmap(file.fileno(), mmap.PAGESIZE, access=mmap.ACCESS_READ))


def bears_mark(pid: int, *marks: str) -> bool:
    """Whether a process has inherited one of some marks."""
    with contextlib.suppress(OSError):
        environ = b"\0" + _read(pid, "environ")
        if any(f"\0{MARK}={mark}\0".encode() in environ for mark in marks):
            return True
        ends = tuple(f" {mark}{end}".encode() for mark in marks for end in ("", " (deleted)"))
        return any(line.endswith(ends) for line in _maps(pid))
    return False


def descendants(ancestor: int, *, without: Iterable[int] = ()) -> list[Relative]:
    """Return the live processes below a process, parents first, without some of them and what is below those."""
    below: dict[int, list[Relative]] = defaultdict(list)
    for relative in _processes():
        below[relative.parent].append(relative)
    found, left_out, level = [], set(without), [ancestor]
    while level:
        level_found = [relative for pid in level for relative in below[pid] if relative.pid not in left_out]
        found += level_found
        level = [relative.pid for relative in level_found]
    return found


def signal_marked(marks: Iterable[str], sig: signal.Signals) -> bool:
    """Signal every process of this host that bears one of the marks; return whether there is any."""
    marks, found = tuple(marks), False
    for relative in _processes():
        if relative.pid != os.getpid() and bears_mark(relative.pid, *marks):
            found |= _signal_if(relative.pid, marks, sig)
    return found


def _signal_if(pid: int, marks: tuple[str, ...], sig: signal.Signals) -> bool:
    """Signal a process that bears one of the marks, and none that has its pid by now."""
    with contextlib.suppress(OSError):
        pidfd = open_pidfd(pid)
        if pidfd is None:
            return False
        try:
            if bears_mark(pid, *marks):
                signal.pidfd_send_signal(pidfd, sig)
                return True
        finally:
            os.close(pidfd)
    return False


def left_by(family: Iterable[Relative], mark: str, group: int) -> set[int]:
    """Return which of a family, parents first, a child has started: its mark, its group, or a parent that it has."""
    left: set[int] = set()
    for relative in family:
        if relative.parent in left or relative.group == group or bears_mark(relative.pid, mark):
            left.add(relative.pid)
    return left


def _processes() -> Iterator[Relative]:
    """Yield the live processes of this host."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                state, parent, group = _read(int(entry.name), "stat").rpartition(b")")[2].split()[:3]
                if state not in (b"Z", b"X"):
                    yield Relative(int(entry.name), int(parent), int(group))


def _maps(pid: int) -> list[bytes]:
    return _read(pid, "maps").splitlines()


def _read(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()
