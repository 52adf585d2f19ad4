"""The files that a function has written into a folder."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from tfos_lab.core.paths import OWN_MARK


@dataclass(frozen=True)
class FoundFile:
    """A file as it was found; ``name`` is its path below the folder, with slashes."""

    name: str
    path: Path
    size: int
    changed_ns: int


def files_in(folder: Path, prefix: str = "") -> tuple[dict[str, FoundFile], set[str]]:
    """Return the regular files below a folder, and the paths of symbolic links, which are not followed.

    Names of files get the prefix; our own temporary files are left out.
    """
    found: dict[str, FoundFile] = {}
    links: set[str] = set()
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(parent) / name
            relative = path.relative_to(folder).as_posix()
            with contextlib.suppress(OSError, UnicodeEncodeError):
                stat = path.lstat()
                relative.encode()  # a name that is not valid text cannot be sent
                if path.is_symlink():
                    links.add(relative)
                elif S_ISREG(stat.st_mode) and OWN_MARK not in relative:
                    found[prefix + relative] = FoundFile(prefix + relative, path, stat.st_size, stat.st_mtime_ns)
    return found, links
