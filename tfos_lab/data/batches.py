"""Arrow record batches as dicts of NumPy arrays, and back.

`to_numpy` converts what a node reads, `measure` checks it where the rows are made (in a Spark task), and `to_arrow`
converts what a model returns. Convert a record batch whole (Spark sends 10,000 rows) and cut it afterwards: cutting
returns views, while converting costs some 20 µs per column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyarrow import compute, types

from tfos_lab.data.rows import Array, Batch, count_rows
from tfos_lab.data.schema import ColumnSpec, column_specs
from tfos_lab.data.type_table import find_rule, is_array
from tfos_lab.errors import FeedError
from tfos_lab.texts import format_count


def to_numpy(batch: pa.RecordBatch, specs: Sequence[ColumnSpec] | None = None) -> Batch:
    """Convert a record batch's columns to arrays: all by the table of `tfos_lab.data.type_table`, or by specs.

    Returns column to ``(rows, *spec.shape)`` of ``spec.dtype``. Where no cast is needed, numbers are read-only views of
    the batch's memory and keep it alive; strings are objects of ``bytes``. A FeedError for nulls, ragged rows and rows
    of another shape than announced names the column and the first such row.

    Examples
    --------
    >>> batch = pa.RecordBatch.from_pydict({"x": [[1.0, 2.0], [3.0, 4.0]], "name": ["a", "b"]})
    >>> to_numpy(batch)
    {'x': array([[1., 2.],
           [3., 4.]]), 'name': array([b'a', b'b'], dtype=object)}
    """
    if specs is None:
        specs = column_specs(batch.schema)
    return {spec.name: convert_column(batch.column(spec.name), spec) for spec in specs}


def measure(batch: pa.RecordBatch, specs: Sequence[ColumnSpec]) -> tuple[ColumnSpec, ...]:
    """Check that a record batch can be converted, and fill in the lengths that only the rows show.

    It raises what `to_numpy` would raise, but where the rows are made (in a Spark task, say), and costs less: strings
    are checked but not converted. Pass the specs that it returns to the next call, and all batches have the same
    lengths.

    Examples
    --------
    >>> specs = (ColumnSpec("x", "number", "float64", (None,)),)
    >>> print(*measure(pa.RecordBatch.from_pydict({"x": [[1.0, 2.0], [3.0, 4.0]]}), specs))
    x: float64 (2,)
    """
    shapes = [measure_column(batch.column(spec.name), spec) for spec in specs]
    if not batch.num_rows:
        return tuple(specs)
    return tuple(replace(spec, shape=shape) for spec, shape in zip(specs, shapes, strict=True))


def to_arrow(batch: Mapping[str, Array]) -> pa.RecordBatch:
    """Convert arrays, such as a model's results, to a record batch.

    A scalar per row becomes a value, anything else a (nested) array. Objects and NumPy strings become strings, or
    binary if the first is ``bytes``. Raises FeedError for arrays of unequal lengths, and for values that cannot become
    a column.
    """
    scalars = [name for name, values in batch.items() if np.ndim(values) == 0]
    if scalars:
        raise FeedError(reason=f"results need one value per row, but these are single values: {', '.join(scalars)}")
    count_rows(batch)
    columns = {}
    for name, values in batch.items():
        try:
            columns[name] = nested_lists(np.asarray(values))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            kind = np.asarray(values).dtype
            reason = f"results in '{name}', of dtype {kind}, become no column of Spark: {error}"
            raise FeedError(reason=reason) from error
    return pa.RecordBatch.from_pydict(columns)


def nested_lists(values: Array) -> pa.Array:
    """Return an array of any number of dimensions as a column: lists within lists around its values."""
    column = pa.array(np.ascontiguousarray(values).reshape(-1))
    # From the inside out: all lists of a level have the same length.
    for level in range(values.ndim - 1, 0, -1):
        length, count = values.shape[level], int(np.prod(values.shape[:level]))
        # Spark has no lists of fixed size, and its offsets are int32.
        if length * count > np.iinfo(np.int32).max:
            raise FeedError(
                reason=f"{count} arrays of {length} values are too many for one batch: return smaller batches"
            )
        offsets = pa.array(np.arange(count + 1, dtype=np.int32) * np.int32(length))
        column = pa.ListArray.from_arrays(offsets, column)
    return column


# ---- columns ---------------------------------------------------------------------------------------------------------

# As arrays ``(rows, *shape)``: without Python per value, and without a copy where memory allows. The lists are taken
# off a column (`peel`); the flat values that are left are converted by the table of types, and get the dtype and shape
# that the column's spec announces.


def convert_column(column: pa.Array, spec: ColumnSpec) -> Array:
    """Convert one column of a batch, which may be a slice, to what its spec announces.

    Returns ``(rows, *shape)`` of ``spec.dtype``; a read-only view of the column's memory where that has the right
    layout. A FeedError for nulls, rows of unequal length, rows that do not have the spec's shape, and a column of
    another type.
    """
    _check_kind(column, spec)
    level = Level(spec.name, rows=len(column))
    leaves, lengths = peel(column, level)
    if spec.kind == "vector":
        flat, length = vectors(leaves, level)
        lengths = (*lengths, length)
    else:
        try:
            flat = CONVERT[spec.kind](leaves)
        except pa.ArrowInvalid as error:  # A time, say, that microseconds cannot reach in int64.
            raise FeedError(reason=f"column '{spec.name}' does not become {spec.tf_dtype}: {error}") from error
    if flat.dtype != spec.dtype:
        flat = flat.astype(spec.dtype)
    return flat.reshape(len(column), *_row_shape(len(column), lengths, spec))


def measure_column(column: pa.Array, spec: ColumnSpec) -> tuple[int, ...]:
    """Find the shape of a column's rows, and raise what `convert_column` would, without converting strings."""
    if spec.dtype != "object":
        return tuple(convert_column(column, spec).shape[1:])
    _check_kind(column, spec)
    _, lengths = peel(column, Level(spec.name, rows=len(column)))
    return _row_shape(len(column), lengths, spec)


