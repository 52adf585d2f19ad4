"""Reads the spool: memory-mapped Arrow IPC files, in their order or permuted, as columns of NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tfos_lab.data.batches import to_numpy
from tfos_lab.data.row_index import RowIndex
from tfos_lab.data.schema import ColumnSpec

Columns = dict[str, np.ndarray]


def read_in_order(path: str, specs: Sequence[ColumnSpec]) -> Iterator[Columns]:
    """Yield a segment's record batches as columns of shape ``(rows, …)``; numbers are views of the mapped file."""
    with pa.memory_map(path) as file:
        segment = pa.ipc.open_file(file)
        for index in range(segment.num_record_batches):
            yield to_numpy(segment.get_batch(index), specs)


def read_shuffled(
    segments: Sequence[tuple[str, int]], specs: Sequence[ColumnSpec], batch_size: int, rng: np.random.Generator
) -> Iterator[Columns]:
    """Yield all rows of all segments once, in a random order, as columns of up to ``batch_size`` rows.

    Rows are gathered from the mapped files, so memory holds one batch at a time.
    """
    batches = [
        segment.get_batch(index)
        for segment in (pa.ipc.open_file(pa.memory_map(path)) for path, _ in segments)
        for index in range(segment.num_record_batches)
    ]
    if not batches:
        return
    rows = RowIndex(batches, specs)
    order = rng.permutation(len(rows))
    for start in range(0, len(order), batch_size):
        yield rows.take(order[start : start + batch_size])
