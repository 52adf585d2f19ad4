"""A large value as a file: written by the node without another copy of its arrays, mapped by the driver.

The file has the contents of arrays, tables and byte strings, each at a multiple of 64, then the encoded value, in which
`Tag.STORED` stands for them, and in the last 8 bytes the length of that. Whoever reads it maps it privately: arrays can
be written to, and memory is taken only for what is looked at.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import socket
import struct
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tfos_lab.errors import ResultNotStored, ResultUnreadable
from tfos_lab.values.decode import decode_value
from tfos_lab.values.encode import encode_value

# Values that take less travel within a message.
INLINE_BYTES = 1 << 18
_ALIGNMENT = 64
_LENGTH = struct.Struct("!Q")


def encode_result(value: Any, path: Path, *, limit_bytes: int, implicit: bool) -> tuple[bytes, int]:
    """Encode a value: as bytes if it is small, else into a file.

    Parameters
    ----------
    value : object
        What the user's function returned.
    path : Path
        The file, which is replaced.
    limit_bytes, implicit : int, bool
        As in `encode_value`.

    Returns
    -------
    tuple of bytes and int
        The encoded value and 0, or ``b""`` and the size of the file.

    Raises
    ------
    ResultNotSendable, ResultTooLarge
        As `encode_value` does.
    ResultNotStored
        If the file cannot be written.
    """
    with _Writer(path) as writer:
        try:
            head = encode_value(value, limit_bytes=limit_bytes, implicit=implicit, store=writer)
            if writer.size_bytes + len(head) > INLINE_BYTES:
                return b"", writer.finish(head)
        except OSError as error:
            reason = f"{error.strerror or error}, after {writer.size_bytes / 1e6:,.1f} MB of it"
            place = f"{path.parent} on {socket.gethostname()}"
            raise ResultNotStored(place=place, reason=reason) from error
        if not writer.size_bytes:
            return head, 0
        writer.clear()
        return encode_value(value, limit_bytes=limit_bytes, implicit=implicit), 0


def load_stored(path: Path, size_bytes: int) -> Any:
    """Return the value in a file, which is removed: the disk is free again when nothing refers to the value any more.

    Raises
    ------
    ResultUnreadable
        If there is no such file, or it is not what a node writes.
    """
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:
        raise ResultUnreadable(reason=f"{path} cannot be read ({error})") from error
    if len(data) != size_bytes or size_bytes < _LENGTH.size:
        raise ResultUnreadable(reason=f"{path} has {len(data):,} bytes, not {size_bytes:,}")
    view = memoryview(data)
    end = size_bytes - _LENGTH.size
    (length,) = _LENGTH.unpack(view[end:])
    if length > end:
        raise ResultUnreadable(reason=f"{path} is damaged")
    value = decode_value(view[end - length : end], stored=view[: end - length])
    path.unlink(missing_ok=True)
    return value


class _Writer:
    """The file while it is written; it is opened for the first data."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: io.FileIO | None = None
        self.size_bytes = 0

    def add(self, data: memoryview) -> tuple[int, int]:
        """Append data; return where it begins, and its length."""
        self._write(bytes(-self.size_bytes % _ALIGNMENT))
        start = self.size_bytes
        self._write(data)
        return start, data.nbytes

    def finish(self, head: bytes) -> int:
        """Append the encoded value; return the size of the file."""
        self._write(head)
        self._write(_LENGTH.pack(len(head)))
        return self.size_bytes

    def clear(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._path.unlink(missing_ok=True)
        self.size_bytes = 0

    def _write(self, data: bytes | memoryview) -> None:
        if self._file is None:
            self._path.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = io.FileIO(os.open(self._path, flags, 0o600), "wb")
        rest = memoryview(data)
        while rest:  # one call writes 2 GiB at most
            written = self._file.write(rest)
            self.size_bytes += written
            rest = rest[written:]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            with contextlib.suppress(OSError):
                self.clear()
        elif self._file is not None:
            self._file.close()
