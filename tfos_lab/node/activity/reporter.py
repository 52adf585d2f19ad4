"""Sends the driver what a node does: the agent's part, which goes on when the child is stopped or holds its GIL."""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfos_lab.core import messages as m
from tfos_lab.core.processes import lives, meminfo, stat_of
from tfos_lab.core.states import NodeState

PERIOD_S = 1.0


class ActivityReporter:
    """Joins what the child says of its steps with the figures of its processes and host; used by one thread.

    ``output_at`` returns when the function last printed, by ``time.monotonic()``; ``group`` says whether the child
    leads a process group of its own.
    """

    def __init__(
        self,
        send: Callable[[m.FromAgent], None],
        *,
        gpus: Sequence[str] = (),
        output_at: Callable[[], float] = lambda: 0.0,
        group: bool = True,
    ) -> None:
        self._send = send
        self._output_at = output_at
        self._group = group
        self._gpu = GpuUse(gpus)
        self._machine: Machine | None = None
        self._seen = m.NodeActivity()
        self._rows = 0
        self._sent_s = 0.0
        self._sign, self._sign_s = "", 0.0

    def take(self, message: m.FromAgent) -> None:
        """Note what a message of the child, or about its start, says."""
        match message:
            case m.Progressed(state=NodeState.RUNNING, pid=pid):
                self._sent_s = time.monotonic()
                self._machine = Machine(pid, group=self._group)
                self._machine.read(self._sent_s)
                self._seen, self._rows = m.NodeActivity(), 0
                self._note("began")
            case m.Reported(step=step):
                self._note("reported" if step is None else f"step {step}")
            case m.RowsTaken(rows=rows) if rows != self._rows:
                self._rows = rows
                # Of a step and its rows, which of the two is heard of last says nothing: the step tells more.
                self._note(self._sign if self._sign.startswith("step ") else "took rows")
            case m.Activity(seen=seen):
                if seen.step not in (None, self._seen.step):
                    self._note(f"step {seen.step}")
                self._seen = seen

    def _note(self, sign: str) -> None:
        self._sign, self._sign_s = sign, time.monotonic()

    def tick(self) -> None:
        """Send the figures, if the last ones are old enough; called often."""
        now = time.monotonic()
        if self._machine is not None and now - self._sent_s >= PERIOD_S:
            self._report(self._machine, now)

    def _report(self, machine: Machine, now: float) -> None:
        self._sent_s = now
        if (output_at := self._output_at()) > self._sign_s:
            self._sign, self._sign_s = "printed", output_at
        gpu, gpu_memory_bytes = self._gpu.read()
        seen = replace(
            self._seen,
            **machine.read(now),
            host_cores=os.cpu_count() or 0,
            gpu=gpu,
            gpu_memory_bytes=gpu_memory_bytes,
            idle_s=now - self._sign_s,
            last_sign=self._sign,
        )
        self._send(m.Activity(seen))

    def end(self) -> None:
        """Send the last figures: the function has ended."""
        if self._machine is not None:
            self._report(self._machine, time.monotonic())
            self._machine = None


_LIBRARY = "libnvidia-ml.so.1"


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class GpuUse:
    """Reads the use of some GPUs, given as in CUDA_VISIBLE_DEVICES; of none, no library is loaded."""

    def __init__(self, gpus: Sequence[str]) -> None:
        self._library: ctypes.CDLL | None = None
        self._handles: list[ctypes.c_void_p] = []
        if gpus:
            with contextlib.suppress(OSError, AttributeError):
                self._library = ctypes.CDLL(_LIBRARY)
                if self._library.nvmlInit_v2() == 0:
                    self._handles = [handle for gpu in gpus if (handle := _handle(self._library, gpu)) is not None]

    def read(self) -> tuple[float | None, int | None]:
        """Return the mean use, 0 to 1, and the bytes in use by anyone on all of them; None where not known."""
        uses, used_bytes = [], []
        for handle in self._handles:
            assert self._library is not None
            use, memory = _Utilization(), _Memory()
            if self._library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(use)) == 0:
                uses.append(use.gpu / 100)
            if self._library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0:
                used_bytes.append(int(memory.used))
        return (sum(uses) / len(uses) if uses else None), (sum(used_bytes) if used_bytes else None)


