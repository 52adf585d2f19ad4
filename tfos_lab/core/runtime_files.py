"""The private folder for sockets, spools and logs of nodes on a host."""

from __future__ import annotations

import os
import tempfile
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


def package_root() -> Path:
    """Return the folder that holds the package, so that other processes import the same code."""
    return Path(tfos_lab.__file__).parent.parent
