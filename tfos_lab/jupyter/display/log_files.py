"""Whole log files on their way to the browser, piece by piece, as it asks for them: nothing is held in the kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

PIECE_BYTES = 1 << 20


class Piece(NamedTuple):
    """Some bytes of a file, and how large the whole file is by now."""

    data: bytes
    size: int


def read_piece(path: Path, offset: Any) -> Piece:
    """Return the bytes from ``offset`` on; a file that is not there (yet) is empty."""
    if not isinstance(offset, int) or offset < 0 or not path.exists():
        return Piece(b"", 0)
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(min(offset, size))
        return Piece(file.read(PIECE_BYTES), size)
