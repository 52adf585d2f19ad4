"""An agent's own folder on its host, for its spool and logs; and the removal of folders that killed agents have left.

An agent that ends removes its folder. One that is killed cannot, and its spool may hold gigabytes: the next agent of
the same user on this host removes it, and ends processes that the node has started, if any are left. Each agent locks
its folder, so that agents in other containers, whose pids are different, see that it is in use.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import time
from pathlib import Path

from tfos_lab.core.descendants import signal_marked
from tfos_lab.node import failure_note

_NAME = re.compile(r".+-\d+-(\d+)")
# A younger folder may not have been locked yet.
_YOUNG_S = 60.0
# The files by which the processes of its children are found; see `core.descendants`.
MARK_PREFIX = "child-"
# For this long, Spark may still compute answers that a failed cluster was to give.
_NOTE_LIFETIME_S = 24 * 3600.0


class Scratch:
    """One agent's folder; folders of agents that were killed are removed first.

    Parameters
    ----------
    root : Path
        Contains the folders of all agents.
    cluster_id, rank : str, int
        The node.

    Attributes
    ----------
    path : Path
        The folder; only the user can open it.
    """

    def __init__(self, root: Path, cluster_id: str, rank: int) -> None:
        sweep(root)
        self.path = root / f"{cluster_id}-{rank}-{os.getpid()}"
        self.path.mkdir(mode=0o700)
        self._lock = _lock(self.path)

    def remove(self) -> None:
        """Remove the folder and its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def sweep(root: Path) -> None:
    """Remove the folders of agents that were killed, and failure notes that are old."""
    for note in root.glob(f"*{failure_note.SUFFIX}"):
        with contextlib.suppress(OSError):
            if time.time() - note.stat().st_mtime > _NOTE_LIFETIME_S:
                note.unlink()
    for folder in root.iterdir():
        name = _NAME.fullmatch(folder.name)
        with contextlib.suppress(OSError):  # another agent removes it too, or it is locked
            if name and folder.is_dir() and not _is_alive(int(name[1])) and not _is_young(folder):
                lock = _lock(folder)
                if marks := _marks_in(folder):
                    signal_marked(marks, signal.SIGKILL)
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def marks_left_by(agent: int, root: Path) -> list[str]:
    """Return the marks of the children of an agent that has ended without removing its folder."""
    marks: list[str] = []
    for folder in root.glob(f"*-{agent}"):
        with contextlib.suppress(OSError):  # it is locked: the agent of another container has this pid
            os.close(_lock(folder))
            marks += _marks_in(folder)
    return marks


def _marks_in(folder: Path) -> list[str]:
    return [str(path) for path in folder.glob(f"{MARK_PREFIX}*")]


def _lock(folder: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _is_young(folder: Path) -> bool:
    return time.time() - folder.stat().st_mtime < _YOUNG_S
