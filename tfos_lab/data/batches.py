"""Batches of rows: Arrow record batches as dicts of NumPy arrays, and what a feed does with such dicts.

A batch here is a dict of column name to array ``(rows, *shape)``, all with the same number of rows. The feed reads a
node's record batches with `to_numpy`, learns the lengths of arrays from the first with `resolve`, cuts the batches that
the user asked for with `rebatch`, and fills up the last with `fill_to` (or makes whole empty ones with `zeros`).
A record batch is best converted whole (Spark sends 10,000 rows) and then cut: cutting is a view, converting costs some
20 µs per column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tfos_lab.data.convert import Array, convert_column, measure_column
from tfos_lab.data.schema import ColumnSpec, column_specs, select_columns
from tfos_lab.errors import ConfigError, FeedError

Batch = dict[str, Array]


def to_numpy(batch: pa.RecordBatch, specs: Sequence[ColumnSpec] | None = None) -> Batch:
    """Convert a record batch's columns to arrays.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        Whole or sliced.
    specs : sequence of ColumnSpec, optional
        Which columns, and what they become; by default all, by the table of `tfos_lab.data.type_table`.

    Returns
    -------
    dict of str to numpy.ndarray
        Column to ``(rows, *spec.shape)`` of ``spec.dtype``. Numbers are read-only views of the batch's memory where no
        cast is needed, so they keep it alive; strings are objects of ``bytes``.

    Raises
    ------
    FeedError
        For nulls, ragged rows and rows of another shape than announced, naming the column and the first such row.

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


def to_arrow(batch: Mapping[str, Array], schema: pa.Schema | None = None) -> pa.RecordBatch:
    """Convert arrays to a record batch: the way back, for what a model returns.

    Parameters
    ----------
    batch : mapping of str to numpy.ndarray
        Column to ``(rows, *shape)``: scalars per row become values, anything else (nested) arrays. Objects and NumPy
        strings become strings, or binary where the first is ``bytes``.
    schema : pyarrow.Schema, optional
        The columns and types wanted, such as a DataFrame announces; by default those of the arrays.

    Returns
    -------
    pyarrow.RecordBatch

    Raises
    ------
    FeedError
        For arrays of unequal lengths, columns that the schema has and the batch has not, and values that do not fit.
    """
    scalars = [name for name, values in batch.items() if np.ndim(values) == 0]
    if scalars:
        raise FeedError(reason=f"results need one value per row, but these are single values: {', '.join(scalars)}")
    count_rows(batch)
    if schema is None:
        return pa.RecordBatch.from_pydict({name: _as_found(name, values) for name, values in batch.items()})
    missing = [name for name in schema.names if name not in batch]
    if missing:
        raise FeedError(reason=f"the results lack the columns {', '.join(missing)}; they have {', '.join(batch)}")
    columns = []
    for field in schema:
        try:
            columns.append(_arrow_column(batch[field.name]).cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise FeedError(reason=f"results in '{field.name}' do not become {field.type}: {error}") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def resolve(specs: Iterable[ColumnSpec], batch: Mapping[str, Array]) -> tuple[ColumnSpec, ...]:
    """Fill in the lengths that only rows tell, from a batch that has some; an empty batch changes nothing.

    Examples
    --------
    >>> specs = (ColumnSpec("x", "number", "float64", (None,)),)
    >>> print(*resolve(specs, {"x": np.zeros((5, 784))}))
    x: float64 (784,)
    """
    if not batch or not count_rows(batch):
        return tuple(specs)
    return tuple(spec if spec.is_fixed else replace(spec, shape=batch[spec.name].shape[1:]) for spec in specs)


def measure(batch: pa.RecordBatch, specs: Sequence[ColumnSpec]) -> tuple[ColumnSpec, ...]:
    """Check that a record batch can be converted, and fill in the lengths that only rows tell.

    It raises what `to_numpy` would, at the place where the rows are made (a Spark task, say), and costs less: strings
    are looked at but not converted. Give the specs that it returns to the next batch, and all have the same lengths.

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


def count_rows(batch: Mapping[str, Array]) -> int:
    """Count a batch's rows; a FeedError names the columns where they differ."""
    counts = {name: len(values) for name, values in batch.items()}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"'{name}' {count}" for name, count in counts.items())
        raise FeedError(reason=f"the columns of a batch have unequal numbers of rows: {shown}")
    return next(iter(counts.values()), 0)


def slice_rows(batch: Mapping[str, Array], start: int, stop: int) -> Batch:
    """Cut rows out of a batch, as views."""
    return {name: values[start:stop] for name, values in batch.items()}


def take_rows(batch: Mapping[str, Array], rows: Array) -> Batch:
    """Copy rows out of a batch by their numbers (int array), in that order."""
    return {name: values.take(rows, axis=0) for name, values in batch.items()}


