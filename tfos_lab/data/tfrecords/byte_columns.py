"""Columns of byte strings: small tools that avoid Python per row."""

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
    distinct, which = _distinct(lengths)
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


def _distinct(lengths: Array) -> tuple[Array, Array]:
    if not len(lengths) or lengths.max() >= _MAX_COUNTED:
        distinct, which = np.unique(lengths, return_inverse=True)
        return distinct, which
    occurs = np.zeros(int(lengths.max()) + 1, np.bool_)
    occurs[lengths] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[lengths]
