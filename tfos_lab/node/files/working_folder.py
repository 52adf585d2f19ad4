"""The folder in which a node's function starts: its own, with links to what is in the folder it was launched from.

Relative paths find what they would find there, and what the function creates, replaces or removes is this node's alone;
`written_links` sees to files that it opens for writing.
On this machine the chief stays in the folder of the notebook, where its user looks for what it saves.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from itertools import islice
from pathlib import Path

from tfos_lab import messages as m
from tfos_lab.node.files.found import FoundFile, files_in

# The name of the folder, and of its copy in the output of the node.
FOLDER = "work"
# Folders are shown file by file, up to so many links in all; those that remain are one link each, and so is the one of
# runs, which grows with each. A link costs 0.2 ms on a disk, and nodes cannot start without them.
_MOST_LINKS = 64


class WorkingFolder:
    """One node's own working folder.

    Parameters
    ----------
    scratch : pathlib.Path
        The agent's own folder, which is removed with it.

    Attributes
    ----------
    path : pathlib.Path
        The folder, if `make` has made it.
    """

    def __init__(self, scratch: Path) -> None:
        self.path = scratch / FOLDER
        self._links: set[str] = set()

    def make(self, spec: m.LaunchSpec) -> str:
        """Return the folder in which the child starts; it is made, unless the child stays where it was launched.

        Called before the node reserves: no function has begun, so that no node is shown what another has written.
        """
        if spec.stays:
            return spec.cwd
        try:
            self.path.mkdir(mode=0o700)
            self._show(spec.cwd, spec.cluster_id)
        except OSError:
            return spec.cwd  # a full disk is reported when the function writes
        return str(self.path)

    def _show(self, folder: str, run: str) -> None:
        """Link what is in a folder; its own folders become folders of links while there are not too many."""
        left = _MOST_LINKS
        shown = deque([(_entries(folder) or [], "")])
        while shown:
            entries, target = shown.popleft()
            for entry in entries:
                name = f"{target}{entry.name}"
                inner = _entries_to_show(entry, left)
                if inner is None or any(inside.name == run for inside in inner):
                    self._link(entry.path, name)
                    continue
                left -= len(inner)
                (self.path / name).mkdir()
                shown.append((inner, f"{name}/"))

    def _link(self, source: str, name: str) -> None:
        with contextlib.suppress(OSError):
            (self.path / name).symlink_to(source)
            self._links.add(name)

    def files(self) -> tuple[dict[str, FoundFile], int]:
        """Return the files that the function has written here, by their name in the output, and how many links."""
        found, links = files_in(self.path, f"{FOLDER}/")
        return found, len(links - self._links)

    def move_to(self, folder: Path) -> None:
        """Move the files that the function has written into another folder of the same file system."""
        for file in self.files()[0].values():
            target = folder / file.name
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.path.rename(target)


def _entries_to_show(entry: os.DirEntry[str], most: int) -> list[os.DirEntry[str]] | None:
    """Return what is in an ordinary folder; None for anything that is to be one link."""
    if entry.name.startswith((".", "__")) or not entry.is_dir(follow_symlinks=False):
        return None
    entries = _entries(entry.path, most + 1)
    return None if entries is None or len(entries) > most else entries


def _entries(folder: str, most: int | None = None) -> list[os.DirEntry[str]] | None:
    """Return what is in a folder, in order, and no more than ``most``; None if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(islice(entries, most), key=lambda entry: entry.name)
    except OSError:
        return None
