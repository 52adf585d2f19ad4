"""Runs on the executors: scores batches of rows by explicit names of inputs and outputs, for `scoring.mapped`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import pyarrow as pa

from tfos_lab.data.batches import to_arrow, to_numpy
from tfos_lab.data.rows import Array
from tfos_lab.errors import ConfigError
from tfos_lab.scoring.description import ModelSource, Tensor, describe
from tfos_lab.scoring.model import Outputs, call, load_once

# Spark's type of a column → the dtype of its values, and as they are for bytes.
_DTYPES = {"double": "float64", "bigint": "int64", "boolean": "bool", "binary": "object"}


def score_batches(
    batches: Iterable[pa.RecordBatch],
    source: Mapping[str, Any],
    inputs: Mapping[str, str],
    outputs: Sequence[tuple[str, str, str]],
    batch_size: int,
) -> Iterator[pa.RecordBatch]:
    """Yield a batch of outputs for each ``batch_size`` rows.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
        The rows of one partition.
    source : mapping
        Fields of a `ModelSource`.
    inputs : mapping of str to str
        Column to the model's input.
    outputs : sequence of (str, str, str)
        For each output wanted: its name, its column, and the Spark type of the column's values.
    batch_size : int
        Number of rows to score at once.

    Raises
    ------
    ConfigError, FeedError
        For rows that do not fit the model.
    """
    for batch in _of_size(batches, batch_size):
        # Here, so that a partition without rows loads nothing; the model is loaded once for the worker.
        model = load_once(ModelSource(**source), {})
        takes = {tensor.name: tensor for tensor in describe(model).inputs}
        columns = to_numpy(batch)
        arrays = {name: _fitted(columns[column], takes.get(name), column) for column, name in inputs.items()}
        found = call(model, arrays)
        yield to_arrow({column: _column(found, name, leaf, batch.num_rows) for name, column, leaf in outputs})


def _of_size(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Cut batches of any size into batches of ``rows`` rows; the last may have fewer."""
    held: list[pa.RecordBatch] = []
    missing = rows
    for batch in batches:
        start = 0
        while batch.num_rows - start >= missing:
            yield _joined([*held, batch.slice(start, missing)])
            start += missing
            held, missing = [], rows
        if start < batch.num_rows:
            held.append(batch.slice(start))
            missing -= batch.num_rows - start
    if held:
        yield _joined(held)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _fitted(array: Array, tensor: Tensor | None, column: str) -> Array:
    """Give a column the dtype and the shape that the model's input has: Spark's arrays are often flat."""
    if tensor is None:
        return array
    if array.dtype != object:
        array = array.astype(tensor.dtype)
    wanted, shape = tensor.shape, array.shape[1:]
    if wanted is None or _fits(shape, wanted):
        return array
    size = prod(length for length in wanted if length is not None)
    open_lengths = wanted.count(None)
    if prod(shape) == size or (open_lengths == 1 and size and prod(shape) % size == 0):
        return array.reshape(
            len(array), *(-1 if length is None and open_lengths == 1 else length or 1 for length in wanted)
        )
    raise ConfigError(
        [f"column '{column}' has rows of shape {shape}, but the model's input '{tensor.name}' takes {wanted}"]
    )


def _fits(shape: Sequence[int], wanted: Sequence[int | None]) -> bool:
    return len(shape) == len(wanted) and all(length in (None, size) for size, length in zip(shape, wanted, strict=True))


def _column(found: Outputs, name: str, leaf: str, rows: int) -> Array:
    values = found[name]
    counted = len(values) if values.ndim else "no"
    if counted != rows:
        raise ConfigError([f"the model's output '{name}' has {counted} rows for {rows} rows of input"])
    return values.astype(_DTYPES[leaf])
