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
from tfos_lab.data.rows import Batch, join_rows
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
        """Return its record batches, mapped anew; a FileNotFoundError if it is gone."""
        return open_segment(self.path)


class Segments:
    """A node's segments, mapped again for each read: TensorFlow may have written into the memory that it was given."""

    def __init__(self) -> None:
        self._leftovers: dict[str, list[pa.RecordBatch]] = {}

    def batches(self, segment: Segment) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of a segment without its leftover rows; a FileNotFoundError if it is gone."""
        batches = segment.batches()
        self._keep_leftovers(segment, batches)
        yield from cut(batches, 0, segment.rows)

    def read(self, segment: Segment, specs: Sequence[ColumnSpec]) -> Iterator[Batch]:
        """Yield them as columns of shape ``(rows, …)``; numbers are views of the mapped file."""
        for batch in self.batches(segment):
            yield to_numpy(batch, specs)

    def leftovers(self, segments: Sequence[Segment], part: tuple[int, int]) -> Iterator[pa.RecordBatch]:
        """Yield a part of all leftover rows, partition by partition; all nodes see them in the same order.

        Raises FileNotFoundError if a segment is gone that has not been read before.
        """
        begin = 0
        for segment in sorted(segments, key=lambda segment: segment.partition):
            start, stop = max(part[0] - begin, 0), min(part[1] - begin, segment.leftover)
            begin += segment.leftover
            if start < stop:
                if segment.path not in self._leftovers:
                    self._keep_leftovers(segment, segment.batches())
                yield from cut(self._leftovers[segment.path], start, stop - start)

    def read_leftovers(self, segments: Sequence[Segment], part: tuple[int, int], specs: Sequence[ColumnSpec]) -> Batch:
        """Return them as columns of their own memory."""
        parts = [to_numpy(batch, specs) for batch in self.leftovers(segments, part)]
        return {name: values.copy() for name, values in join_rows(parts).items()} if parts else {}

    def _keep_leftovers(self, segment: Segment, batches: Iterable[pa.RecordBatch]) -> None:
        """Copy the leftover rows: a file that has been read may be removed."""
        if segment.leftover and segment.path not in self._leftovers:
            shared = cut(batches, segment.rows, segment.leftover)
            self._leftovers[segment.path] = [rows.take(pa.array(range(rows.num_rows))) for rows in shared]

    def forget(self, segments: Sequence[Segment]) -> None:
        """Drop the copies of segments that are not read again."""
        for segment in segments:
            self._leftovers.pop(segment.path, None)


def cut(batches: Iterable[pa.RecordBatch], skip: int, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield ``rows`` rows after the first ``skip``."""
    for batch in batches:
        if skip >= batch.num_rows:
            skip -= batch.num_rows
            continue
        taken = batch.slice(skip, rows)
        skip, rows = 0, rows - taken.num_rows
        if taken.num_rows:
            yield taken
        if not rows:
            return


def shuffled(
    batches: list[pa.RecordBatch], specs: Sequence[ColumnSpec], batch_size: int, rng: np.random.Generator
) -> Iterator[Batch]:
    """Yield all rows once, in a random order, as columns of up to ``batch_size`` rows.

    Rows are gathered from the mapped files, so memory holds one batch at a time.
    """
    if not batches:
        return
    rows = RowIndex(batches, specs)
    order = rng.permutation(len(rows))
    for start in range(0, len(order), batch_size):
        yield rows.take(order[start : start + batch_size])


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
