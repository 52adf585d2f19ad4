"""The folder in which a node's function starts: its own, with links to what is in the folder it was launched from.

Relative paths find what they would find there, and what the function creates, replaces or removes is this node's alone;
`own_what_is_written` sees to files that it opens for writing. On this machine the chief stays in the folder of the
notebook, where its user looks for what it saves.

All nodes and runs of a host share the links to what is in a folder: another name for a link takes a fifth of the time
of another link, for which the disk lets one node wait for the others.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
from collections import deque
from itertools import islice
from pathlib import Path
from typing import Any

from tfos_lab.core import messages as m
from tfos_lab.core.paths import OWN_MARK
from tfos_lab.core.runtime_files import kept_for_a_day
from tfos_lab.node.files.listed import FoundFile, files_in

# The name of the folder, and of its copy in the output of the node.
FOLDER = "work"
# Where folders are, beside those of agents, that hold a link to each entry of one folder.
_KNOWN_LINKS = "links"
# Folders are shown file by file, up to so many links in all; those that remain are one link each, and so is the one of
# runs, which grows with each: nodes cannot start without them.
_MOST_LINKS = 64


class WorkingFolder:
    """One node's own working folder: ``path``, if `make` has made it."""

    def __init__(self, scratch: Path) -> None:
        self.path = scratch / FOLDER
        self._user_folder = scratch.resolve().parent
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
        known = self._user_folder / _KNOWN_LINKS / _digest(folder)
        if not known.is_dir():
            with contextlib.suppress(OSError):
                (kept_for_a_day(self._user_folder, _KNOWN_LINKS) / known.name).mkdir(mode=0o700)
        shown = deque([(_entries(folder) or [], "")])
        while shown:
            entries, target = shown.popleft()
            for entry in entries:
                name = f"{target}{entry.name}"
                inner = _entries_to_show(entry, left)
                if inner is None or any(inside.name == run for inside in inner):
                    self._link(entry.path, name, known / _digest(entry.path))
                    continue
                left -= len(inner)
                (self.path / name).mkdir()
                shown.append((inner, f"{name}/"))

    def _link(self, source: str, name: str, known: Path) -> None:
        """Link something by a further name of the link that another node has made, or by one that others may use."""
        link = self.path / name
        try:
            os.link(known, link, follow_symlinks=False)
        except OSError:
            with contextlib.suppress(OSError):
                link.symlink_to(source)
                os.link(link, known, follow_symlinks=False)
        if link.is_symlink():
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


def _digest(path: str) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:24]


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


_WRITING = os.O_WRONLY | os.O_RDWR


def own_what_is_written(folder: Path) -> None:
    """From now on, replace a link in this folder before this process opens it for writing; it cannot be undone."""

    def on_event(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and arguments[2] & _WRITING and not isinstance(arguments[0], int):
            with contextlib.suppress(OSError, TypeError, ValueError):  # opening it will fail, and say why
                own(Path(os.fsdecode(arguments[0])).absolute(), folder, is_emptied=bool(arguments[2] & os.O_TRUNC))

    sys.addaudithook(on_event)


def own(path: Path, folder: Path, *, is_emptied: bool) -> None:
    """Replace a link in ``folder`` to a file elsewhere by a copy, or by an empty file if it is about to be emptied."""
    if not path.is_symlink() or not path.parent.resolve().is_relative_to(folder.resolve()):
        return
    shown = path.resolve()
    if shown.is_relative_to(folder.resolve()) or not shown.is_file():
        return
    copy = path.with_name(f"{OWN_MARK}{path.name}")
    if is_emptied:
        copy.touch()
        shutil.copymode(shown, copy)
    else:
        shutil.copy2(shown, copy)
    copy.replace(path)
