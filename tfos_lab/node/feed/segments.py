"""Reads the spool: memory-mapped Arrow IPC files, in their order or permuted, as columns of NumPy arrays."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from tfos_lab.data.batches import to_numpy
from tfos_lab.data.row_index import RowIndex
from tfos_lab.data.schema import ColumnSpec

Columns = dict[str, np.ndarray]

# Each keeps a file open.
_MOST_KEPT = 256


class Segments:
    """A node's segments. Those that are read again stay mapped, as the system has laid out their pages by then."""

    def __init__(self) -> None:
        self._kept: dict[str, list[pa.RecordBatch]] = {}

    def read(self, path: str, specs: Sequence[ColumnSpec], *, again: bool) -> Iterator[Columns]:
        """Yield a segment's record batches as columns of shape ``(rows, …)``; numbers are views of the mapped file.

        Raises
        ------
        FileNotFoundError
            If the segment is gone.
        """
        batches = self._kept.pop(path, None) or _open(path)
        if again and len(self._kept) < _MOST_KEPT:
            self._kept[path] = batches
        for batch in batches:
            yield to_numpy(batch, specs)


def read_in_order(path: str, specs: Sequence[ColumnSpec]) -> Iterator[Columns]:
    """Yield the record batches of a segment that is read once, as `Segments.read` does."""
    return Segments().read(path, specs, again=False)


def read_shuffled(
    segments: Sequence[tuple[str, int]], specs: Sequence[ColumnSpec], batch_size: int, rng: np.random.Generator
) -> Iterator[Columns]:
    """Yield all rows of all segments once, in a random order, as columns of up to ``batch_size`` rows.

    Rows are gathered from the mapped files, so memory holds one batch at a time.
    """
    batches = [batch for path, _ in segments for batch in _open(path)]
    if not batches:
        return
    rows = RowIndex(batches, specs)
    order = rng.permutation(len(rows))
    for start in range(0, len(order), batch_size):
        yield rows.take(order[start : start + batch_size])


def _open(path: str) -> list[pa.RecordBatch]:
    # TensorFlow uses this memory as it is. Should an op write to its input, it gets a page of its own.
    with Path(path).open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    segment = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(mapped)))
    return [segment.get_batch(index) for index in range(segment.num_record_batches)]
