"""Arrow record batches as dicts of NumPy arrays, and back.

`to_numpy` converts what a node reads, `measure` checks it where the rows are made (in a Spark task), and `to_arrow`
converts what a model returns. Convert a record batch whole (Spark sends 10,000 rows) and cut it afterwards: cutting
returns views, while converting costs some 20 µs per column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tfos_lab.data.convert import convert_column, measure_column
from tfos_lab.data.rows import Array, Batch, count_rows
from tfos_lab.data.schema import ColumnSpec, column_specs, select_columns
from tfos_lab.errors import FeedError


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
    select_columns(batch.schema, [spec.name for spec in specs])
    return {spec.name: convert_column(batch.column(spec.name), spec) for spec in specs}


def measure(batch: pa.RecordBatch, specs: Sequence[ColumnSpec]) -> tuple[ColumnSpec, ...]:
    """Check that a record batch can be converted, and fill in the lengths that only rows tell.

    It raises what `to_numpy` would raise, but where the rows are made (in a Spark task, say), and costs less: strings
    are checked but not converted. Pass the specs that it returns to the next call, and all batches have the same
    lengths.

    Examples
    --------
    >>> specs = (ColumnSpec("x", "number", "float64", (None,)),)
    >>> print(*measure(pa.RecordBatch.from_pydict({"x": [[1.0, 2.0], [3.0, 4.0]]}), specs))
    x: float64 (2,)
    """
    select_columns(batch.schema, [spec.name for spec in specs])
    shapes = [measure_column(batch.column(spec.name), spec) for spec in specs]
    if not batch.num_rows:
        return tuple(specs)
    return tuple(replace(spec, shape=shape) for spec, shape in zip(specs, shapes, strict=True))


def resolve(specs: Iterable[ColumnSpec], batch: Mapping[str, Array]) -> tuple[ColumnSpec, ...]:
    """Fill in the lengths that only rows tell, from a batch; an empty batch changes nothing.

    Examples
    --------
    >>> specs = (ColumnSpec("x", "number", "float64", (None,)),)
    >>> print(*resolve(specs, {"x": np.zeros((5, 784))}))
    x: float64 (784,)
    """
    if not batch or not count_rows(batch):
        return tuple(specs)
    return tuple(spec if spec.is_fixed else replace(spec, shape=batch[spec.name].shape[1:]) for spec in specs)


def to_arrow(batch: Mapping[str, Array]) -> pa.RecordBatch:
    """Convert arrays, such as a model's results, to a record batch.

    A scalar per row becomes a value, anything else a (nested) array. Objects and NumPy strings become strings, or
    binary if the first is ``bytes``. A FeedError tells of arrays of unequal lengths, and of values that become no
    column.
    """
    scalars = [name for name, values in batch.items() if np.ndim(values) == 0]
    if scalars:
        raise FeedError(reason=f"results need one value per row, but these are single values: {', '.join(scalars)}")
    count_rows(batch)
    return pa.RecordBatch.from_pydict({name: _as_found(name, values) for name, values in batch.items()})


def _as_found(name: str, values: Array) -> pa.Array:
    try:
        return _arrow_column(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        kind = np.asarray(values).dtype
        raise FeedError(reason=f"results in '{name}', of dtype {kind}, become no column of Spark: {error}") from error


def _arrow_column(values: Array) -> pa.Array:
    values = np.asarray(values)
    shape = values.shape
    column = pa.array(np.ascontiguousarray(values).reshape(-1))
    # From the inside out: all lists of a level have the same length.
    for level in range(len(shape) - 1, 0, -1):
        column = _lists_of(column, length=shape[level], count=int(np.prod(shape[:level])))
    return column


def _lists_of(values: pa.Array, *, length: int, count: int) -> pa.Array:
    # Spark has no lists of fixed size, and its offsets are int32.
    if length * count > np.iinfo(np.int32).max:
        raise FeedError(reason=f"{count} arrays of {length} values are too many for one batch: return smaller batches")
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * np.int32(length))
    return pa.ListArray.from_arrays(offsets, values)
