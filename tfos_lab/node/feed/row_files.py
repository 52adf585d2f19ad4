"""Writes a node's rows as files that other libraries read: Parquet, Arrow or JSON; see `NodeContext.rows_as_files`."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
import pyarrow as pa
from pyarrow import types

from tfos_lab.data.spark_types import arrow_columns
from tfos_lab.errors import ConfigError
from tfos_lab.node.feed.node_feed import NodeFeed

# Large enough for readers to be quick, small enough for several to share out the files and to hold a group in memory.
_GROUP_BYTES = 16 << 20
_FILE_BYTES = 128 << 20
# Rows of numbers are small, and of nothing are empty.
_GROUP_ROWS = 1 << 17


def check_format(file_format: object) -> None:
    """Raise a ConfigError for a format that is none of those that can be written."""
    if file_format not in list(_WRITERS):
        raise ConfigError([f"format={file_format!r}: use 'parquet', 'json' or 'arrow'"])


def rows_of(feed: NodeFeed, on_segment_read: Callable[[str], None]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the rows of a feed that is complete."""
    # In the spool, arrays have a fixed length.
    schema = pa.schema([(name, kind) for name, kind, _ in arrow_columns(feed.opened.schema)])

    def batches() -> Iterator[pa.RecordBatch]:
        for segment in feed.segments:
            for batch in segment.batches():
                yield batch.cast(schema)
        for segment in feed.segments:
            on_segment_read(segment.path)

    return schema, batches()


def write_files(schema: pa.Schema, batches: Iterable[pa.RecordBatch], folder: Path, file_format: str) -> list[str]:
    """Write rows in their order as files of some 128 MB in memory, one without rows where there are none.

    Parquet is written in row groups of 16 MB in memory, Arrow's IPC files uncompressed and in batches of that size,
    JSON with a line for each row. Returns the files' paths.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[str] = []
    groups = _groups(schema, batches)
    table: pa.Table | None = next(groups, schema.empty_table())
    while table is not None:
        paths.append(str(folder / f"part-{len(paths):05d}.{file_format}"))
        size_bytes = 0
        with contextlib.closing(_WRITERS[file_format](paths[-1], schema)) as writer:
            while table is not None and size_bytes < _FILE_BYTES:
                writer.write_table(table)
                size_bytes += table.nbytes
                table = next(groups, None)
    return paths


def _groups(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join small batches, which come from many partitions, and cut large ones."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        row_bytes = max(1, int(batch.nbytes) // max(1, int(batch.num_rows)))
        rows = max(1, min(_GROUP_ROWS, _GROUP_BYTES // row_bytes))
        for start in range(0, batch.num_rows, rows):
            waiting.append(batch.slice(start, rows))
            count, size_bytes = sum(some.num_rows for some in waiting), sum(some.nbytes for some in waiting)
            if count >= _GROUP_ROWS or size_bytes >= _GROUP_BYTES:
                yield pa.Table.from_batches(waiting, schema).combine_chunks()
                waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting, schema).combine_chunks()


# ---- formats --------------------------------------------------------------------------------------------------------


def _parquet(path: str, schema: pa.Schema) -> Any:
    from pyarrow import parquet

    return parquet.ParquetWriter(path, schema)


class _JsonLines:
    """A file with one JSON object per row, written as Spark's own JSON is."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._file: IO[bytes] = Path(path).open("wb")  # noqa: SIM115 - closed with this object
        self._encoder = msgspec.json.Encoder(decimal_format="number")
        self._columns = [field.name for field in schema if _may_be_no_number(field.type)]

    def write_table(self, table: pa.Table) -> None:
        """Append rows."""
        rows = table.to_pylist()
        for row in rows if self._columns else ():
            for name in self._columns:
                row[name] = _with_names_of_numbers(row[name])
        self._file.write(self._encoder.encode_lines(rows))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _may_be_no_number(kind: pa.DataType) -> bool:
    while types.is_list(kind) or types.is_large_list(kind):
        kind = kind.value_type
    return bool(types.is_floating(kind))


def _with_names_of_numbers(value: Any) -> Any:
    """Replace what JSON has no number for, as Spark does: by ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``."""
    if isinstance(value, list):
        return [_with_names_of_numbers(item) for item in value]
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


# What they return takes tables by `write_table`, and is closed.
_WRITERS: dict[Any, Callable[[str, pa.Schema], Any]] = {
    "parquet": _parquet,
    "json": _JsonLines,
    "arrow": pa.ipc.new_file,
}
