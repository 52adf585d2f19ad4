"""Converts flat Arrow values to NumPy arrays: one function for each kind of `tfos_lab.data.type_table`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from pyarrow import compute, types

from tfos_lab.data.nesting import Level, between, common_length
from tfos_lab.data.rows import Array


def _numbers(values: pa.Array) -> Array:
    numbers: Array = values.to_numpy(zero_copy_only=False)
    return numbers


def _decimals(values: pa.Array) -> Array:
    """Round to the nearest double, as Spark's cast does, up to 15 digits; beyond that, the last bit may differ."""
    kind = values.type
    if types.is_decimal128(kind) and kind.precision <= 15 and kind.scale >= 0 and len(values):
        # Arrow's cast multiplies by 0.001, say, which may be off by a bit. The lower 64 bits hold all 15 digits.
        halves = np.frombuffer(values.buffers()[1], np.int64, 2 * len(values), 16 * values.offset)
        doubles: Array = halves[::2] / 10.0**kind.scale
        return doubles
    return _numbers(values.cast(pa.float64()))


def _strings(values: pa.Array) -> Array:
    """Return objects of bytes, as TensorFlow holds strings; NumPy has no cheaper form for strings of any length."""
    if types.is_string(values.type):
        values = values.view(pa.binary())
    elif types.is_large_string(values.type):
        values = values.view(pa.large_binary())
    return _numbers(values)


def _dates(values: pa.Array) -> Array:
    return _numbers(values.cast(pa.date32()).view(pa.int32()))


def _ticks(values: pa.Array) -> Array:
    """Count microseconds: since 1970 for timestamps, since midnight for times."""
    if values.type.unit == "ns":
        return _numbers(values.view(pa.int64())) // 1000
    if types.is_timestamp(values.type):
        in_us = pa.timestamp("us", values.type.tz)
    else:
        in_us = pa.time64("us") if types.is_time(values.type) else pa.duration("us")
    return _numbers(values.cast(in_us).view(pa.int64()))


def vectors(values: pa.Array, level: Level) -> tuple[Array, int]:
    """Return spark.ml vectors densely: dense ones have ``values``, sparse ones ``size`` and ``indices`` as well."""
    rows = len(values)
    if rows == 0:
        return np.empty(0, np.float64), 0
    is_dense = values.field("type").to_numpy(zero_copy_only=False) == 1
    stored, numbers, offsets = _list_parts(values.field("values"))
    if is_dense.all():
        length = common_length(offsets, level, "entries")
        return numbers, length
    sizes = np.where(is_dense, stored, compute.fill_null(values.field("size"), 0).to_numpy())
    level.refuse_ragged(sizes, "entries")
    length = int(sizes[0])
    row_of = np.repeat(np.arange(rows), stored)
    entry_of = np.arange(len(numbers)) - np.repeat(offsets[:-1] - offsets[0], stored)
    # Only sparse rows have indices, in the order of their values.
    _, indices, _ = _list_parts(values.field("indices"))
    entry_of[~is_dense[row_of]] = indices
    dense = np.zeros((rows, length), np.float64)
    dense[row_of, entry_of] = numbers
    return dense.reshape(-1), length


def _list_parts(lists: pa.Array) -> tuple[Array, Array, Array]:
    """Return the length of each row of a list column (0 for null), all values, and the offsets."""
    if lists.null_count:
        lists = compute.fill_null(lists, pa.scalar([], lists.type))
    offsets = lists.offsets.to_numpy()
    return np.diff(offsets), between(lists.values, offsets).to_numpy(zero_copy_only=False), offsets


CONVERT: dict[str, Callable[[pa.Array], Array]] = {
    "number": _numbers,
    "bool": _numbers,
    "decimal": _decimals,
    "string": _strings,
    "binary": _strings,
    "date": _dates,
    "timestamp": _ticks,
    "time": _ticks,
    "duration": _ticks,
}
