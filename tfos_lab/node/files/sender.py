"""Sends files to the driver in pieces, as fast as it keeps them; a file that did not arrive whole is sent again.

Works inside the agent's poll loop, for event files and for the function's output.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tfos_lab import messages as m

PIECE_BYTES = 1 << 18
WINDOW_BYTES = 1 << 22
# What a piece costs beside its bytes: small files are not free.
PIECE_COST = 1 << 9
# A driver that says nothing for so long has missed something.
STALLED_S = 10.0
TRIES = 3


@dataclass(frozen=True)
class FoundFile:
    """A file as it was found; ``name`` is its path below the folder, with slashes."""

    name: str
    path: Path
    size: int
    changed_ns: int


class FileSender:
    """One node's way of sending files of one folder.

    Parameters
    ----------
    rank : int
        The node's rank, which its messages bear.
    folder : str
        Which folder they are of, as messages call it.
    send : callable
        Says something to the driver.

    Attributes
    ----------
    kept : dict of str to FoundFile
        What the driver has, by name.
    refused : dict of FoundFile to str
        Why others did not come there, as they were.
    heard_at : float
        When the driver last answered, by `time.monotonic`.
    """

    def __init__(self, rank: int, folder: str, send: Callable[[m.FromAgent], None]) -> None:
        self._rank = rank
        self._folder = folder
        self._send = send
        self._queue: deque[FoundFile] = deque()
        self._pieces = self._cut()
        self._unanswered: dict[int, FoundFile] = {}
        self._tries: dict[str, int] = {}
        self._transfer = 0
        self._credit = WINDOW_BYTES
        self.heard_at = 0.0
        self.kept: dict[str, FoundFile] = {}
        self.refused: dict[FoundFile, str] = {}

    @property
    def is_idle(self) -> bool:
        """Whether all that was to be sent has been answered."""
        return not self._queue and not self._unanswered

    def add(self, files: Iterable[FoundFile]) -> None:
        """Have these sent, in this order."""
        if self.is_idle:
            self.heard_at = time.monotonic()
        for file in files:
            self._tries[file.name] = 0
            self.refused.pop(file, None)
            self._queue.append(file)

    def go_on(self) -> None:
        """Send what may be sent now."""
        if self._unanswered and time.monotonic() - self.heard_at > STALLED_S:
            self._begin_again()
        while self._credit > 0 and (piece := next(self._pieces, None)) is not None:
            self._credit -= len(piece.data) + PIECE_COST
            self._send(piece)

    def handle(self, message: m.ToAgent) -> None:
        """Take in what the driver says about them."""
        match message:
            case m.FileCredit(folder=self._folder, size=size):
                self.heard_at = time.monotonic()
                self._credit = min(WINDOW_BYTES, self._credit + size)
            case m.FileKept(folder=self._folder, transfer=transfer):
                self.heard_at = time.monotonic()
                file = self._unanswered.pop(transfer, None)
                if file is not None:
                    self._note(file, message)

    def _note(self, file: FoundFile, answer: m.FileKept) -> None:
        if not answer.problem:
            self.kept[file.name] = file
        elif answer.again:
            self._try_again(file, answer.problem)
        else:
            self.refused[file] = answer.problem

    def _try_again(self, file: FoundFile, problem: str) -> None:
        self._tries[file.name] = self._tries.get(file.name, 0) + 1
        if self._tries[file.name] < TRIES:
            self._queue.append(file)
        else:
            self.refused[file] = problem

    def _begin_again(self) -> None:
        """What was said, or the answer to it, is lost."""
        lost, self._unanswered = self._unanswered, {}
        self._pieces = self._cut()
        self._credit, self.heard_at = WINDOW_BYTES, time.monotonic()
        for file in lost.values():
            self._try_again(file, "the notebook did not answer")

    def _cut(self) -> Iterator[m.FilePiece]:
        while self._queue:
            file = self._queue.popleft()
            self._transfer += 1
            self._unanswered[self._transfer] = file
            try:
                yield from self._cut_file(file, self._transfer)
            except OSError as error:
                self._unanswered.pop(self._transfer, None)
                self.refused[file] = f"{error.strerror}"
        self._pieces = self._cut()  # for what is added later: a generator that has ended stays so

    def _cut_file(self, file: FoundFile, transfer: int) -> Iterator[m.FilePiece]:
        digest, offset = hashlib.sha256(), 0
        with os.fdopen(_open_file_itself(file.path), "rb") as stream:
            while offset < file.size or offset == 0:
                data = stream.read(min(PIECE_BYTES, file.size - offset))
                after = offset + len(data)
                digest.update(data)
                has_changed = after < file.size and not data
                if after == file.size:
                    stat = os.fstat(stream.fileno())
                    has_changed = (stat.st_size, stat.st_mtime_ns) != (file.size, file.changed_ns)
                if has_changed:
                    raise OSError(0, "it changed while it was read")
                checksum = digest.digest() if after == file.size else b""
                yield m.FilePiece(self._rank, self._folder, transfer, file.name, offset, data, checksum)
                if checksum:
                    return
                offset = after


def _open_file_itself(path: Path) -> int:
    """Open a file, but not one that a symbolic link leads to, nor a pipe that would be waited for."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
