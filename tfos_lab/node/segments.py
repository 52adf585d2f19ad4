"""Reads the spool: memory-mapped Arrow IPC files, in their order or permuted, as columns of NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tfos_lab.data.batches import to_numpy
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
    tables = [pa.ipc.open_file(pa.memory_map(path)).read_all() for path, _ in segments]
    if not tables:
        return
    table = pa.concat_tables(tables)
    order = rng.permutation(table.num_rows)
    for start in range(0, len(order), batch_size):
        rows = table.take(order[start : start + batch_size]).combine_chunks()
        for batch in rows.to_batches():
            yield to_numpy(batch, specs)
