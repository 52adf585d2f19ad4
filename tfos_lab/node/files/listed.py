"""Lists files of this node for the driver, and sends it the pieces that it asks for.

The driver chooses what it fetches, and when; it answers each list once. It works in the agent's poll loop.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from tfos_lab.core import messages as m
from tfos_lab.core.paths import OWN_MARK


class ListedFolder:
    """The files of one folder, as the driver knows them.

    ``files`` are those that were listed last, by name. Their list ``is_last`` if no other follows; it ``is_answered``
    when the driver has what it wants of them; at ``heard_at`` (`time.monotonic`) that last said something about them.
    """

    def __init__(self, folder: str, send: Callable[[m.FromAgent], None]) -> None:
        self._folder = folder
        self._send = send
        self._number = 0
        self.is_answered = True
        self.is_last = False
        self.files: dict[str, FoundFile] = {}
        self.heard_at = 0.0

    def list(
        self,
        files: Iterable[FoundFile],
        *,
        settled_ns: int | None = None,
        last: bool = False,
        links: int = 0,
        place: str = "",
    ) -> None:
        """Tell the driver of these files, in this order; those changed after ``settled_ns`` may still be written."""
        self.files = {file.name: file for file in files}
        listed = [
            m.ListedFile(file.name, file.size, file.changed_ns, settled_ns is None or file.changed_ns < settled_ns)
            for file in self.files.values()
        ]
        self._number += 1
        self.is_answered, self.is_last = False, last
        self.heard_at = time.monotonic()
        self._send(m.FilesListed(self._folder, self._number, listed, last, links, place))

    def handle(self, message: m.ToAgent) -> m.FilesTaken | None:
        """Handle the driver's message if it is about this folder; return the answer to a list."""
        match message:
            case m.PieceWanted(folder=self._folder):
                self.heard_at = time.monotonic()
                file = self.files.get(message.name)
                self._send(read_piece(message, file.path if file else None))
            case m.FilesTaken(folder=self._folder, number=self._number) if not self.is_answered:
                self.heard_at = time.monotonic()
                self.is_answered = True
                return message
        return None


def read_piece(wanted: m.PieceWanted, path: Path | None) -> m.FilePiece:
    """Return the piece of a file, or why it cannot be sent. No symbolic link is followed, and no pipe waited for."""
    data, problem = b"", ""
    try:
        if path is None:
            raise FileNotFoundError(0, "it is not there any more")
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags), "rb") as stream:
            stream.seek(wanted.offset)
            data = stream.read(wanted.size_bytes)
            has_changed = wanted.changed_ns not in (0, os.fstat(stream.fileno()).st_mtime_ns)
        if has_changed or len(data) < wanted.size_bytes:
            data, problem = b"", "it changed while it was read"
    except OSError as error:
        data, problem = b"", error.strerror or str(error)
    return m.FilePiece(wanted.folder, wanted.name, wanted.offset, data, problem)


@dataclass(frozen=True)
class FoundFile:
    """A file as it was found; ``name`` is its path below the folder, with slashes."""

    name: str
    path: Path
    size: int
    changed_ns: int


def files_in(folder: Path, prefix: str = "", *, patience_s: float = math.inf) -> tuple[dict[str, FoundFile], set[str]]:
    """Return the regular files below a folder, and the paths of symbolic links, which are not followed.

    Names of files get the prefix; our own temporary files are left out. After ``patience_s``, what was found is all.
    """
    until_s = time.monotonic() + patience_s
    found: dict[str, FoundFile] = {}
    links: set[str] = set()
    for parent, folders, names in os.walk(folder):
        if time.monotonic() > until_s:
            break
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
