"""CSV and JSON: files whose rows are lines, so that reading can begin in their middle."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

import pyarrow as pa
from pyarrow import csv
from pyarrow import json as json_lines

from tfos_lab.core.messages import DataFile
from tfos_lab.errors import FeedError
from tfos_lab.node.feed.files.opened import CSV, JSON, open_stream

_CHUNK_BYTES = 4 << 20
_HEAD_BYTES = 1 << 20
# A quote that is not closed would make one row of all that follows.
_MOST_BYTES = 64 << 20
# A column that no file has: rows are counted by it.
_NO_COLUMN = pa.field("\0", pa.null())
_ROW = re.compile(r"Row #(\d+): ")
_COLUMN = re.compile(r"In CSV column #(\d+)")
_SPARK = "have Spark read the files, and feed the DataFrame"


class LineFile:
    """A CSV file with a header, or lines that are objects of JSON; either may be compressed by gzip.

    Of a row that cannot be read, or has other types than were asked for, a FeedError gives the number.
    """

    def __init__(self, format_: str, file: DataFile) -> None:
        self._format = format_
        self._file = file

    def schema(self) -> pa.Schema | None:
        """Return the columns of the first rows, as Arrow reads them; None if there are no rows in the file."""
        for at, chunk in self._chunks(size=_HEAD_BYTES):
            if chunk.strip():
                return self._parse(at, chunk, None).schema
        return None

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield where runs of whole rows end, in bytes, and how many rows each has."""
        for at, chunk in self._chunks():
            yield at + len(chunk), self._count(at, chunk)

    def batches(self, offset: int, fields: Sequence[pa.Field]) -> Iterator[pa.RecordBatch]:
        """Yield the rows from a byte on, at which one begins; of these columns and types."""
        for at, chunk in self._chunks(offset):
            yield from self._parse(at, chunk, fields or [_NO_COLUMN]).combine_chunks().to_batches()

    @functools.cached_property
    def _header(self) -> bytes:
        """The header of CSV, with what empty lines are above it."""
        header = b""
        if self._format == CSV:
            with open_stream(self._file) as stream:
                while line := stream.readline(_HEAD_BYTES):
                    header += line
                    if header.strip() and not header.count(b'"') % 2:
                        break
        return header if header.endswith(b"\n") or not header else header + b"\n"

    def _chunks(self, offset: int = 0, size: int = _CHUNK_BYTES) -> Iterator[tuple[int, bytes]]:
        """Yield whole rows, without the header, and the byte at which they begin."""
        with open_stream(self._file, offset) as stream:
            at, rest = offset or len(stream.read(len(self._header))), b""
            while data := stream.read(size):
                rest += data
                end = _end_of_records(rest) if self._format == CSV else rest.rfind(b"\n") + 1
                if end:
                    yield at, rest[:end]
                    at, rest = at + end, rest[end:]
                elif len(rest) > _MOST_BYTES:
                    raise FeedError(
                        reason=f"the row at byte {at:,} has more than {_MOST_BYTES >> 20} MiB: see whether a quote in "
                        "it is not closed"
                    )
            if rest:
                yield at, rest

    def _count(self, at: int, chunk: bytes) -> int:
        if self._format == JSON:
            return sum(map(bool, map(bytes.strip, chunk.split(b"\n"))))
        return int(self._parse(at, chunk, [_NO_COLUMN]).num_rows)

    def _parse(self, at: int, chunk: bytes, fields: Sequence[pa.Field] | None) -> pa.Table:
        """Return rows as columns of these types, or of those that they seem to have."""
        if b'\\"' in chunk and self._format == CSV:
            raise FeedError(
                reason=f"a quote follows a backslash after byte {at:,}: Spark writes quotes in values so, while in CSV "
                f"they are doubled; {_SPARK}, or write with option('escape', '\"')"
            )
        try:
            if self._format == CSV:
                return _parse_csv(self._header + chunk, fields)
            table = _parse_json(chunk, fields)
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            self._fail(at, chunk, fields, error)
        if table.num_rows != self._count(at, chunk):
            raise FeedError(reason=f"it does not have one object of JSON per line: write it so, or {_SPARK}")
        return table

    def _fail(self, at: int, chunk: bytes, fields: Sequence[pa.Field] | None, error: Exception) -> NoReturn:
        """Raise a FeedError with the number of the row that cannot be parsed."""
        text = " ".join(str(error).split())
        if self._format == CSV:
            row, column = _ROW.search(text), _COLUMN.match(text)
            number = int(row[1]) if row else 0
            text = text[row.end() :] if row else text
            if column:
                text = f"column '{_parse_csv(self._header, None).column_names[int(column[1])]}': {text}"
        else:
            number, text = _bad_object(chunk, fields, text)
        header = " (the header is row 1)" if self._format == CSV else ""
        where = f"row {self._rows_before(at) + number:,}{header}: " if number else ""
        types = "" if "column '" not in text else "; types are those of each file's first rows"
        raise FeedError(reason=f"{where}{text:.300}{types}. Mend the row, or {_SPARK} with a schema") from error

    def _rows_before(self, at: int) -> int:
        rows = 0
        for begin, chunk in self._chunks():
            if begin >= at:
                break
            rows += self._count(begin, chunk[: at - begin])
        return rows


