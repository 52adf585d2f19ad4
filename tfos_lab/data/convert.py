"""Arrow columns as NumPy arrays ``(rows, *shape)``: without Python per value, and without a copy where memory allows.

The lists are taken off a column (`peel`); the flat values that are left are converted by the table of types, and get
the dtype and shape that the column's spec announces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow import compute, types

from tfos_lab.data.rows import Array
from tfos_lab.data.schema import ColumnSpec, shape_text
from tfos_lab.data.type_table import find_rule, is_array
from tfos_lab.errors import FeedError
from tfos_lab.texts import format_count


def convert_column(column: pa.Array, spec: ColumnSpec) -> Array:
    """Convert one column of a batch, which may be a slice, to what its spec announces.

    Returns ``(rows, *shape)`` of ``spec.dtype``; a read-only view of the column's memory where that has the right
    layout. A FeedError for nulls, rows of unequal length, rows that do not have the spec's shape, and a column of
    another type.
    """
    flat, seen = _convert(column, spec)
    return _shaped(flat, seen, spec)


def measure_column(column: pa.Array, spec: ColumnSpec) -> tuple[int, ...]:
    """Find the shape of a column's rows, and raise what `convert_column` would, without converting strings."""
    if spec.dtype != "object":
        return tuple(convert_column(column, spec).shape[1:])
    _check_kind(column, spec)
    _, lengths = peel(column, Level(spec.name, rows=len(column)))
    return _row_shape((len(column), *lengths), spec)


def _check_kind(column: pa.Array, spec: ColumnSpec) -> None:
    rule, _ = find_rule(column.type)
    if rule is None or rule.kind != spec.kind:
        raise FeedError(reason=f"column '{spec.name}' arrives as {column.type}, but {spec.kind} values were announced")


def _convert(column: pa.Array, spec: ColumnSpec) -> tuple[Array, tuple[int, ...]]:
    """Return the values as a flat array, and the shape ``(rows, ...)`` that they have."""
    _check_kind(column, spec)
    level = Level(spec.name, rows=len(column))
    leaves, lengths = peel(column, level)
    if spec.kind == "vector":
        flat, length = vectors(leaves, level)
        lengths = (*lengths, length)
    else:
        flat = _flat(leaves, spec)
    return flat, (len(column), *lengths)


def _flat(leaves: pa.Array, spec: ColumnSpec) -> Array:
    try:
        return CONVERT[spec.kind](leaves)
    except pa.ArrowInvalid as error:  # A time, say, that microseconds cannot reach in int64.
        raise FeedError(reason=f"column '{spec.name}' does not become {spec.tf_dtype}: {error}") from error


def _shaped(flat: Array, seen: tuple[int, ...], spec: ColumnSpec) -> Array:
    if flat.dtype != spec.dtype:
        flat = flat.astype(spec.dtype)
    return flat.reshape(seen[0], *_row_shape(seen, spec))


def _row_shape(seen: tuple[int, ...], spec: ColumnSpec) -> tuple[int, ...]:
    """Return the shape of a row; a FeedError if the rows differ from the shape that was announced."""
    rows, inner = seen[0], seen[1:]
    if rows == 0:
        return tuple(size or 0 for size in spec.shape)
    if len(inner) != len(spec.shape) or any(
        known not in (None, size) for known, size in zip(spec.shape, inner, strict=True)
    ):
        raise FeedError(
            reason=f"column '{spec.name}' has rows of shape {shape_text(inner)} where {shape_text(spec.shape)} was "
            "announced. Make all rows of the DataFrame equally long"
        )
    return inner


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


@dataclass(frozen=True)
class Level:
    """One level of a column's nesting: which row of the batch a value of its flat array belongs to."""

    name: str
    rows: int
    per_row: int = 1  # values of the flat array per row
    depth: int = 0

    def inside(self, length: int) -> Level:
        """Return the next level inwards, whose lists have this length."""
        return Level(self.name, self.rows, self.per_row * length, self.depth + 1)

    def row(self, position: int) -> int:
        """Return the row that the value at a position belongs to."""
        return position // max(self.per_row, 1)

    def refuse_nulls(self, values: pa.Array) -> None:
        """Raise a FeedError if there are nulls; it names the first row that has one."""
        if not values.null_count:
            return
        first = self.row(int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))))
        nulls = format_count(values.null_count, "null") + (" inside its arrays" if self.depth else "")
        advice = (
            f"replace them: F.transform('{self.name}', lambda x: F.coalesce(x, F.lit(0)))"
            if self.depth
            else f"fill them with df.fillna(...), or leave the rows out with df.dropna(subset=['{self.name}'])"
        )
        raise FeedError(
            reason=f"column '{self.name}' has {nulls} in a batch of {format_count(self.rows, 'row')} (the first in "
            f"row {first}): {advice}"
        )

    def refuse_ragged(self, lengths: Array, what: str = "values") -> None:
        """Raise a FeedError unless all lengths are equal; it names the first row that differs."""
        wrong = int(np.argmax(lengths != lengths[0]))
        if lengths[wrong] == lengths[0]:
            return
        raise FeedError(
            reason=f"column '{self.name}' is ragged: row {self.row(wrong)} of a batch has {lengths[wrong]} {what} "
            f"where the first has {lengths[0]}. Make all equally long in Spark: F.slice cuts, F.array_repeat fills up"
        )


def peel(column: pa.Array, level: Level) -> tuple[pa.Array, tuple[int, ...]]:
    """Take the lists off a column: return its flat values, and the length of the lists at each level."""
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    level.refuse_nulls(column)
    if not is_array(column.type):
        return column, ()
    if types.is_fixed_size_list(column.type):
        length, values = column.type.list_size, column.flatten()
    else:
        offsets = column.offsets.to_numpy()
        length = common_length(offsets, level)
        values = between(column.values, offsets)
    leaves, inner = peel(values, level.inside(length))
    return leaves, (length, *inner)


def common_length(offsets: Array, level: Level, what: str = "values") -> int:
    """Return the one length that all lists have; a FeedError names the first row that differs."""
    if len(offsets) < 2:
        return 0
    lengths = np.diff(offsets)
    level.refuse_ragged(lengths, what)
    return int(lengths[0])


def between(values: pa.Array, offsets: Array) -> pa.Array:
    """Return the values that the offsets of a (sliced) list column span."""
    return values.slice(offsets[0], offsets[-1] - offsets[0]) if len(offsets) else values.slice(0, 0)
