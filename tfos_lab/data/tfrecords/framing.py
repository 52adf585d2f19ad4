"""The frames of a TFRecord file: length (8 bytes), its CRC (4), the record, its CRC (4).

`frame` makes them of a batch's records; `read_frames` finds and checks those of a file, some megabytes at a time.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import pyarrow as pa
from pyarrow import compute

from tfos_lab.data.rows import Array
from tfos_lab.data.tfrecords.byte_columns import by_length, byte_column, bytes_of, offsets_of
from tfos_lab.errors import RecordError

_HEADER = struct.Struct("<QI")
_LENGTH = struct.Struct("<Q")
_FOOTER_BYTES = 4
_CHUNK_BYTES = 8 << 20
# Follows the last record, so that parsers may read a little beyond it.
PADDING = bytes(16)


@dataclass(frozen=True)
class Frames:
    """Some records of a file: its bytes from ``offset`` on, and where in them each record is, without its frame.

    At least the size of `PADDING` follows the last frame.
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

    A RecordError, if the file is cut off or damaged, has the byte at which the first bad frame begins.
    """
    rest = b""
    while True:
        chunk = read_chunk(stream, chunk_bytes, path, offset + len(rest))
        size = len(rest) + len(chunk)
        data = b"".join((rest, chunk, PADDING))
        starts, ends, used, error = _scan(data, size, path, offset)
        if len(starts):
            found = Frames(path, data, starts, ends, offset)
            stored = np.frombuffer(data, np.uint8)[ends[:, None] + np.arange(_FOOTER_BYTES)].view("<u4")[:, 0]
            wrong = np.flatnonzero(masked_crcs(data, starts, ends) != stored)
            if len(wrong):
                raise found.refuse(int(wrong[0]), "its bytes do not fit their CRC: the file is damaged")
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


def broken_record(path: str, offset: int, reason: str) -> RecordError:
    """Return the error about the record at an offset of a file."""
    return RecordError(
        reason=f"{path}: the record at byte {offset} cannot be read: {reason}. Write the file again, or leave it out"
    )


# ---- CRC32C ----------------------------------------------------------------------------------------------------------

# Of many byte strings at once, masked as TFRecord files hold it. The package ``google-crc32c`` computes them where it
# is installed. Executors need not have it: NumPy computes the same, at a fraction of the speed. A CRC is linear, so
# that of a string follows from those of its halves: all strings are folded at once, word by word and then half by half.

_POLYNOMIAL = 0x82F63B78
_ALL_ONES = 0xFFFFFFFF
_WORD_BYTES = 4
# The bytes that make all ones of a CRC that starts from zero.
_TO_ALL_ONES = np.array([0x54, 0x64, 0x1F, 0x64], np.uint8)
# Strings that are folded together are padded to one length, so they are grouped by length, in limited numbers.
_GROUP_BYTES = 1 << 22


def masked_crcs(data: bytes, starts: Array, ends: Array) -> Array:
    """Compute the masked CRC32C of each ``data[start:end]``; uint32 ``(n,)``."""
    library = _library()
    crcs = (
        _fold_all(data, starts, ends)
        if library is None
        else np.fromiter(map(library, map(data.__getitem__, map(slice, starts.tolist(), ends.tolist()))), np.uint32)
    )
    return mask(crcs)


def mask(crcs: Array) -> Array:
    """Rotate CRCs (uint32) and add a constant: TFRecord files do so, as a CRC of data with CRCs would be unreliable."""
    return ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + np.uint32(0xA282EAD8)


@functools.cache
def _library() -> Callable[[bytes], int] | None:
    try:
        import google_crc32c
    except ImportError:
        return None
    if google_crc32c.implementation == "python":  # pragma: no cover - a build without its compiled part
        return None
    compute: Callable[[bytes], int] = google_crc32c.value
    return compute


def _fold_all(data: bytes, starts: Array, ends: Array) -> Array:
    raw = np.frombuffer(data, np.uint8)
    sizes = ends - starts
    crcs = np.empty(len(starts), np.uint32)
    words = 1 << np.ceil(np.log2(sizes / _WORD_BYTES + 1)).astype(np.int64)
    for count in np.unique(words):
        rows = np.flatnonzero(words == count)
        step = max(1, _GROUP_BYTES // int(count * _WORD_BYTES))
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            crcs[some] = _fold(raw, starts[some], sizes[some], int(count))
    return crcs


def _fold(raw: Array, starts: Array, sizes: Array, words: int) -> Array:
    # Leading zeros do not change a CRC that starts from zero. CRC32C starts from all ones.
    width = words * _WORD_BYTES
    block = np.zeros((len(starts), width), np.uint8)
    for row, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        block[row, width - size - _WORD_BYTES : width - size] = _TO_ALL_ONES
        block[row, width - size :] = raw[start : start + size]
    # Pair by pair, until each row has one; their number is a power of two.
    states, size_bytes = block.view("<u4"), _WORD_BYTES
    while states.shape[1] > 1:
        states = _shift(np.ascontiguousarray(states[:, ::2]), size_bytes) ^ states[:, 1::2]
        size_bytes *= 2
    inverted: Array = _shift(states[:, 0], _WORD_BYTES) ^ np.uint32(_ALL_ONES)
    return inverted


def _shift(states: Array, size_bytes: int) -> Array:
    """Return what CRC states become after ``size_bytes`` zero bytes."""
    tables = _tables(size_bytes)
    parts = np.ascontiguousarray(states).view(np.uint8).reshape(*states.shape, 4)
    shifted: Array = tables[0][parts[..., 0]]
    for i in range(1, 4):
        shifted ^= tables[i][parts[..., i]]
    return shifted


@functools.cache
def _tables(size_bytes: int) -> Array:
    """Tabulate `_shift` by the four bytes of a state; uint32 ``(4, 256)``."""
    if size_bytes == 1:
        step = np.arange(256, dtype=np.uint32)
        for _ in range(8):
            step = np.where(step & 1, (step >> 1) ^ np.uint32(_POLYNOMIAL), step >> 1).astype(np.uint32)
        states = np.arange(256, dtype=np.uint32)[None, :] << (np.arange(4, dtype=np.uint32) * 8)[:, None]
        first: Array = step[states & 0xFF] ^ (states >> np.uint32(8))
        return first
    half = _tables(size_bytes // 2)
    parts = half.view(np.uint8).reshape(4, 256, 4)
    whole: Array = half[0][parts[..., 0]]
    for i in range(1, 4):
        whole = whole ^ half[i][parts[..., i]]
    return whole
