"""Columns of byte strings, and numbers as varints: small tools that avoid Python per row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from tfos_lab.data.rows import Array

# Beyond this length, sorting finds the distinct lengths faster than counting.
_MAX_COUNTED = 1 << 16


def byte_column(data: Any, offsets: Array, present: Array | None = None) -> pa.LargeBinaryArray:
    """Make a column of ``data[offsets[i]:offsets[i + 1]]``, null where not ``present``, without a copy."""
    validity = None if present is None or present.all() else pa.array(present, pa.bool_()).buffers()[1]
    positions = pa.py_buffer(np.ascontiguousarray(offsets, np.int64))
    buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, [validity, positions, buffer])


def offsets_of(column: pa.LargeBinaryArray) -> Array:
    """Return where each row begins in the column's bytes, and where the last ends."""
    if not len(column):
        return np.zeros(1, np.int64)
    return np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]


def bytes_of(column: pa.LargeBinaryArray) -> pa.Buffer:
    """Return the column's bytes, from the first row to the last; `offsets_of` counts from the buffer's beginning."""
    offsets = offsets_of(column)
    buffer = column.buffers()[2]
    return pa.py_buffer(b"") if buffer is None else buffer.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def by_length(lengths: Array, make: Callable[[int], bytes]) -> tuple[pa.LargeBinaryArray | pa.Scalar, Array]:
    """Make bytes for each row that depend only on its length: ``make`` is called once for each distinct length.

    Returns a column, or a scalar if all rows have the same bytes; and how many bytes each row has.
    """
    if len(lengths) and lengths[0] == lengths.max() == lengths.min():
        made = make(int(lengths[0]))
        return pa.scalar(made, pa.large_binary()), np.full(len(lengths), len(made))
    if not len(lengths) or lengths.max() >= _MAX_COUNTED:
        distinct, which = np.unique(lengths, return_inverse=True)
    else:
        occurs = np.zeros(int(lengths.max()) + 1, np.bool_)
        occurs[lengths] = True
        distinct, which = np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[lengths]
    values = [make(int(length)) for length in distinct]
    sizes = np.array([len(value) for value in values], np.int64)
    return pa.array(values, pa.large_binary()).take(pa.array(which)), sizes[which]


def cut(data: Array, starts: Array, ends: Array) -> tuple[Array, Array]:
    """Copy ascending ranges out of ``data`` (uint8); return them joined, with their offsets."""
    edges = np.empty(2 * len(starts) + 1, np.int64)
    edges[:-1:2], edges[1::2] = starts, ends
    edges[-1] = ends[-1] if len(ends) else 0
    wanted = byte_column(data, edges).take(pa.array(np.arange(0, 2 * len(starts), 2)))
    offsets = offsets_of(wanted)
    return np.frombuffer(bytes_of(wanted), np.uint8), offsets - offsets[0]


# ---- varints ---------------------------------------------------------------------------------------------------------

# As in protocol buffers: seven bits per byte, lowest first, the high bit set on all bytes but the last.

_MAX_BYTES = 10
# Numbers are handled in blocks that fit into a processor's caches.
_BLOCK = 1 << 16


def varint(value: int) -> bytes:
    r"""Encode one number that is not negative.

    Examples
    --------
    >>> varint(300)
    b'\xac\x02'
    """
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def encode_varints(values: Array, borders: Array) -> tuple[Array, Array]:
    """Encode integers of any width one after another, negative ones as int64.

    Returns their bytes, and where in these the ``borders`` are, ascending positions between the numbers.
    """
    if len(values) and values.min() < 0:
        values = values.astype(np.int64).view(np.uint64)
    largest = int(values.max(initial=0))
    if largest < 0x80:
        return values.astype(np.uint8), borders
    width = len(varint(largest))
    blocks = [_encode_block(values[first : first + _BLOCK], width) for first in range(0, len(values), _BLOCK)]
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.concatenate([sizes for _, sizes in blocks]), out=offsets[1:])
    return np.concatenate([data for data, _ in blocks]), offsets[borders]


def _encode_block(values: Array, width: int) -> tuple[Array, Array]:
    """Encode numbers of at most ``width`` bytes; return the bytes, and how many each number has."""
    # Each number's bytes are built in one word, or two; in the end only those that it uses are kept.
    word = np.dtype("<u2" if width <= 2 else "<u4" if width <= 4 else "<u8")
    data = np.zeros((len(values), -(-width // word.itemsize)), word)
    used = np.zeros_like(data)
    sizes = np.zeros(len(values), np.uint8)
    rest, more = values.astype(word), np.ones(len(values), np.bool_)
    for i in range(width):
        column, shift = i // word.itemsize, 8 * (i % word.itemsize)
        used[:, column] |= more.astype(word) << shift
        sizes += more
        data[:, column] |= (rest & 0x7F) << shift
        rest = rest >> 7
        more = rest != 0
        data[:, column] |= more.astype(word) << (shift + 7)
    return np.compress(used.view(np.bool_).reshape(-1), data.view(np.uint8).reshape(-1)), sizes


def decode_varints(data: Array) -> tuple[Array, Array]:
    """Decode all numbers in bytes (uint8) that end with a whole number; also return where each number's bytes end."""
    if not len(data) or int(data.max()) < 0x80:
        return data.astype(np.int64), np.arange(1, len(data) + 1)
    ends = np.flatnonzero(data < 0x80) + 1
    values = np.empty(len(ends), np.int64)
    start = 0
    for first in range(0, len(ends), _BLOCK):
        some = ends[first : first + _BLOCK]
        values[first : first + _BLOCK] = _decode_block(data[start : some[-1]], some - start)
        start = int(some[-1])
    return values, ends


def _decode_block(data: Array, ends: Array) -> Array:
    """Decode the numbers in bytes that end at these positions."""
    starts = np.concatenate([[0], ends[:-1]])
    sizes = ends - starts
    values = (data[starts] & 0x7F).astype(np.uint64)
    for i in range(1, min(int(sizes.max()), _MAX_BYTES)):
        longer = np.flatnonzero(sizes > i)
        values[longer] |= (data[starts[longer] + i] & 0x7F).astype(np.uint64) << np.uint64(7 * i)
    numbers: Array = values.view(np.int64)
    return numbers


def read_varints(data: Array, at: Array) -> tuple[Array, Array]:
    """Decode one number at each of many positions; also return the positions after them.

    At least ten more bytes follow the last position.
    """
    values = data[at].astype(np.int64)
    after = at + 1
    longer = np.flatnonzero(values > 0x7F)
    values[longer] &= 0x7F
    for i in range(1, _MAX_BYTES):
        if not len(longer):
            break
        parts = data[after[longer]].astype(np.int64)
        after[longer] += 1
        values[longer] |= (parts & 0x7F) << (7 * i)
        longer = longer[parts > 0x7F]
    return values, after
