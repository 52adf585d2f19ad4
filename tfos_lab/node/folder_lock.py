"""Locks on folders: who holds one keeps the folder from being removed, also by processes of other containers."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

# To remove a folder takes milliseconds.
_PATIENCE_S = 3.0
_POLL_S = 0.005


def lock(folder: Path, kind: int = fcntl.LOCK_EX) -> int:
    """Lock a folder until the descriptor that this returns is closed.

    Raises
    ------
    OSError
        If another process has locked it, or it is gone.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        if not os.path.samestat(folder.stat(), os.fstat(descriptor)):
            raise FileNotFoundError(folder)  # it has been replaced meanwhile
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def make_and_lock(folder: Path, kind: int = fcntl.LOCK_EX) -> int:
    """Make a folder that only the user can open, unless it is there, and lock it; see `lock`.

    Waits for one who is about to remove it, for 3 s at most.
    """
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)  # says that it exists if it is removed at that moment
            return lock(folder, kind)
        except OSError:
            if time.monotonic() > until:
                raise
        time.sleep(_POLL_S)


@contextlib.contextmanager
def keeping(folder: Path) -> Iterator[None]:
    """Make a folder if need be, and keep it from being removed meanwhile; several processes may."""
    descriptor = make_and_lock(folder, fcntl.LOCK_SH)
    try:
        yield
    finally:
        os.close(descriptor)
