"""The frames of a TFRecord file: length (8 bytes), its CRC (4), the record, its CRC (4).

`frame` makes them of a batch's records; `read_frames` finds and checks those of a file, some megabytes at a time.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import pyarrow as pa
from pyarrow import compute

from tfos_lab.data.rows import Array
from tfos_lab.data.tfrecords.byte_columns import by_length, byte_column, bytes_of, offsets_of
from tfos_lab.data.tfrecords.crc32c import masked_crcs
from tfos_lab.errors import RecordError

_HEADER = struct.Struct("<QI")
_LENGTH = struct.Struct("<Q")
_FOOTER_BYTES = 4
_CHUNK_BYTES = 8 << 20
# Follows the last record, so that parsers may read a little beyond it.
PADDING = bytes(16)


@dataclass(frozen=True)
class Frames:
    """Some records of a file.

    Parameters
    ----------
    path : str
        The file, for errors.
    data : bytes
        Frames as they are in the file; at least the size of `PADDING` follows the last.
    starts, ends : numpy.ndarray
        Where each record begins and ends in the data, without its frame.
    offset : int
        Where the data begin in the file.
    """

    path: str
    data: bytes
    starts: Array
    ends: Array
    offset: int

    def __len__(self) -> int:
        return len(self.starts)

    def refuse(self, row: int, reason: str) -> RecordError:
        """Return an error about one record, which names its position in the file."""
        return broken_record(self.path, self.offset + int(self.starts[row]) - _HEADER.size, reason)


def frame(records: pa.LargeBinaryArray) -> pa.Buffer:
    """Return the bytes of a file that holds these records."""
    offsets = offsets_of(records)
    headers, _ = by_length(np.diff(offsets), frame_header)
    positions = offsets - offsets[0]
    crcs = masked_crcs(bytes_of(records).to_pybytes(), positions[:-1], positions[1:]).astype("<u4")
    footers = byte_column(crcs, np.arange(len(crcs) + 1) * _FOOTER_BYTES)
    return bytes_of(compute.binary_join_element_wise(headers, records, footers, pa.scalar(b"", pa.large_binary())))


@functools.lru_cache(maxsize=4096)
def frame_header(size_bytes: int) -> bytes:
    """Return the header of a record of this size."""
    length = _LENGTH.pack(size_bytes)
    return _HEADER.pack(size_bytes, int(masked_crcs(length, np.array([0]), np.array([len(length)]))[0]))


def starts_with_frame(head: bytes) -> bool:
    """Whether a file that begins with these bytes is an uncompressed TFRecord file."""
    return len(head) >= _HEADER.size and frame_header(_LENGTH.unpack_from(head)[0]) == head[: _HEADER.size]


def read_frames(stream: IO[bytes], path: str, chunk_bytes: int = _CHUNK_BYTES, *, offset: int = 0) -> Iterator[Frames]:
    """Read a file's frames, some megabytes of whole frames at a time; ``offset`` is where the stream is in the file.

    Raises
    ------
    RecordError
        If the file is cut off or damaged, with the byte at which the first bad frame begins.
    """
    rest = b""
    while True:
        chunk = read_chunk(stream, chunk_bytes, path, offset + len(rest))
        size = len(rest) + len(chunk)
        data = b"".join((rest, chunk, PADDING))
        starts, ends, used, error = _scan(data, size, path, offset)
        if len(starts):
            found = Frames(path, data, starts, ends, offset)
            _check(found)
            yield found
        if error is not None:
            raise error
        rest = data[used:size]
        offset += used
        if not chunk:
            if rest:
                raise broken_record(path, offset, f"the file ends {len(rest)} bytes into it: it was cut off")
            return
        if len(rest) >= _HEADER.size:
            # A record that is larger than a chunk is read at once.
            chunk_bytes = max(chunk_bytes, _HEADER.size + _LENGTH.unpack_from(rest)[0] + _FOOTER_BYTES - len(rest))


def read_chunk(stream: IO[bytes], size: int, path: str, offset: int) -> bytes:
    """Return the next bytes of a file; raises RecordError if it cannot be read on."""
    try:
        return bytes(stream.read(size))
    except EOFError:
        reason = "the compressed file ends in the middle: it was cut off"
    except Exception as error:  # noqa: BLE001 - each kind of stream has its own errors
        reason = f"it cannot be read on: {error}"
    raise broken_record(path, offset, reason)


def _scan(data: bytes, size: int, path: str, offset: int) -> tuple[Array, Array, int, RecordError | None]:
    """Find the whole frames in the first ``size`` bytes, how many they take, and an error where a length is damaged."""
    starts, ends = [], []
    at, error = 0, None
    while at + _HEADER.size <= size:
        (length,) = _LENGTH.unpack_from(data, at)
        start = at + _HEADER.size
        if data[at:start] != frame_header(length):
            error = broken_record(path, offset + at, "its length does not fit the length's CRC: the file is damaged")
            break
        end = start + length
        if end + _FOOTER_BYTES > size:
            break
        starts.append(start)
        ends.append(end)
        at = end + _FOOTER_BYTES
    return np.array(starts, np.int64), np.array(ends, np.int64), at, error


def _check(frames: Frames) -> None:
    crcs = masked_crcs(frames.data, frames.starts, frames.ends)
    raw = np.frombuffer(frames.data, np.uint8)
    stored = raw[frames.ends[:, None] + np.arange(_FOOTER_BYTES)].view("<u4")[:, 0]
    wrong = np.flatnonzero(crcs != stored)
    if len(wrong):
        raise frames.refuse(int(wrong[0]), "its bytes do not fit their CRC: the file is damaged")


def broken_record(path: str, offset: int, reason: str) -> RecordError:
    """Return the error about the record at an offset of a file."""
    return RecordError(
        reason=f"{path}: the record at byte {offset} cannot be read: {reason}. Write the file again, or leave it out"
    )
