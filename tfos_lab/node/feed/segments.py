"""Reads the spool: memory-mapped Arrow IPC files, in their order or permuted, as columns of NumPy arrays.

A segment holds one partition's rows for this node, followed by its leftover rows: too few to give each node one, they
are stored on every node. Which of them belong to this node is known when the feed is complete.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tfos_lab.data.batches import RowIndex, to_numpy
from tfos_lab.data.rows import Batch, count_rows, join_rows, slice_rows
from tfos_lab.data.schema import ColumnSpec

if TYPE_CHECKING:
    import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Segment:
    """One partition's file in the spool: ``rows`` of this node, and then ``leftover`` rows that are on every node."""

    path: str
    rows: int
    partition: int = 0
    leftover: int = 0

    def batches(self) -> Iterable[pa.RecordBatch]:
        """Return its record batches, mapped anew.

        Raises
        ------
        FileNotFoundError
            If the segment is gone.
        """
        return open_segment(self.path)


class Segments:
    """A node's segments, mapped again for each read: TensorFlow may have written into the memory that it was given."""

    def __init__(self) -> None:
        self._leftovers: dict[str, Batch] = {}

    def read(self, segment: Segment, specs: Sequence[ColumnSpec]) -> Iterator[Batch]:
        """Yield a segment's record batches as columns of shape ``(rows, …)``; numbers are views of the mapped file.

        Raises
        ------
        FileNotFoundError
            If the segment is gone.
        """
        batches = segment.batches()
        if segment.leftover and segment.path not in self._leftovers:
            # Copied now: a file that has been read may be removed.
            self._leftovers[segment.path] = _leftovers(segment, batches, specs)
        for batch in own_rows(segment, batches):
            yield to_numpy(batch, specs)

    def read_leftovers(self, segments: Sequence[Segment], part: tuple[int, int], specs: Sequence[ColumnSpec]) -> Batch:
        """Return a part of all leftover rows, partition by partition; all nodes see them in the same order.

        Raises
        ------
        FileNotFoundError
            If a segment is gone that has not been read before.
        """
        parts, begin = [], 0
        for segment in sorted(segments, key=lambda segment: segment.partition):
            start, stop = max(part[0] - begin, 0), min(part[1] - begin, segment.leftover)
            begin += segment.leftover
            if start < stop:
                if segment.path not in self._leftovers:
                    self._leftovers[segment.path] = _leftovers(segment, segment.batches(), specs)
                parts.append(slice_rows(self._leftovers[segment.path], start, stop))
        return {name: values.copy() for name, values in join_rows(parts).items()} if parts else {}


def read_in_order(path: str, specs: Sequence[ColumnSpec]) -> Iterator[Batch]:
    """Yield all record batches of a file that is read once, as `Segments.read` does."""
    for batch in open_segment(path):
        yield to_numpy(batch, specs)


def read_shuffled(
    segments: Sequence[Segment],
    part: tuple[int, int],
    specs: Sequence[ColumnSpec],
    batch_size: int,
    rng: np.random.Generator,
) -> Iterator[Batch]:
    """Yield all rows of this node once, in a random order, as columns of up to ``batch_size`` rows.

    Rows are gathered from the mapped files, so memory holds one batch at a time. ``part`` is this node's part of the
    leftover rows.
    """
    batches = [batch for segment in segments for batch in own_rows(segment, segment.batches())]
    batches += part_of_leftovers(segments, part)
    if not batches:
        return
    rows = RowIndex(batches, specs)
    order = rng.permutation(len(rows))
    for start in range(0, len(order), batch_size):
        yield rows.take(order[start : start + batch_size])


def own_rows(segment: Segment, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the record batches without the leftover rows."""
    missing = segment.rows
    for batch in batches:
        if missing <= 0:
            return
        yield batch if batch.num_rows <= missing else batch.slice(0, missing)
        missing -= batch.num_rows


def shared_rows(segment: Segment, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the record batches of the leftover rows."""
    shared, skip = [], segment.rows
    for batch in batches:
        if skip < batch.num_rows:
            shared.append(batch.slice(skip))
        skip = max(0, skip - batch.num_rows)
    return shared


def _leftovers(segment: Segment, batches: Iterable[pa.RecordBatch], specs: Sequence[ColumnSpec]) -> Batch:
    columns = join_rows([to_numpy(batch, specs) for batch in shared_rows(segment, batches)])
    assert count_rows(columns) == segment.leftover
    return {name: values.copy() for name, values in columns.items()}


def part_of_leftovers(segments: Sequence[Segment], part: tuple[int, int]) -> list[pa.RecordBatch]:
    """Return a part of all leftover rows as record batches, partition by partition."""
    parts, begin = [], 0
    for segment in sorted(segments, key=lambda segment: segment.partition):
        for batch in shared_rows(segment, segment.batches()) if segment.leftover else ():
            start, stop = max(part[0] - begin, 0), min(part[1] - begin, batch.num_rows)
            if start < stop:
                parts.append(batch.slice(start, stop - start))
            begin += batch.num_rows
    return parts


def open_segment(path: str) -> list[pa.RecordBatch]:
    """Return the record batches of a file, mapped anew."""
    # Closed at once, unlike by `mmap.mmap`: a shuffled feed may have ten thousand. Rows keep their memory mapped.
    with pa.memory_map(path) as file:
        mapped = file.read_buffer()
    # TensorFlow uses this memory without a copy. Where an op overwrites its input, the page is copied first.
    if _libc.mprotect(ctypes.c_void_p(mapped.address), ctypes.c_size_t(mapped.size), mmap.PROT_READ | mmap.PROT_WRITE):
        raise OSError(ctypes.get_errno(), "cannot be mapped", path)
    segment = pa.ipc.open_file(pa.BufferReader(mapped))
    return [segment.get_batch(index) for index in range(segment.num_record_batches)]
