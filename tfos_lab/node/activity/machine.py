"""What a node's processes take of their host, and how busy the host is: read from ``/proc``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# To look through all processes for those of a group costs most, and at their start nodes have little time.
_LOOK_FOR_PROCESSES_S = 10.0


@dataclass(frozen=True)
class MachineFigures:
    """CPU in use (cores) and resident memory of the processes; shares of the host's CPU and memory, 0 to 1."""

    cpu: float = 0.0
    memory_bytes: int = 0
    host_cpu: float = 0.0
    host_memory: float = 0.0


class Machine:
    """Reads the figures of a process, with its group, and of the host; rates are since the reading before.

    Parameters
    ----------
    pid : int
        The process; it leads the group.
    group : bool
        Whether the processes of its group count, too.
    proc : Path
        Where the kernel tells; for tests.
    """

    def __init__(self, pid: int, *, group: bool = True, proc: Path = _PROC) -> None:
        self._pid = pid
        self._group = group
        self._proc = proc
        self._pids = [pid]
        self._looked_s: float | None = None
        self._read_s: float | None = None
        self._seconds: dict[int, float] = {}
        self._host = (0.0, 0.0)

    def read(self, now_s: float) -> MachineFigures:
        """Return the figures as of now; ``now_s`` is of a clock that never goes back."""
        if self._looked_s is None:
            self._looked_s = now_s
        elif self._group and now_s - self._looked_s >= _LOOK_FOR_PROCESSES_S:
            self._looked_s, self._pids = now_s, [self._pid, *self._others()]
        before_s, self._read_s = self._read_s, now_s
        elapsed_s = now_s - before_s if before_s is not None else 0.0
        return MachineFigures(
            cpu=self._cpu(elapsed_s),
            memory_bytes=sum(map(self._memory, self._pids)),
            host_cpu=self._host_cpu(),
            host_memory=self._host_memory(),
        )

    def _others(self) -> Iterator[int]:
        for entry in os.scandir(self._proc):
            if entry.name.isdigit() and int(entry.name) != self._pid:
                fields = self._stat(int(entry.name))
                if len(fields) > 2 and int(fields[2]) == self._pid:
                    yield int(entry.name)

    def _stat(self, pid: int) -> list[str]:
        """Return what follows a process' name in its ``stat``, or [] if it is gone."""
        with contextlib.suppress(OSError):
            return (self._proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return []

    def _cpu(self, elapsed_s: float) -> float:
        before, self._seconds = self._seconds, {}
        used = 0.0
        for pid in self._pids:
            if fields := self._stat(pid):
                self._seconds[pid] = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
                used += self._seconds[pid] - before.get(pid, self._seconds[pid])
        return used / elapsed_s if elapsed_s > 0 else 0.0

    def _memory(self, pid: int) -> int:
        with contextlib.suppress(OSError, IndexError):
            return int((self._proc / str(pid) / "statm").read_text().split()[1]) * _PAGE_BYTES
        return 0

    def _host_cpu(self) -> float:
        with contextlib.suppress(OSError, ValueError, IndexError):
            with (self._proc / "stat").open() as file:
                times = [float(field) for field in file.readline().split()[1:9]]
            before, self._host = self._host, (sum(times), times[3] + times[4])
            total, idle = self._host[0] - before[0], self._host[1] - before[1]
            return max(0.0, 1.0 - idle / total) if before[0] and total > 0 else 0.0
        return 0.0

    def _host_memory(self) -> float:
        found: dict[str, int] = {}
        with contextlib.suppress(OSError, ValueError, IndexError), (self._proc / "meminfo").open() as file:
            for line in file:
                name, _, value = line.partition(":")
                if name in ("MemTotal", "MemAvailable"):
                    found[name] = int(value.split()[0])
                if len(found) == 2:
                    return 1.0 - found["MemAvailable"] / found["MemTotal"]
        return 0.0
