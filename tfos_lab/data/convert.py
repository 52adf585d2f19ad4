"""Arrow columns as NumPy arrays ``(rows, *shape)``: without Python per value, and without a copy where memory allows.

Lists are peeled off from the outside in: their offsets show whether all rows are equally long, and what lies inside is
a flat column again. The leaves are then converted by the kind that `tfos_lab.data.type_table` gives them.
Only `tfos_lab.data.batches` calls this module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute, types

from tfos_lab.data.schema import ColumnSpec, shape_text
from tfos_lab.data.type_table import find_rule, is_array
from tfos_lab.errors import FeedError

Array = np.ndarray[Any, Any]


def convert_column(column: pa.Array, spec: ColumnSpec) -> Array:
    """Convert one column of a batch.

    Parameters
    ----------
    column : pyarrow.Array
        Of any type that has a rule, sliced or not.
    spec : ColumnSpec
        What it shall become.

    Returns
    -------
    numpy.ndarray
        ``(rows, *shape)`` of ``spec.dtype``; a read-only view of the column's memory where that has the right layout.

    Raises
    ------
    FeedError
        For nulls, rows of unequal length, rows that do not have the spec's shape, and a column of another type.
    """
    flat, seen = _convert(column, spec)
    return _shaped(flat, seen, spec)


def measure_column(column: pa.Array, spec: ColumnSpec) -> tuple[int, ...]:
    """Find the shape of a column's rows, and raise what `convert_column` would; makes no objects of strings."""
    if spec.dtype != "object":
        return tuple(convert_column(column, spec).shape[1:])
    _check_kind(column, spec)
    _, lengths = _peel(column, _Place(spec.name, rows=len(column)))
    return _row_shape((len(column), *lengths), spec)


def _check_kind(column: pa.Array, spec: ColumnSpec) -> None:
    rule, _ = find_rule(column.type)
    if rule is None or rule.kind != spec.kind:
        raise FeedError(reason=f"column '{spec.name}' arrives as {column.type}, but {spec.kind} values were announced")


def _convert(column: pa.Array, spec: ColumnSpec) -> tuple[Array, tuple[int, ...]]:
    """Convert the values, one after another, and find the shape ``(rows, ...)`` that they have."""
    _check_kind(column, spec)
    place = _Place(spec.name, rows=len(column))
    leaves, lengths = _peel(column, place)
    if spec.kind == "vector":
        flat, length = _vectors(leaves, place)
        lengths = (*lengths, length)
    elif spec.kind == "binary" and spec.dtype != "object":
        flat, length = _raw_bytes(leaves, spec, place)
        lengths = (*lengths, length)
    else:
        flat = _flat(leaves, spec)
    return flat, (len(column), *lengths)


@dataclass(frozen=True)
class _Place:
    """Where in a column's nesting a flat array lies, so that errors name the row."""

    name: str
    rows: int
    per_row: int = 1  # values of the flat array for each row
    depth: int = 0

    def inside(self, length: int) -> _Place:
        return _Place(self.name, self.rows, self.per_row * length, self.depth + 1)

    def row(self, position: int) -> int:
        return position // max(self.per_row, 1)

    def refuse_nulls(self, values: pa.Array) -> None:
        if not values.null_count:
            return
        first = self.row(int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))))
        inside = " inside its arrays" if self.depth else ""
        advice = (
            f"replace them: F.transform('{self.name}', lambda x: F.coalesce(x, F.lit(0)))"
            if self.depth
            else f"fill them with df.fillna(...), or leave the rows out with df.dropna(subset=['{self.name}'])"
        )
        raise FeedError(
            reason=f"column '{self.name}' has {values.null_count} nulls{inside} in a batch of {self.rows} rows "
            f"(the first in row {first}): {advice}"
        )

    def refuse_ragged(self, lengths: Array, what: str = "values") -> None:
        wrong = int(np.argmax(lengths != lengths[0]))
        if lengths[wrong] == lengths[0]:
            return
        raise FeedError(
            reason=f"column '{self.name}' is ragged: row {self.row(wrong)} of a batch has {lengths[wrong]} {what} "
            f"where the first has {lengths[0]}. Make all equally long in Spark: F.slice cuts, F.array_repeat fills up"
        )


def _peel(column: pa.Array, place: _Place) -> tuple[pa.Array, tuple[int, ...]]:
    """Take the lists off a column: its flat leaves, and the one length that each level of lists has."""
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    place.refuse_nulls(column)
    if not is_array(column.type):
        return column, ()
    if types.is_fixed_size_list(column.type):
        length, values = column.type.list_size, column.flatten()
    else:
        offsets = column.offsets.to_numpy()
        length = _common_length(offsets, place)
        values = _between(column.values, offsets)
    leaves, inner = _peel(values, place.inside(length))
    return leaves, (length, *inner)


def _common_length(offsets: Array, place: _Place, what: str = "values") -> int:
    if len(offsets) < 2:
        return 0
    lengths = np.diff(offsets)
    place.refuse_ragged(lengths, what)
    return int(lengths[0])


def _flat(leaves: pa.Array, spec: ColumnSpec) -> Array:
    try:
        return _CONVERT[spec.kind](leaves)
    except pa.ArrowInvalid as error:  # A time, say, that microseconds cannot reach in int64.
        raise FeedError(reason=f"column '{spec.name}' does not become {spec.tf_dtype}: {error}") from error


