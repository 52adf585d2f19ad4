"""Sends files to the driver in pieces, as fast as it writes them; a file that did not arrive whole is sent again.

It works in the agent's poll loop, for event files and for the function's output.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tfos_lab import messages as m
from tfos_lab.node.files.found import FoundFile

PIECE_BYTES = 1 << 18
WINDOW_BYTES = 1 << 22
# What a piece costs besides its bytes, so that many small files fill the window too.
PIECE_COST = 1 << 9
# A driver that has not answered for this long has missed a message.
STALLED_S = 10.0
TRIES = 3


class FileSender:
    """Sends the files of one folder of a node.

    Parameters
    ----------
    rank : int
        The node's rank, for its messages.
    folder : str
        The folder's name in messages.
    send : callable
        Sends a message to the driver.

    Attributes
    ----------
    kept : dict of str to FoundFile
        The files that the driver has, by name.
    refused : dict of FoundFile to str
        Why the driver does not have others.
    answered_at : float
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
        self.answered_at = 0.0
        self.kept: dict[str, FoundFile] = {}
        self.refused: dict[FoundFile, str] = {}

    @property
    def is_idle(self) -> bool:
        """Whether the driver has answered for every file."""
        return not self._queue and not self._unanswered

    def add(self, files: Iterable[FoundFile]) -> None:
        """Queue files, in this order."""
        if self.is_idle:
            self.answered_at = time.monotonic()
        for file in files:
            self._tries[file.name] = 0
            self.refused.pop(file, None)
            self._queue.append(file)

    def send_due(self) -> None:
        """Send as much as the window allows; called often."""
        if self._unanswered and time.monotonic() - self.answered_at > STALLED_S:
            self._resend()
        while self._credit > 0 and (piece := next(self._pieces, None)) is not None:
            self._credit -= len(piece.data) + PIECE_COST
            self._send(piece)

    def handle(self, message: m.ToAgent) -> None:
        """Handle the driver's message about the files."""
        match message:
            case m.FileCredit(folder=self._folder, size=size):
                self.answered_at = time.monotonic()
                self._credit = min(WINDOW_BYTES, self._credit + size)
            case m.FileKept(folder=self._folder, transfer=transfer):
                self.answered_at = time.monotonic()
                file = self._unanswered.pop(transfer, None)
                if file is not None:
                    self._record(file, message)

    def _record(self, file: FoundFile, answer: m.FileKept) -> None:
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

    def _resend(self) -> None:
        """Send unanswered files again: their pieces, or the answers, are lost."""
        lost, self._unanswered = self._unanswered, {}
        self._pieces = self._cut()
        self._credit, self.answered_at = WINDOW_BYTES, time.monotonic()
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
        self._pieces = self._cut()  # for files that are added later: a finished generator cannot continue

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
    """Open a file without following a symbolic link, and without waiting at a pipe."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
