"""Process helpers for Linux: tell who is alive, tie lifetimes together, end process groups."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_MADV_COLLAPSE = 25
_HUGE_PAGE_BYTES = 2 << 20
_PIECE_BYTES = 32 << 20
# A mapping in /proc/self/smaps; the third part is there if it is memory of this process' own, and no file's.
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (rw-p 0+ 00:00 0 *(?:\[heap\])?$)?")
# How often a watched process is looked at.
LOOK_S = 0.2
# Whatever starts processes faster than they are killed is left alone after so long.
_KILLING_S = 2.0


def allow_descriptors(wanted: int) -> None:
    """Let this process open so many descriptors, or as many as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(ValueError, OSError):  # a system may allow less than its hard limit says
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when ``parent``, which forked it, ends; exit at once if it has ended."""
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of descendants that lose theirs; this process has to wait for them when they end."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_process_name(name: str) -> None:
    """Set the name that ``ps`` and ``top`` show (15 bytes)."""
    _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]))


def _prctl(option: int, value: object) -> None:
    with contextlib.suppress(OSError, AttributeError):  # not Linux: the fork server still ends the child
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def pack_memory() -> Iterator[int]:
    """Have Linux put this process' memory into huge pages, 32 MB at each step, and yield how many bytes that were.

    A fork then copies one entry of a page table instead of 512, and its end frees one: of a process that has imported
    TensorFlow, both take half of the time. What a forked process changes is copied in small pages, as ever. Linux can
    since 6.1 (``MADV_COLLAPSE`` in madvise(2)); where it cannot, nothing happens.
    """
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    if madvise is None:
        return
    packed = 0
    for start, end in _dense_memory():
        for at in range(start, end, _PIECE_BYTES):
            size = min(end - at, _PIECE_BYTES)
            packed += 0 if madvise(ctypes.c_void_p(at), ctypes.c_size_t(size), _MADV_COLLAPSE) else size
            if packed >= _PIECE_BYTES:
                yield packed
                packed = 0
    yield packed


def _dense_memory() -> Iterator[tuple[int, int]]:
    """Yield start and end of this process' own memory, in whole huge pages, where most of it is in use.

    Of a huge page, all is in use.
    """
    try:
        lines = Path("/proc/self/smaps").read_text().splitlines()
    except OSError:
        return
    start = end = 0
    is_own = False
    for line in lines:
        if mapping := _MAPPING.match(line):
            start, end, is_own = int(mapping[1], 16), int(mapping[2], 16), bool(mapping[3])
        elif is_own and line.startswith("Anonymous:") and int(line.split()[1]) << 10 > 0.75 * (end - start):
            first, last = -(-start // _HUGE_PAGE_BYTES), end // _HUGE_PAGE_BYTES
            if first < last:
                yield first * _HUGE_PAGE_BYTES, last * _HUGE_PAGE_BYTES


def signal_group(pgid: int, sig: signal.Signals) -> bool:
    """Send ``sig`` to a process group; return whether it exists."""
    try:
        os.killpg(pgid, sig)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def ask_group_to_end(pgid: int) -> None:
    """Send SIGTERM to a process group, and wake what is stopped: it would not see the signal."""
    if signal_group(pgid, signal.SIGTERM):
        signal_group(pgid, signal.SIGCONT)


def stat_of(process: int | Path) -> list[str]:
    """Return the fields of ``stat`` after the name, of a process or of its folder in ``/proc``; [] if it is gone."""
    folder = Path(f"/proc/{process}") if isinstance(process, int) else process
    with contextlib.suppress(OSError):
        return (folder / "stat").read_bytes().rpartition(b")")[2].decode().split()
    return []


def parent_of(pid: int) -> int:
    """Return the parent's pid, or 0."""
    fields = stat_of(pid)
    return int(fields[1]) if fields else 0


def state_of(pid: int) -> str:
    """Return the letter of a process' state, as ``ps`` shows it: ``"R"``, ``"S"``, ``"T"`` for stopped; "" if gone."""
    return "".join(stat_of(pid)[:1])


def began(pid: int) -> str:
    """Return when a process began; "" if it is not there, or has ended and waits for its parent to take note."""
    fields = stat_of(pid)
    return fields[19] if fields and fields[0] not in ("Z", "X") else ""


def lives(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    return began(pid) != ""


class WatchedProcess:
    """A process that somebody else has started, and whether it has ended; another may have its pid by then.

    It is looked at now and then: the Pythons of Conda and uv have no ``pidfd_open``, nor has Linux before 5.3.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._began = began(pid)
        self._ended = not self._began
        self._looked_at = time.monotonic()

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, or was not there, as of at most so many seconds ago as `LOOK_S` says."""
        now = time.monotonic()
        if not self._ended and now - self._looked_at >= LOOK_S:
            self._looked_at = now
            self._ended = began(self._pid) != self._began
        return self._ended


def status_of(pid: int, field: str) -> str:
    """Return a field of ``/proc/<pid>/status``; "" if there is none."""
    with contextlib.suppress(OSError):
        # The name of a process may be cut within a letter.
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith(f"{field}:"):
                return line.split()[1]
    return ""


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal, which would end it otherwise."""
    return bool(int(status_of(pid, "SigCgt") or "0", 16) >> (number - 1) & 1)


def descendants(ancestor: int, *, without: Iterable[int] = ()) -> list[int]:
    """Return the live processes below a process, parents first, without some of them and what is below those."""
    below: dict[int, list[int]] = defaultdict(list)
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (fields := stat_of(int(entry.name))) and fields[0] not in ("Z", "X"):
            below[int(fields[1])].append(int(entry.name))
    found, left_out, level = [], set(without), [ancestor]
    while level:
        level = [pid for parent in level for pid in below[parent] if pid not in left_out]
        found += level
    return found


def kill_below(ancestor: int) -> None:
    """Kill all that is below a process; nothing escapes while that adopts orphans, and lives."""
    until_s = time.monotonic() + _KILLING_S
    while (found := descendants(ancestor)) and time.monotonic() < until_s:
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def meminfo(root: Path = Path("/")) -> dict[str, int]:
    """Return the figures of ``/proc/meminfo``, in bytes; none where the system does not tell."""
    with contextlib.suppress(OSError, ValueError):
        lines = (line.split() for line in (root / "proc/meminfo").read_text().splitlines())
        return {fields[0].rstrip(":"): int(fields[1]) * 1024 for fields in lines}
    return {}


def command_line(pid: int) -> list[str]:
    """Return the arguments of a process' command line, or [] if it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return []


def reset_signals() -> None:
    """Reset a forked process to the signal handling of a new Python; SIGPIPE stays ignored and raises instead."""
    signal.set_wakeup_fd(-1)
    for sig in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(sig, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