def _shaped(flat: Array, seen: tuple[int, ...], spec: ColumnSpec) -> Array:
    """Give the values the dtype and shape that were announced."""
    if flat.dtype != spec.dtype:
        flat = flat.astype(spec.dtype)
    return flat.reshape(seen[0], *_row_shape(seen, spec))


def _row_shape(seen: tuple[int, ...], spec: ColumnSpec) -> tuple[int, ...]:
    """Find the shape of a row, or say how the rows differ from the shape that was announced."""
    rows, inner = seen[0], seen[1:]
    if rows == 0:
        return tuple(size or 0 for size in spec.shape)
    shape = inner
    if len(inner) == len(spec.shape):
        fits = all(known in (None, size) for known, size in zip(spec.shape, inner, strict=True))
    else:
        # Another number of dimensions was asked for (`ColumnSpec.recast`): the same values in another layout.
        shape = tuple(size for size in spec.shape if size is not None)
        fits = spec.is_fixed and prod(shape) == prod(inner)
    if not fits:
        raise FeedError(
            reason=f"column '{spec.name}' has rows of shape {shape_text(inner)} where {shape_text(spec.shape)} was "
            "announced. Make all rows of the DataFrame equally long"
        )
    return shape


def _numbers(values: pa.Array) -> Array:
    numbers: Array = values.to_numpy(zero_copy_only=False)
    return numbers


def _decimals(values: pa.Array) -> Array:
    """Round to the nearest double, as Spark's cast does, up to 15 digits; beyond, the last bit may differ."""
    kind = values.type
    if types.is_decimal128(kind) and kind.precision <= 15 and kind.scale >= 0 and len(values):
        # Arrow's cast multiplies by 0.001, say, which is off by a bit. The lower halves hold all 15 digits.
        halves = np.frombuffer(values.buffers()[1], np.int64, 2 * len(values), 16 * values.offset)
        doubles: Array = halves[::2] / 10.0**kind.scale
        return doubles
    return _numbers(values.cast(pa.float64()))


def _strings(values: pa.Array) -> Array:
    """Make objects of bytes, the form in which TensorFlow keeps strings; NumPy has no cheaper one for any length."""
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


def _vectors(values: pa.Array, place: _Place) -> tuple[Array, int]:
    """Lay out spark.ml vectors densely: dense ones hold ``values``, sparse ones ``size`` and ``indices`` as well."""
    rows = len(values)
    if rows == 0:
        return np.empty(0, np.float64), 0
    is_dense = values.field("type").to_numpy(zero_copy_only=False) == 1
    stored, numbers, offsets = _list_parts(values.field("values"))
    if is_dense.all():
        length = _common_length(offsets, place, "entries")
        return numbers, length
    sizes = np.where(is_dense, stored, compute.fill_null(values.field("size"), 0).to_numpy())
    place.refuse_ragged(sizes, "entries")
    length = int(sizes[0])
    row_of = np.repeat(np.arange(rows), stored)
    entry_of = np.arange(len(numbers)) - np.repeat(offsets[:-1] - offsets[0], stored)
    # Indices are there for the sparse rows only, in the order of their values.
    _, indices, _ = _list_parts(values.field("indices"))
    entry_of[~is_dense[row_of]] = indices
    dense = np.zeros((rows, length), np.float64)
    dense[row_of, entry_of] = numbers
    return dense.reshape(-1), length


def _list_parts(lists: pa.Array) -> tuple[Array, Array, Array]:
    """Take a list column apart: length of each row (0 for null), all values, offsets."""
    if lists.null_count:
        lists = compute.fill_null(lists, pa.scalar([], lists.type))
    offsets = lists.offsets.to_numpy()
    return np.diff(offsets), _between(lists.values, offsets).to_numpy(zero_copy_only=False), offsets


def _between(values: pa.Array, offsets: Array) -> pa.Array:
    """Take the values that a (sliced) list column's own offsets span."""
    return values.slice(offsets[0], offsets[-1] - offsets[0]) if len(offsets) else values.slice(0, 0)


def _raw_bytes(values: pa.Array, spec: ColumnSpec, place: _Place) -> tuple[Array, int]:
    """Read the bytes of binary values as numbers of the spec's dtype, in place."""
    if types.is_fixed_size_binary(values.type):
        length = values.type.byte_width
        start, memory = values.offset * length, values.buffers()[1]
    else:
        width = np.int64 if types.is_large_binary(values.type) else np.int32
        offsets = np.frombuffer(values.buffers()[1], width)[values.offset : values.offset + len(values) + 1]
        length = _common_length(offsets, place, "bytes")
        start, memory = int(offsets[0]) if len(offsets) else 0, values.buffers()[2]
    item_bytes = np.dtype(spec.dtype).itemsize
    if length % item_bytes:
        raise FeedError(
            reason=f"column '{spec.name}' has {length} bytes per row, which are no whole number of {spec.dtype} values"
        )
    count = length * len(values)
    raw = np.frombuffer(memory, np.uint8, count, start) if count else np.empty(0, np.uint8)
    return raw.view(spec.dtype), length // item_bytes


_CONVERT: dict[str, Callable[[pa.Array], Array]] = {
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
