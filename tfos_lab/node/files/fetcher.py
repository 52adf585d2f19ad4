"""Fetches files, piece by piece, into one folder of this machine; whoever receives asks for what comes next.

The driver does with files of nodes, and an agent with a large payload. Nothing that is sent is trusted: a name may lead
out of the folder, and nothing is stored that was not asked for.
The connection is ordered, and pieces come as they were asked for.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tfos_lab.core import messages as m

logger = logging.getLogger(__name__)

# What is on its way from one node; a piece costs more than its bytes, so that many small files fill the window too.
WINDOW_BYTES = 1 << 22
_PIECE_COST = 1 << 9
_MAX_DEPTH = 32
# The longest that file systems take.
_MAX_NAME = 255


Asked = m.PieceWanted | m.FilesTaken


class _Question(NamedTuple):
    """A piece of a file that is asked for, and where the file belongs."""

    file: m.ListedFile
    path: Path
    wanted: m.PieceWanted


class FileFetcher:
    """Fetches files of one folder of one node; pure but for the files that it writes.

    ``folder`` is its name in messages, and ``home`` where files are stored, made with the first one. ``part`` is the
    file, on the same file system, that holds what has arrived of the next one: files appear when they are complete.
    Without it, they grow in their places, and what is there of them is not fetched again. A list is answered when all
    has come that is wanted of it; ``window_bytes`` are asked for at a time.

    `listed` is the last list, and `problems` is why files that are wanted of it are not here. `held` are the files that
    are here, as they were on the node. `taken_bytes` were stored so far of `wanted_bytes`, of all lists together; what
    could not be had of one is no longer wanted once it is answered.
    """

    def __init__(self, folder: str, home: Path, part: Path | None = None, *, window_bytes: int = WINDOW_BYTES) -> None:
        self._folder = folder
        self._home = home
        self._part = part
        self._window_bytes = window_bytes
        self._questions: Iterator[_Question] = iter(())
        self._asked: deque[_Question] = deque()
        self.listed = m.FilesListed(folder, 0, [])
        self.is_answered = True
        self.held: dict[str, m.ListedFile] = {}
        self.problems: dict[str, str] = {}
        self.taken_bytes = self.wanted_bytes = 0

    @property
    def missing(self) -> list[m.ListedFile]:
        """The files of the last list that are not here."""
        return [file for file in self.listed.files if self.lacks(file)]

    def lacks(self, file: m.ListedFile) -> bool:
        """Whether a file is not here as it is on the node; one that grows in its place is here once it is as large."""
        held = self.held.get(file.name)
        if held is None or held.size_bytes != file.size_bytes:
            return True
        return self._part is not None and held.changed_ns != file.changed_ns

    def begins_at(self, name: str) -> int:
        """Return how much is here of a file that grows in its place, which is not fetched again."""
        held = self.held.get(name) if self._part is None else None
        return held.size_bytes if held else 0

    def choose(self, listed: m.FilesListed) -> list[Asked]:
        """Ask for what is wanted of a list."""
        return self.fetch(listed, listed.files)

    def fetch(self, listed: m.FilesListed, files: list[m.ListedFile]) -> list[Asked]:
        """Ask for these files of a list, in this order, and for nothing else any more."""
        self.drop()
        self.problems = {}
        self.listed, self.is_answered = listed, False
        self.wanted_bytes += sum(file.size_bytes - self.begins_at(file.name) for file in files)
        self._questions = itertools.chain.from_iterable(map(self._questions_of, files))
        return self._ask()

    def take(self, piece: m.FilePiece) -> list[Asked]:
        """Store a piece; return what to ask for next. One that is not the next of its node is dropped."""
        if not self._asked or (piece.name, piece.offset) != (self._asked[0].wanted.name, self._asked[0].wanted.offset):
            return []
        question = self._asked.popleft()
        name = question.wanted.name
        if name not in self.problems:
            if problem := self._store(question, piece):
                logger.warning("%r is not taken: %s", name, problem)
                self.problems[name] = problem
            else:
                self.taken_bytes += question.wanted.size_bytes
        return self._ask()

    def remove(self, names: Iterable[str]) -> None:
        """Remove files that were stored here; other names are ignored."""
        for name in names:
            path = path_below(self._home, name)
            if path is not None and self.held.pop(name, None) is not None:
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
                    self._remove_empty(path.parent)

    def _remove_empty(self, folder: Path) -> None:
        while folder != self._home and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent

    def drop(self) -> None:
        """Ask for nothing more, and drop the file that is not complete yet."""
        self._asked.clear()
        self._questions = iter(())
        self._end()
        if self._part is not None:
            with contextlib.suppress(OSError):
                self._part.unlink(missing_ok=True)

    def _questions_of(self, file: m.ListedFile) -> Iterator[_Question]:
        path = path_below(self._home, file.name)
        if path is None:
            self.problems[file.name] = "it was not to come"
            return
        offset = self.begins_at(file.name)
        while file.name not in self.problems:
            size = min(m.PIECE_BYTES, file.size_bytes - offset)
            changed_ns = 0 if self._part is None else file.changed_ns
            yield _Question(file, path, m.PieceWanted(self._folder, file.name, offset, size, changed_ns))
            offset += size
            if offset >= file.size_bytes:
                return

    def _ask(self) -> list[Asked]:
        room = self._window_bytes - sum(_PIECE_COST + question.wanted.size_bytes for question in self._asked)
        answers: list[Asked] = []
        while room > 0 and (question := next(self._questions, None)) is not None:
            self._asked.append(question)
            room -= _PIECE_COST + question.wanted.size_bytes
            answers.append(question.wanted)
        if not self._asked and not self.is_answered:
            self._end()
            answers.append(self.answer())
        return answers

    def _end(self) -> None:
        self.is_answered, self.wanted_bytes = True, self.taken_bytes

    def answer(self) -> m.FilesTaken:
        """Return the answer to the list, now that all has come of it that could be had."""
        return m.FilesTaken(self._folder, self.listed.number, left_out=len(self.missing))

    def _store(self, question: _Question, piece: m.FilePiece) -> str:
        """Write a piece; return why that was not possible, or ""."""
        file, path, wanted = question
        if piece.problem or len(piece.data) != wanted.size_bytes:
            return piece.problem or "it changed while it was read"
        end = wanted.offset + wanted.size_bytes
        try:
            (self._part or path).parent.mkdir(parents=True, exist_ok=True)
            begin = os.O_APPEND if wanted.offset else os.O_TRUNC
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | begin
            with os.fdopen(os.open(self._part or path, flags, 0o600), "wb") as stored:
                stored.write(piece.data)
            if self._part is not None and end == file.size_bytes:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._part.replace(path)
        except OSError as error:
            return f"it cannot be kept in {self._home} ({error.strerror})"
        if self._part is None or end == file.size_bytes:
            self.held[file.name] = m.ListedFile(file.name, end, file.changed_ns)
        return ""


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
