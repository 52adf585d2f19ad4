"""Writes the spool's files: Arrow IPC files whose numbers TensorFlow uses without a copy.

TensorFlow takes over memory that begins at a multiple of 64 bytes; Arrow's files only promise multiples of 8. So each
record batch is padded to begin at such a multiple, arrays of one length are stored without their offsets, and batches
have a multiple of 64 rows, so that all their columns of numbers are aligned, too. TensorFlow copies what cannot be
aligned.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

_ALIGNMENT = 64
# Arrow pads what it writes to multiples of this.
_STEP = 8


class SegmentWriter:
    """Takes the record batches of one segment, into a file that is created at once."""

    def __init__(self, path: Path) -> None:
        self._sink = pa.OSFile(str(path), "wb")
        self._file: Any = None
        self._paddings: dict[int, dict[str, str]] = {}

    def write(self, rows: pa.RecordBatch) -> None:
        """Append rows, whose arrays all have the same lengths (`tfos_lab.data.batches.measure`)."""
        rows = pa.RecordBatch.from_arrays(
            [_without_offsets(column) for column in rows.columns], names=rows.schema.names
        )
        position = self._sink.tell()
        if self._file is None:
            self._file = pa.ipc.new_file(self._sink, rows.schema)
            position, self._paddings = _layout(rows.slice(0, 1))
        whole = rows.num_rows // _ALIGNMENT * _ALIGNMENT
        for part in (rows.slice(0, whole), rows.slice(whole)):
            if part.num_rows:
                self._file.write_batch(part, custom_metadata=self._paddings[-position % _ALIGNMENT])
                position = self._sink.tell()

    def close(self) -> None:
        """End the file."""
        try:
            if self._file is not None:
                self._file.close()
        finally:
            self._sink.close()


def _without_offsets(column: pa.Array) -> pa.Array:
    """Return lists of one length as lists of fixed size, without a copy; anything else unchanged."""
    if not (types.is_list(column.type) or types.is_large_list(column.type)) or not len(column) or column.null_count:
        return column
    lengths = pc.min_max(pc.list_value_length(column)).as_py()
    if lengths["min"] != lengths["max"] or not lengths["max"]:
        return column
    return pa.FixedSizeListArray.from_arrays(_without_offsets(column.flatten()), lengths["max"])


def _layout(row: pa.RecordBatch) -> tuple[int, dict[int, dict[str, str]]]:
    """Return where a file's first record batch begins, and, by length modulo 64, the metadata that pads a batch's head.

    Found by writing one row to nowhere, as Arrow offers neither: a row may take hundreds of megabytes.
    """
    body = pa.ipc.read_message(row.serialize()).body.size
    metadata = [{"pad": " " * length} for length in range(0, _ALIGNMENT, _STEP)]
    ends = []
    sink = pa.MockOutputStream()
    with pa.ipc.new_file(sink, row.schema) as file:
        for pairs in (metadata[-1], *metadata):
            file.write_batch(row, custom_metadata=pairs)
            ends.append(sink.tell())
    heads = [end - start - body for start, end in itertools.pairwise(ends)]
    return ends[0] - body - heads[-1], {head % _ALIGNMENT: pairs for head, pairs in zip(heads, metadata, strict=True)}