def join_rows(batches: Sequence[Mapping[str, Array]]) -> Batch:
    """Join batches of the same columns; a single one is given back as it is, without a copy."""
    if not batches:
        raise ValueError("no batches to join")
    if len(batches) == 1:
        return dict(batches[0])
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def fill_to(batch: Mapping[str, Array], rows: int) -> Batch:
    """Fill a batch up to so many rows with copies of its last row: values that any model and decoder takes.

    A batch that has them already is given back without a copy.

    Examples
    --------
    >>> fill_to({"x": np.array([7, 8])}, 4)
    {'x': array([7, 8, 8, 8])}
    """
    have = count_rows(batch)
    if not 0 < have <= rows:
        raise ValueError(f"a batch of {have} rows cannot be filled up to {rows}")
    if have == rows:
        return dict(batch)
    return {name: np.concatenate([values, values[-1:].repeat(rows - have, axis=0)]) for name, values in batch.items()}


def zeros(specs: Iterable[ColumnSpec], rows: int) -> Batch:
    """Make rows that hold nothing, for a node that has rows to fill up but none to copy.

    Parameters
    ----------
    specs : iterable of ColumnSpec
        With shapes that are fully known (`resolve`).
    rows : int
        How many.

    Returns
    -------
    dict of str to numpy.ndarray
        Column to ``(rows, *spec.shape)``: numbers are 0, strings empty.
    """
    specs = tuple(specs)
    unknown = [f"{spec}: the shape of a row has to be known to make empty ones" for spec in specs if not spec.is_fixed]
    if unknown:
        raise ConfigError(unknown)
    return {spec.name: _blank((rows, *(size or 0 for size in spec.shape)), spec.dtype) for spec in specs}


def rebatch(batches: Iterable[Mapping[str, Array]], rows: int) -> Iterator[Batch]:
    """Cut a stream of batches of any size into batches of ``rows`` rows each.

    Rows keep their order; the last batch may have fewer of them, and is never empty. Only batches that span two of the
    incoming ones are copied, the others are views.

    Examples
    --------
    >>> [batch["x"].tolist() for batch in rebatch([{"x": np.arange(3)}, {"x": np.arange(3, 7)}], 2)]
    [[0, 1], [2, 3], [4, 5], [6]]
    """
    if rows < 1:
        raise ValueError(f"batches need at least one row, not {rows}")
    held: list[Batch] = []
    missing = rows
    for batch in batches:
        total, start = count_rows(batch), 0
        while start < total:
            stop = min(total, start + missing)
            held.append(slice_rows(batch, start, stop))
            missing -= stop - start
            start = stop
            if not missing:
                yield join_rows(held)
                held, missing = [], rows
    if held:
        yield join_rows(held)


def in_multiples(batches: Iterable[Mapping[str, Array] | None], rows: int, most: int) -> Iterator[Batch | None]:
    """Cut a stream of batches of any size into pieces of whole multiples of ``rows`` rows, at most ``most`` rows each.

    Rows keep their order; only the last piece may have fewer than ``rows`` of them. Fewer, larger pieces cost less than
    `rebatch`, and almost all are views. None, by which a stream says that it has nothing yet, is passed on.

    Examples
    --------
    >>> [batch["x"].tolist() for batch in in_multiples([{"x": np.arange(3)}, {"x": np.arange(3, 10)}], 2, 4)]
    [[0, 1], [2, 3], [4, 5, 6, 7], [8, 9]]
    """
    held: list[Batch] = []
    missing = rows
    for batch in batches:
        if batch is None:
            yield None
            continue
        total, start = count_rows(batch), 0
        if held:
            start = min(total, missing)
            held.append(slice_rows(batch, 0, start))
            missing -= start
            if not missing:
                yield join_rows(held)
                held, missing = [], rows
        while total - start >= rows:
            stop = start + min((total - start) // rows * rows, max(rows, most // rows * rows))
            yield slice_rows(batch, start, stop)
            start = stop
        if start < total:
            held.append(slice_rows(batch, start, total))
            missing -= total - start
    if held:
        yield join_rows(held)


def row_bytes(specs: Iterable[ColumnSpec]) -> int:
    """Estimate the memory that a row takes; strings count as their references."""
    sizes = (np.dtype(spec.dtype).itemsize * int(np.prod([size or 1 for size in spec.shape])) for spec in specs)
    return max(1, sum(sizes))


def _blank(shape: tuple[int, ...], dtype: str | np.dtype) -> Array:
    if np.dtype(dtype) == object:
        return np.full(shape, b"", object)
    return np.zeros(shape, dtype)


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
    # From the inside out: each level of lists has one length for all.
    for level in range(len(shape) - 1, 0, -1):
        column = _lists_of(column, length=shape[level], count=int(np.prod(shape[:level])))
    return column


def _lists_of(values: pa.Array, *, length: int, count: int) -> pa.Array:
    # Spark knows no lists of fixed size, and its offsets are int32.
    if length * count > np.iinfo(np.int32).max:
        raise FeedError(reason=f"{count} arrays of {length} values are too many for one batch: return smaller batches")
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * np.int32(length))
    return pa.ListArray.from_arrays(offsets, values)