def _parse_csv(data: bytes, fields: Sequence[pa.Field] | None) -> pa.Table:
    names = [] if fields is None else [field.name for field in fields]
    return csv.read_csv(
        pa.BufferReader(data),
        csv.ReadOptions(use_threads=False, block_size=len(data) + 1),
        csv.ParseOptions(newlines_in_values=b'"' in data),
        csv.ConvertOptions(
            include_columns=names,
            include_missing_columns=names == [_NO_COLUMN.name],
            column_types=None if fields is None else {field.name: field.type for field in fields},
            # As Spark: nothing at all is a null, and quotes with nothing in them are an empty text.
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _parse_json(data: bytes, fields: Sequence[pa.Field] | None) -> pa.Table:
    if not data.strip():
        return pa.schema(fields or []).empty_table()
    options = {} if fields is None else {"explicit_schema": pa.schema(fields), "unexpected_field_behavior": "ignore"}
    return json_lines.read_json(
        pa.BufferReader(data),
        json_lines.ReadOptions(use_threads=False, block_size=len(data) + 1),
        json_lines.ParseOptions(**options),
    )


def _bad_object(chunk: bytes, fields: Sequence[pa.Field] | None, text: str) -> tuple[int, str]:
    """Return which row of a chunk cannot be parsed, from 1, and why; 0 if each can by itself."""
    text = re.sub(r" in row \d+$", "", text).rstrip(".")
    for number, line in enumerate(filter(bytes.strip, chunk.split(b"\n")), 1):
        if not _parses(line, fields):
            bad = next((each.name for each in fields or () if not _parses(line, [each])), "")
            return number, f"column '{bad}': {text}" if bad and _parses(line, [_NO_COLUMN]) else text
    return 0, text


def _parses(line: bytes, fields: Sequence[pa.Field] | None) -> bool:
    try:
        _parse_json(line, fields)
    except pa.ArrowInvalid:
        return False
    return True


def _end_of_records(data: bytes) -> int:
    """Return where the last whole record of CSV ends: at a line's end that is not within quotes."""
    end = data.rfind(b"\n") + 1
    while end and data.count(b'"', 0, end) % 2:
        end = data.rfind(b"\n", 0, data.rfind(b'"', 0, end)) + 1
    return end


def unify(format_: str, schemas: Sequence[pa.Schema]) -> dict[str, pa.DataType]:
    """Return the types of all columns, which take the first values of all files, and which Spark has, too.

    Raises FeedError for values of JSON that no type takes.
    """
    kinds: dict[str, pa.DataType] = {}
    for name, found in ((field.name, field.type) for schema in schemas for field in schema):
        kind = _mapped(found, lambda leaf: pa.string() if _is_text(leaf, format_) else leaf)
        try:
            both = [pa.schema([(name, known)]) for known in (kinds.get(name, kind), kind)]
            kinds[name] = pa.unify_schemas(both, promote_options="permissive").field(name).type
        except pa.ArrowException as error:
            if format_ == JSON:
                told = f"column '{name}' is {kinds[name]} in one file, and {kind} in another"
                raise FeedError(reason=f"{told}: {_SPARK}") from error
            kinds[name] = pa.string()
    return {
        name: _mapped(kind, lambda leaf: pa.string() if pa.types.is_null(leaf) else leaf)
        for name, kind in kinds.items()
    }


def _is_text(leaf: pa.DataType, format_: str) -> bool:
    return bool(pa.types.is_time(leaf) or (format_ == JSON and pa.types.is_timestamp(leaf)))


def _mapped(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_mapped(kind.value_type, change))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _mapped(field.type, change)) for field in kind])
    return change(kind)
