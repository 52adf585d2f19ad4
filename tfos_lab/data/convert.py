"""Arrow columns as NumPy arrays ``(rows, *shape)``: without Python per value, and without a copy where memory allows.

`tfos_lab.data.nesting` takes the lists off a column, `tfos_lab.data.leaves` converts the flat values that are left, and
this module gives them the dtype and shape that the column's spec announces.
"""

from __future__ import annotations

import pyarrow as pa

from tfos_lab.data.leaves import CONVERT, vectors
from tfos_lab.data.nesting import Level, peel
from tfos_lab.data.rows import Array
from tfos_lab.data.schema import ColumnSpec, shape_text
from tfos_lab.data.type_table import find_rule
from tfos_lab.errors import FeedError


def convert_column(column: pa.Array, spec: ColumnSpec) -> Array:
    """Convert one column of a batch.

    Parameters
    ----------
    column : pyarrow.Array
        Of any type that the table has a rule for; may be a slice.
    spec : ColumnSpec
        What it is to become.

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
    """Give the values the dtype and shape that were announced."""
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
