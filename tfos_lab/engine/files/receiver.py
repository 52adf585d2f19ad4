"""Stores the files that a node sends, below one folder of this machine.

Nothing that a node sends is trusted: a name may lead out of the folder, and there may be too many bytes. A file appears
only when it is complete and its checksum is right.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from tfos_lab import messages as m
from tfos_lab.node.files.sender import PIECE_COST

logger = logging.getLogger(__name__)

_MAX_DEPTH = 32
# The longest that file systems take.
_MAX_NAME = 255


class FileReceiver:
    """Stores the files of one folder of one node.

    Parameters
    ----------
    home : pathlib.Path
        Where they are stored; made with the first file.
    part : pathlib.Path
        The file, on the same file system, that holds what has arrived of the next one.
    limit_bytes : int
        How much is stored in all.
    accepts : callable, optional
        Whether to store a file of this name; all by default.

    Attributes
    ----------
    held : dict of str to int
        The complete files, with their sizes.
    """

    def __init__(
        self, home: Path, part: Path, limit_bytes: int, accepts: Callable[[str], bool] = lambda _name: True
    ) -> None:
        self._home = home
        self._part = part
        self._limit_bytes = limit_bytes
        self._accepts = accepts
        self._transfer = self._offset = 0
        self._digest = hashlib.sha256()
        self._refused: int | None = None
        self._held_bytes = 0
        self.held: dict[str, int] = {}

    def take(self, piece: m.FilePiece) -> list[m.ToAgent]:
        """Write a piece into its file; return what to answer."""
        answers: list[m.ToAgent] = [m.FileCredit(piece.folder, len(piece.data) + PIECE_COST)]
        if piece.transfer == self._refused:
            return answers
        problem, again = self._write(piece)
        if problem:
            self._refused = piece.transfer
            self.drop()
            logger.warning("dropped a piece of %r: %s", piece.name, problem)
            answers.append(m.FileKept(piece.folder, piece.transfer, problem, again))
        elif piece.checksum:
            answers.append(m.FileKept(piece.folder, piece.transfer))
        return answers

    def remove(self, names: Iterable[str]) -> None:
        """Remove files that were stored here; other names are ignored."""
        for name in names:
            path = self._path_of(name)
            if path is not None and name in self.held:
                self._held_bytes -= self.held.pop(name)
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
                    self._remove_empty(path.parent)

    def _remove_empty(self, folder: Path) -> None:
        while folder != self._home and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent

    def drop(self) -> None:
        """Drop the file that is not complete yet."""
        self._transfer, self._offset = 0, 0
        with contextlib.suppress(OSError):
            self._part.unlink(missing_ok=True)

    def _write(self, piece: m.FilePiece) -> tuple[str, bool]:
        """Return what is wrong with a piece, if anything, and whether another try may succeed."""
        path = self._path_of(piece.name)
        if path is None or not self._accepts(piece.name):
            return "it was not to come", False
        if piece.offset == 0:
            self._transfer, self._offset, self._digest = piece.transfer, 0, hashlib.sha256()
        if (piece.transfer, piece.offset) != (self._transfer, self._offset):
            return "a piece is missing", True
        others_bytes = self._held_bytes - self.held.get(piece.name, 0)
        if others_bytes + self._offset + len(piece.data) > self._limit_bytes:
            return f"more than {self._limit_bytes:,} bytes", False
        try:
            self._append(piece)
            if not piece.checksum:
                return "", False
            if piece.checksum != self._digest.digest():
                return "its checksum is wrong", True
            path.parent.mkdir(parents=True, exist_ok=True)
            self._part.replace(path)
        except OSError as error:
            return f"it cannot be kept in {self._home} ({error.strerror})", False
        self.held[piece.name] = self._offset
        self._held_bytes = others_bytes + self._offset
        return "", False

    def _append(self, piece: m.FilePiece) -> None:
        self._part.parent.mkdir(parents=True, exist_ok=True)
        begin = os.O_TRUNC if piece.offset == 0 else os.O_APPEND
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | begin
        with os.fdopen(os.open(self._part, flags, 0o600), "wb") as file:
            file.write(piece.data)
        self._offset += len(piece.data)
        self._digest.update(piece.data)

    def _path_of(self, name: str) -> Path | None:
        return path_below(self._home, name)


def path_below(home: Path, name: str) -> Path | None:
    """Return the path of a file of this name in a folder, or None for a name that leads out of it."""
    parts = name.split("/")
    if len(parts) > _MAX_DEPTH or any(not _is_plain(part) for part in parts):
        return None
    folder = home
    for part in parts[:-1]:
        folder = folder / part
        if folder.is_symlink():
            return None
    return folder / parts[-1]


def _is_plain(part: str) -> bool:
    return part not in ("", ".", "..") and "\0" not in part and len(part.encode(errors="replace")) <= _MAX_NAME
