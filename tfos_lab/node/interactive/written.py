"""What a cell writes, on its way to the notebook beside the log, which has all of it."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TextIO, cast

# Text waits this long for more; a cell that prints much sends few messages.
_GATHER_S = 0.1
# The rest of what a cell writes is in the log only.
LIMIT_CHARS = 200_000


class WrittenText:
    """Gathers the text of one cell, and sends it in pieces.

    Parameters
    ----------
    send : callable
        Takes the name of the stream and the text.
    """

    def __init__(self, send: Callable[[str, str], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._pieces: list[tuple[str, str]] = []
        self._left = LIMIT_CHARS
        self._ended = threading.Event()

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """Send what is added in the block; at its end, all has been sent."""
        sender = threading.Thread(target=self._send_often, name="tfos-cell-output", daemon=True)
        sender.start()
        try:
            yield
        finally:
            self._ended.set()
            sender.join()
            self._send_pieces()

    def add(self, stream: str, text: str) -> None:
        """Add text; what exceeds the limit is left out, with a note."""
        with self._lock:
            if self._left > 0 and text:
                rest = "" if len(text) <= self._left else "\n… the rest is in the log\n"
                self._pieces.append((stream, text[: self._left] + rest))
                self._left -= len(text)

    def _send_often(self) -> None:
        while not self._ended.wait(_GATHER_S):
            self._send_pieces()

    def _send_pieces(self) -> None:
        with self._lock:
            pieces, self._pieces = self._pieces, []
        joined: list[tuple[str, str]] = []
        for stream, text in pieces:
            if joined and joined[-1][0] == stream:
                joined[-1] = (stream, joined[-1][1] + text)
            else:
                joined.append((stream, text))
        for stream, text in joined:
            self._send(stream, text)


class CopiedOutput:
    """Copies what this process writes to stdout and stderr to the text of the cell that runs.

    The streams are put in place once: a logger that one cell has set up shows its lines below later ones, too.
    """

    def __init__(self) -> None:
        self._current: WrittenText | None = None

    def install(self) -> None:
        """Put the copying streams in place."""
        sys.stdout = cast("TextIO", _Copied(sys.stdout, "stdout", self.add))
        sys.stderr = cast("TextIO", _Copied(sys.stderr, "stderr", self.add))

    def add(self, stream: str, text: str) -> None:
        """Add text to the cell that runs, if one does."""
        if self._current is not None:
            self._current.add(stream, text)

    @contextlib.contextmanager
    def to(self, written: WrittenText) -> Iterator[None]:
        """Copy what is written in the block, and send it."""
        with written.sending():
            self._current = written
            try:
                yield
            finally:
                self._current = None


class _Copied:
    """A stream whose text also goes elsewhere; in all else it is the stream itself."""

    def __init__(self, stream: TextIO, name: str, copy: Callable[[str, str], None]) -> None:
        self._stream, self._name, self._copy = stream, name, copy

    def write(self, text: str) -> int:
        self._copy(self._name, text)
        return self._stream.write(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
