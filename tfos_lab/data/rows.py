"""Rows as NumPy arrays: what a feed does with a dict of column name to array ``(rows, *shape)``.

All arrays of such a dict have the same number of rows. Slicing returns views; `join_rows` and `fill_to` copy,
because they have to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tfos_lab.data.schema import ColumnSpec
from tfos_lab.errors import FeedError

Array = np.ndarray[Any, Any]
# Column name to (rows, *shape).
Batch = dict[str, Array]


def count_rows(batch: Mapping[str, Array]) -> int:
    """Count a batch's rows; a FeedError names the columns if they differ."""
    counts = {name: len(values) for name, values in batch.items()}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"'{name}' {count}" for name, count in counts.items())
        raise FeedError(reason=f"the columns of a batch have unequal numbers of rows: {shown}")
    return next(iter(counts.values()), 0)


def slice_rows(batch: Mapping[str, Array], start: int, stop: int) -> Batch:
    """Return rows ``[start, stop)`` of a batch, as views."""
    return {name: values[start:stop] for name, values in batch.items()}


def join_rows(batches: Sequence[Mapping[str, Array]]) -> Batch:
    """Join batches of the same columns, one at least; a single batch is returned without a copy."""
    if len(batches) == 1:
        return dict(batches[0])
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def fill_to(batch: Mapping[str, Array], rows: int) -> Batch:
    """Fill a batch up to ``rows`` rows with copies of its last row: values that any model or decoder accepts.

    A batch that is full already is returned without a copy.

    Examples
    --------
    >>> fill_to({"x": np.array([7, 8])}, 4)
    {'x': array([7, 8, 8, 8])}
    """
    missing = rows - count_rows(batch)
    if not missing:
        return dict(batch)
    return {name: np.concatenate([values, values[-1:].repeat(missing, axis=0)]) for name, values in batch.items()}


def zeros(specs: Iterable[ColumnSpec], rows: int) -> Batch:
    """Make rows of zeros, for a node that needs filler rows and has none to copy.

    Strings are empty, and so is what has an unknown length.
    """
    return {
        spec.name: np.full(
            (rows, *(size or 0 for size in spec.shape)), b"" if spec.dtype == "object" else 0, spec.dtype
        )
        for spec in specs
    }


def row_bytes(specs: Iterable[ColumnSpec]) -> int:
    """Estimate the memory of a row; strings count as their references."""
    sizes = (np.dtype(spec.dtype).itemsize * int(np.prod([size or 1 for size in spec.shape])) for spec in specs)
    return max(1, sum(sizes))
