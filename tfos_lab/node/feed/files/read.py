"""Reads the pieces of a file's rows as record batches: a row group, or a block of TFRecords or lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from tfos_lab.core.messages import FilePart
from tfos_lab.data.batches import measure
from tfos_lab.data.rows import row_bytes
from tfos_lab.data.schema import column_specs
from tfos_lab.data.tfrecords.decode import decode
from tfos_lab.data.tfrecords.framing import read_frames
from tfos_lab.errors import FeedError
from tfos_lab.node.feed.files.columns import Columns, columns_of
from tfos_lab.node.feed.files.lines import LineFile
from tfos_lab.node.feed.files.opened import PARQUET, TFRECORD, open_random, open_stream, readable
from tfos_lab.node.feed.segments import cut

# Handing rows over to TensorFlow costs the same for few as for many; more than these fit into no cache.
BATCH_BYTES = 4 << 20
_MOST_ROWS = 65_536
# TensorFlow takes over memory that begins at a multiple of 64 bytes.
_ALIGNMENT = 64

# Where to begin (the number of a row group, or a byte), how many rows to skip there, and how many to read.
Piece = tuple[int, int, int]


def read_piece(format_: str, part: FilePart, piece: Piece, schema: str, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece in the columns of ``schema``, Spark's in JSON; about ``batch_rows`` at once.

    Raises
    ------
    FeedError, RecordError
        If the file cannot be read; names it, and says what to do.
    """
    columns = columns_of(schema)
    with readable(part.file):
        start, skip, left = piece
        if format_ == PARQUET:
            batches = cut(_row_group(part, start, columns, batch_rows), skip, left)
        elif format_ == TFRECORD:
            batches = _records(part, piece, columns)
        else:
            fields = columns.stored_fields(part.partition)
            batches = cut(LineFile(format_, part.file).batches(start, fields), skip, left)
        for batch in batches:
            left -= batch.num_rows
            yield columns.arrange(batch, part.partition)
        if left:
            raise FeedError(reason=f"it has {left:,} rows less than when the driver looked at it; train again")


def rows_at_once(schema: str, shapes: dict[str, list[int]]) -> int:
    """Return how many rows to read at once."""
    specs = [
        replace(spec, shape=tuple(shapes.get(spec.name, [size or 1 for size in spec.shape])))
        for spec in column_specs(schema)
    ]
    return min(max(BATCH_BYTES // row_bytes(specs), 1) // _ALIGNMENT * _ALIGNMENT + _ALIGNMENT, _MOST_ROWS)


def find_shapes(format_: str, parts: Iterable[FilePart], schema: str) -> dict[str, list[int]]:
    """Return the lengths of array columns, by the first row; nothing if there is no row."""
    for part in parts:
        for piece in part.pieces:
            for batch in read_piece(format_, part, (*piece[:2], 1), schema, 1):
                with readable(part.file):
                    return {spec.name: list(map(int, spec.shape)) for spec in measure(batch, column_specs(schema))}  # type: ignore[arg-type]
    return {}


def _row_group(part: FilePart, group: int, columns: Columns, batch_rows: int) -> Iterator[pa.RecordBatch]:
    from pyarrow import parquet

    with open_random(part.file) as source:
        file = parquet.ParquetFile(source, coerce_int96_timestamp_unit="us")
        names = columns.stored(part.partition)
        if not names:
            yield from _without_columns(file.metadata.row_group(group).num_rows)
            return
        yield from file.iter_batches(batch_rows, row_groups=[group], columns=names)


def _without_columns(rows: int) -> Iterator[pa.RecordBatch]:
    """Yield rows whose columns are all in the names of folders."""
    yield pa.RecordBatch.from_arrays([pa.nulls(rows)], names=[""])


def _records(part: FilePart, piece: Piece, columns: Columns) -> Iterator[pa.RecordBatch]:
    offset, skip, rows = piece
    wanted = pa.schema([field for field in columns.schema if field.name not in part.partition])
    with open_stream(part.file, offset) as stream:
        for frames in read_frames(stream, part.file.path, BATCH_BYTES, offset=offset):
            if skip >= len(frames):
                skip -= len(frames)
                continue
            some = replace(frames, starts=frames.starts[skip : skip + rows], ends=frames.ends[skip : skip + rows])
            skip, rows = 0, rows - len(some)
            yield decode(some, wanted)
            if not rows:
                return
