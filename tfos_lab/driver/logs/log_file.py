"""One node's log file on the driver's machine: whole, as long as the disk allows it.

What comes later is counted. Its end is kept in memory and written when the file is closed, after a line that says how
much is missing: the last lines are those that say why a node has failed.
"""

from __future__ import annotations

import io
import math
import os
import shutil
from collections import deque
from pathlib import Path

# What logs and output leave free of the disk, so that notebooks can still be saved: this, or this part of a small disk.
_FREE_BYTES = 1 << 30
_FREE_PART = 20
# How much is written until the disk is looked at again.
_LOOK_BYTES = 1 << 24
_TAIL_BYTES = 1 << 16


class LogFile:
    """Appends to one file; never raises.

    Parameters
    ----------
    path : Path
        The file; opened with the first bytes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: io.FileIO | None = None
        self._size = self._missing = 0
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._looks_at = 0
        self._cut = ""

    def write(self, data: bytes) -> str:
        """Append bytes; return why some of them could not be written, or ''."""
        self._cut = self._cut or self._bound(len(data))
        if self._cut:
            self._missing += len(data)
            self._keep_end(data)
            return self._cut
        return self._append(data)

    def _bound(self, size_bytes: int) -> str:
        """Return why the file may not grow by so many bytes, or ''."""
        if self._size + size_bytes < self._looks_at:
            return ""
        self._looks_at = self._size + size_bytes + _LOOK_BYTES
        return (
            ""
            if self._size < _LOOK_BYTES or room_on_disk(self._path.parent) > _LOOK_BYTES
            else "the disk is nearly full"
        )

    def _keep_end(self, data: bytes) -> None:
        self._tail.append(data[-_TAIL_BYTES:])
        self._tail_bytes += len(self._tail[-1])
        while self._tail_bytes - len(self._tail[0]) >= _TAIL_BYTES:
            self._tail_bytes -= len(self._tail.popleft())

    def _append(self, data: bytes) -> str:
        """Append bytes, after a line that says how many are missing before them."""
        missing, self._missing = self._missing, 0
        gap = f"\n… {missing:,} bytes are missing here …\n".encode() if missing else b""
        try:
            if self._file is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._file = io.FileIO(os.open(self._path, flags, 0o600), "ab")
            written = self._file.write(gap + data) - len(gap)
            reason = "the disk is full"
        except OSError as error:
            written, reason = -len(gap), error.strerror or str(error)
        self._size += max(0, written)
        if written == len(data):
            return ""
        self._missing = len(data) - written if written >= 0 else missing + len(data)
        return reason

    def close(self) -> None:
        """Write what was kept of the end, and close; may be called twice."""
        if self._tail:
            end, self._missing = b"".join(self._tail), self._missing - self._tail_bytes
            self._tail.clear()
            self._append(end)
        if self._file is not None:
            self._file.close()
            self._file = None


def room_on_disk(folder: Path) -> float:
    """Return how many bytes may still be written to the disk of a folder."""
    try:
        disk = shutil.disk_usage(folder)
    except OSError:  # writing says why
        return math.inf
    return disk.free - min(_FREE_BYTES, disk.total // _FREE_PART)
