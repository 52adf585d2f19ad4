"""The private folders of a user on a host: for sockets and locks of nodes, and for what may be large."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import tfos_lab

_MAX_SOCKET_PATH = 100
_OLD_S = 24 * 3600.0


def scratch_root() -> Path:
    """Return the user's folder (mode 0700) for sockets and locks of nodes, and for links to their folders."""
    base = Path(tempfile.gettempdir())
    if len(str(base)) > _MAX_SOCKET_PATH // 2:
        base = Path("/tmp")  # noqa: S108 - a unix socket's path has at most 108 bytes; the folder below is private
    return _own_folder(base)


def spool_root() -> Path:
    """Return the user's folder (mode 0700) for spools, logs and copies of nodes.

    In a container of YARN it is on the disks that YARN gives to the application on this host, and empties when that has
    ended; elsewhere it is `scratch_root`.
    """
    disks = os.environ.get("LOCAL_DIRS", "").split(",")
    disk = next((disk for disk in disks if disk and os.access(disk, os.W_OK)), "")
    return _own_folder(Path(disk)) if disk else scratch_root()


def _own_folder(base: Path) -> Path:
    root = base / f"tfos_lab-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    owned = root.lstat()
    if owned.st_uid != os.getuid() or owned.st_mode & 0o077:
        raise PermissionError(f"{root} can be opened by others; remove it, or set TMPDIR to a folder of your own")
    return root


def lock_folder(folder: Path) -> int:
    """Keep a folder from being removed, also by processes of other containers, until what this returns is closed.

    Raises OSError if another process has locked it, or it is gone.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(folder.stat(), os.fstat(descriptor)):
            raise FileNotFoundError(folder)  # it has been replaced meanwhile
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def kept_for_a_day(root: Path, name: str) -> Path:
    """Return the folder of what runs leave for a day in a user's folder, without what is older.

    Nobody else looks through it: however much is there, nodes start as soon.
    """
    folder = root / name
    folder.mkdir(mode=0o700, exist_ok=True)
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process removes it, too
            if time.time() - path.stat().st_mtime > _OLD_S:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    return folder


def files_in(folders: Iterable[Path], pattern: str) -> Iterator[Path]:
    """Yield the files of folders that match a pattern; other processes may remove the folders meanwhile.

    `Path.glob` with ``*/*`` raises where a folder goes after it has been found and before it has been listed.
    """
    for folder in folders:
        found: list[Path] = []
        with contextlib.suppress(OSError):
            found = list(folder.glob(pattern))
        yield from found


def package_root() -> Path:
    """Return the folder that holds the package, so that other processes import the same code."""
    return Path(tfos_lab.__file__).parent.parent
