"""Reads the spool: memory-mapped Arrow IPC files.

A segment holds one partition's rows for this node, followed by the partition's leftover rows: too few to give each node
one, they are stored on every node, and each belongs to one of them.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Segment:
    """One partition's file in the spool: ``rows`` of this node, and then leftover rows, one of which may be its own.

    ``own_leftover`` is the number of that one, from 0. All nodes have equally many ``rows`` of a partition.
    """

    path: str
    rows: int
    own_leftover: int | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield this node's rows, mapped anew: TensorFlow may have written into the memory that it was given.

        Raises FileNotFoundError if the file is gone.
        """
        stored = self.stored()
        yield from cut(stored, 0, self.rows)
        if self.own_leftover is not None:
            yield from cut(stored, self.rows + self.own_leftover, 1)

    def stored(self) -> Iterable[pa.RecordBatch]:
        """Return all that is in the file; raises as `batches` does."""
        return open_segment(self.path)


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
