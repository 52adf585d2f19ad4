"""Reads the pieces of a file's rows as record batches: a row group, or a block of TFRecords or lines.

They have the columns of the feed, with the types that Spark would give them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tfos_lab.core.messages import FilePart
from tfos_lab.data.batches import measure
from tfos_lab.data.rows import row_bytes
from tfos_lab.data.schema import column_specs
from tfos_lab.data.spark_types import arrow_type
from tfos_lab.data.tfrecords.codecs import decode
from tfos_lab.data.tfrecords.framing import read_frames
from tfos_lab.errors import FeedError
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

    Errors name the file, and give advice.
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
        if names := columns.stored(part.partition):
            yield from file.iter_batches(batch_rows, row_groups=[group], columns=names)
        else:  # all columns are in the names of folders
            yield pa.RecordBatch.from_arrays([pa.nulls(file.metadata.row_group(group).num_rows)], names=[""])


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


# ---- the columns of a feed of files ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Columns:
    """The columns wanted: for each its name, the path to it through structs, and its Arrow type."""

    fields: tuple[tuple[str, tuple[str, ...], pa.DataType], ...]

    @functools.cached_property
    def schema(self) -> pa.Schema:
        """Of the record batches that are made."""
        return pa.schema([(name, kind) for name, _, kind in self.fields])

    def stored(self, partition: Mapping[str, object]) -> list[str]:
        """Return the names of the columns that a file has itself; the others are in the names of its folders."""
        return list(dict.fromkeys(path[0] for _, path, _ in self.fields if path[0] not in partition))

    def stored_fields(self, partition: Mapping[str, object]) -> list[pa.Field]:
        """Return the columns that a file has itself, with their types; those of structs are what is wanted of them."""
        tree: dict[str, Any] = {}
        for _, path, kind in self.fields:
            if path[0] not in partition:
                functools.reduce(lambda at, name: at.setdefault(name, {}), path[:-1], tree)[path[-1]] = kind
        return _fields(tree)

    def arrange(self, batch: pa.RecordBatch, partition: Mapping[str, str | None]) -> pa.RecordBatch:
        """Return the columns wanted of rows of a file; a FeedError if one is missing or has another type."""
        columns = []
        for name, path, kind in self.fields:
            if path[0] in partition:
                columns.append(pa.repeat(pa.scalar(partition[path[0]], pa.string()).cast(kind), batch.num_rows))
            else:
                columns.append(_cast(name, _within(name, batch, path), kind))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


@functools.lru_cache(maxsize=16)
def columns_of(schema: str) -> Columns:
    """Return the columns of a Spark schema in JSON, whose fields may have a ``path`` through structs."""
    fields = json.loads(schema)["fields"]
    return Columns(
        tuple((field["name"], tuple(field.get("path", [field["name"]])), arrow_type(field["type"])) for field in fields)
    )


def _fields(tree: Mapping[str, Any]) -> list[pa.Field]:
    return [pa.field(name, pa.struct(_fields(kind)) if isinstance(kind, dict) else kind) for name, kind in tree.items()]


def _within(name: str, batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    if path[0] not in batch.schema.names:
        raise FeedError(reason=f"it has no column '{name}', which the feed's other files have")
    column = batch.column(path[0])
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def _cast(name: str, column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    try:
        # Times lose what is below a microsecond, as in Spark.
        return column.cast(kind, safe=not pa.types.is_temporal(kind))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise FeedError(
            reason=f"its column '{name}' is {column.type}, and {kind} in the feed's other files: write files of one "
            "schema, or have Spark read them and feed the DataFrame"
        ) from error