def _check_kind(column: pa.Array, spec: ColumnSpec) -> None:
    rule, _ = find_rule(column.type)
    if rule is None or rule.kind != spec.kind:
        raise FeedError(reason=f"column '{spec.name}' arrives as {column.type}, but {spec.kind} values were announced")


def _row_shape(rows: int, lengths: tuple[int, ...], spec: ColumnSpec) -> tuple[int, ...]:
    """Return the shape of a row; a FeedError if the rows differ from the shape that was announced."""
    if rows == 0:
        return tuple(size or 0 for size in spec.shape)
    if len(lengths) != len(spec.shape) or any(
        known not in (None, size) for known, size in zip(spec.shape, lengths, strict=True)
    ):
        raise FeedError(
            reason=f"column '{spec.name}' has rows of shape {lengths} where {spec.shape} was announced. "
            "Make all rows of the DataFrame equally long"
        )
    return lengths


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
    "date": lambda values: _numbers(values.cast(pa.date32()).view(pa.int32())),
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


# ---- rows in a random order ------------------------------------------------------------------------------------------


def shuffled(
    batches: Sequence[pa.RecordBatch], specs: Sequence[ColumnSpec], at_once: int, rng: np.random.Generator
) -> Iterator[Batch]:
    """Yield all rows once, in a random order, as columns of up to ``at_once`` rows.

    Arrow's own ``Table.take`` is slow on list columns of many chunks: batches of 64 random rows out of 60,000 MNIST
    images took it to 1,900 rows/s; gathered per chunk as NumPy views, they reach 500,000 rows/s (seen on pyarrow 26).

    Numbers are kept as views of the batches' memory (of a mapped file, say). Strings and vectors are converted when
    they are taken, so that they are not all in memory at once. The shapes of the specs are fully known
    (`measure`).
    """
    batches = [batch for batch in batches if batch.num_rows]
    chunks = [{spec.name: _kept(batch.column(spec.name), spec) for spec in specs} for batch in batches]
    starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
    order = rng.permutation(starts[-1])
    for start in range(0, len(order), at_once):
        rows = order[start : start + at_once]
        taken = {spec.name: np.empty((len(rows), *(size or 0 for size in spec.shape)), spec.dtype) for spec in specs}
        chunk_of = np.searchsorted(starts, rows, side="right") - 1
        for chunk in np.unique(chunk_of):
            there = np.flatnonzero(chunk_of == chunk)
            within = rows[there] - starts[chunk]
            for spec in specs:
                column = chunks[chunk][spec.name]
                if isinstance(column, pa.Array):
                    taken[spec.name][there] = convert_column(column.take(pa.array(within)), spec)
                else:
                    taken[spec.name][there] = column[within]
        yield taken


def _kept(column: pa.Array, spec: ColumnSpec) -> Array | pa.Array:
    """Return a column as an array where that costs (next to) nothing; casts wait until rows are taken."""
    if spec.dtype == "object" or spec.kind == "vector":
        return column
    if spec.kind == "binary":
        return convert_column(column, spec)
    rule, _ = find_rule(column.type)
    return convert_column(column, spec if rule is None else replace(spec, dtype=rule.dtype))
