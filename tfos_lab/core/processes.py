"""Small truths about processes on Linux: who is alive, who dies with whom, how to end a group."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15


def die_with_parent(parent: int) -> None:
    """Have this process killed when ``parent``, which forked it, ends; leave at once if that has happened already."""
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)


def set_process_name(name: str) -> None:
    """Set the name that ``ps`` and ``top`` show (15 bytes)."""
    _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]))


def _prctl(option: int, value: object) -> None:
    with contextlib.suppress(OSError, AttributeError):  # not Linux: the link to the fork server still ends the child
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def signal_group(pgid: int, sig: signal.Signals) -> bool:
    """Send ``sig`` to a process group; return whether anybody was there."""
    try:
        os.killpg(pgid, sig)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def group_alive(pgid: int) -> bool:
    """Whether a process of the group is there that is not merely waiting to be reaped."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) == pgid and fields[0] not in "ZX":
                return True
    return False


def open_pidfd(pid: int) -> int | None:
    """Return a descriptor that becomes readable when ``pid`` ends, or None if it is not there."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno == errno.ESRCH:
            return None
        raise


def parent_of(pid: int) -> int:
    """Return the parent's pid, or 0."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def command_line(pid: int) -> list[str]:
    """Return the words of a process' command line, or nothing when it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return []


def reset_signals() -> None:
    """Give a forked process the signal handling of a fresh Python, where SIGPIPE stays ignored: it is an exception."""
    signal.set_wakeup_fd(-1)
    for sig in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(sig, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
