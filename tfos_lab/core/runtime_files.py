"""The private folder for sockets, spools and logs of nodes on a host."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import tfos_lab

_MAX_SOCKET_PATH = 100


def scratch_root() -> Path:
    """Return the user's folder (mode 0700) for sockets, spools and logs of nodes."""
    base = Path(tempfile.gettempdir())
    if len(str(base)) > _MAX_SOCKET_PATH // 2:
        base = Path("/tmp")  # noqa: S108 - a unix socket's path has at most 108 bytes; the folder below is private
    root = base / f"tfos_lab-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    owned = root.lstat()
    if owned.st_uid != os.getuid() or owned.st_mode & 0o077:
        raise PermissionError(f"{root} can be opened by others; remove it, or set TMPDIR to a folder of your own")
    return root


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