def _handle(library: ctypes.CDLL, gpu: str) -> ctypes.c_void_p | None:
    handle = ctypes.c_void_p()
    if gpu.isdigit():
        status = library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(gpu)), ctypes.byref(handle))
    else:
        status = library.nvmlDeviceGetHandleByUUID(ctypes.c_char_p(gpu.encode()), ctypes.byref(handle))
    return handle if status == 0 else None


_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Linux counts CPU time in hundredths of a second: over a shorter time than this, a rate says nothing.
_SHORTEST_S = 0.2
# To look through all processes for those of a group costs most, and at their start nodes have little time.
_LOOK_FOR_PROCESSES_S = 10.0


class Machine:
    """Reads the figures of a process, or of its ``group``, and of the host; rates are since an earlier reading."""

    def __init__(self, pid: int, *, group: bool) -> None:
        self._pid = pid
        self._group = group
        self._pids = [pid]
        self._looked_s: float | None = None
        self._read_s: float | None = None
        self._rates = {"cpu": 0.0, "host_cpu": 0.0}
        self._seconds: dict[int, float] = {}
        self._host = (0.0, 0.0)
        self._figures: dict[str, Any] = {}

    def read(self, now_s: float) -> dict[str, Any]:
        """Return the figures as of now, by their names in `NodeActivity`; ``now_s`` is of a clock that never goes back.

        CPU in use (cores) and resident memory of the processes; shares of the host's CPU and memory, 0 to 1.
        """
        if self._figures and not lives(self._pid):
            return self._figures  # the last ones of a process that has ended
        if self._looked_s is None:
            self._looked_s = now_s
        elif self._group and now_s - self._looked_s >= _LOOK_FOR_PROCESSES_S:
            self._looked_s, self._pids = now_s, [self._pid, *self._others()]
        if self._read_s is None or now_s - self._read_s >= _SHORTEST_S:
            before_s, self._read_s = self._read_s, now_s
            elapsed_s = now_s - before_s if before_s is not None else 0.0
            self._rates = {"cpu": self._cpu(elapsed_s), "host_cpu": self._host_cpu()}
        sizes = meminfo()
        self._figures = {
            **self._rates,
            "memory_bytes": sum(map(self._memory, self._pids)),
            "host_memory": 1.0 - sizes["MemAvailable"] / sizes["MemTotal"] if "MemAvailable" in sizes else 0.0,
        }
        return self._figures

    def _others(self) -> Iterator[int]:
        for entry in os.scandir(_PROC):
            if entry.name.isdigit() and int(entry.name) != self._pid:
                fields = stat_of(int(entry.name))
                if len(fields) > 2 and int(fields[2]) == self._pid:
                    yield int(entry.name)

    def _cpu(self, elapsed_s: float) -> float:
        before, self._seconds = self._seconds, {}
        used = 0.0
        for pid in self._pids:
            if fields := stat_of(pid):
                self._seconds[pid] = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
                used += self._seconds[pid] - before.get(pid, self._seconds[pid])
        return used / elapsed_s if elapsed_s > 0 else 0.0

    def _memory(self, pid: int) -> int:
        with contextlib.suppress(OSError, IndexError):
            return int((_PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE_BYTES
        return 0

    def _host_cpu(self) -> float:
        with contextlib.suppress(OSError, ValueError, IndexError):
            with (_PROC / "stat").open() as file:
                times = [float(field) for field in file.readline().split()[1:9]]
            before, self._host = self._host, (sum(times), times[3] + times[4])
            total, idle = self._host[0] - before[0], self._host[1] - before[1]
            return max(0.0, 1.0 - idle / total) if before[0] and total > 0 else 0.0
        return 0.0
