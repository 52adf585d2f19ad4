"""An agent's own folder on its host, for its spool and logs; and what processes that were killed have left beside it.

An agent that ends removes its folder. One that is killed cannot, and its spool may hold gigabytes: the next agent of
the same user on this host removes it. It also removes the locks and logs of fork servers that have ended, and what else
is old. All of that may happen in several processes at once, and while others start. Agents lock their folders, so that
those in other containers, whose pids are different, see that they are in use.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import random
import re
import shutil
import time
from pathlib import Path

from tfos_lab.core.processes import lives
from tfos_lab.core.runtime_files import lock_folder, scratch_root, spool_root

_AGENT = re.compile(r".+-\d+-(\d+)")
# A younger folder may not have been locked yet.
_YOUNG_S = 60.0
# The fork servers of an owner, whose logs somebody may want to read.
_OWNER = re.compile(r"[0-9a-f]{12}|user-.+")
_OWNER_LIFETIME_S = 3600.0
_OLD_S = 24 * 3600.0
# However much there is, a node's start waits for so long and one more: the next starts go on with the rest.
_SWEEP_S = 0.2


class Scratch:
    """One agent's folder, which only the user can open; what killed processes have left is removed first.

    All such folders of a user on a host are side by side, and their paths short enough for a socket. In a container of
    YARN, what is there is a link to a folder on the container's own disks.
    """

    def __init__(self, cluster_id: str, rank: int) -> None:
        root, spools = scratch_root(), spool_root()
        _sweep(root)
        name = f"{cluster_id}-{rank}-{os.getpid()}"
        self.path = root / name
        (spools / name).mkdir(mode=0o700, exist_ok=True)
        self._lock = lock_folder(spools / name)
        if spools != root:
            self.path.symlink_to(spools / name)

    def remove(self) -> None:
        """Remove the folder and its contents."""
        _remove_folder(self.path)
        os.close(self._lock)


def _sweep(root: Path) -> None:
    """Remove the folders of agents that were killed, and some of the rest; see the module."""
    rest = []
    for entry in os.scandir(root):
        with contextlib.suppress(OSError):  # another process removes it too, or it is in use
            if time.time() - entry.stat(follow_symlinks=False).st_mtime <= _lifetime_s(entry.name):
                continue
            if agent := _AGENT.fullmatch(entry.name):
                _remove_agent(root / entry.name, int(agent[1]))
            else:
                rest.append(root / entry.name)
    random.shuffle(rest)  # so that each has its turn
    until = time.monotonic() + _SWEEP_S
    for path in rest:
        with contextlib.suppress(OSError):
            _remove_unused(path)
        if time.monotonic() > until:
            return


def _lifetime_s(name: str) -> float:
    """Return how long what has this name stays, at least."""
    if _AGENT.fullmatch(name):
        return _YOUNG_S
    if _OWNER.fullmatch(name):
        return _OWNER_LIFETIME_S
    return _OLD_S if name.startswith("tmp") else math.inf


def _remove_folder(folder: Path) -> None:
    """Remove an agent's folder; one on the disks of a container, and the link to it."""
    shutil.rmtree(folder.resolve(), ignore_errors=True)
    if folder.is_symlink():
        folder.unlink(missing_ok=True)


def _remove_agent(folder: Path, agent: int) -> None:
    if folder.is_symlink() and not folder.exists() and time.time() - folder.lstat().st_mtime > _OLD_S:
        folder.unlink()  # the application has ended, and its disks have been emptied
    if folder.is_dir() and not lives(agent):
        held = lock_folder(folder)
        _remove_folder(folder)
        os.close(held)


def _remove_unused(path: Path) -> None:
    if not path.is_dir():
        path.unlink()
        return
    with contextlib.ExitStack() as held:
        held.callback(os.close, lock_folder(path))
        for file in path.glob("*.lock"):
            fcntl.flock(held.enter_context(file.open("rb")), fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
