"""An agent's own folder on its host, for its spool and logs, and what agents that were killed have left of theirs.

An agent that leaves removes its folder. One that is killed cannot, and its spool may hold gigabytes: the next agent of
the same user on this host does it. Who lives holds a lock on the folder, which also tells in another container.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import time
from pathlib import Path

from tfos_lab.node import failure_note

_NAME = re.compile(r".+-\d+-(\d+)")
# A folder may have been made and not locked yet.
_YOUNG_S = 60.0
# So long may somebody still use what a cluster that has failed was to answer.
_KNOWN_S = 24 * 3600.0


class Scratch:
    """A folder that goes with its owner; those whose owners have gone without them go first (`sweep`).

    Parameters
    ----------
    root : Path
        Where the folders of all agents are.
    cluster_id, rank : str, int
        Whose folder this is.

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
        """Remove the folder and all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def sweep(root: Path) -> None:
    """Remove the folders of agents that are no more, and what they left to be known for a while."""
    for words in root.glob(f"*{failure_note.SUFFIX}"):
        with contextlib.suppress(OSError):
            if time.time() - words.stat().st_mtime > _KNOWN_S:
                words.unlink()
    for folder in root.iterdir():
        named = _NAME.fullmatch(folder.name)
        with contextlib.suppress(OSError):  # another agent removes it, too, or its owner lives
            if named and folder.is_dir() and not _lives(int(named[1])) and not _is_young(folder):
                lock = _lock(folder)
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def _lock(folder: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _is_young(folder: Path) -> bool:
    return time.time() - folder.stat().st_mtime < _YOUNG_S
