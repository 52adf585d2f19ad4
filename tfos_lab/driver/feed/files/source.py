"""The rows of files that a cluster is fed: found and checked before anything starts."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa

from tfos_lab.core.messages import DataFile, FilePart
from tfos_lab.core.paths import is_local, split_scheme
from tfos_lab.data.file_systems import open_path
from tfos_lab.data.frames import path_in_full
from tfos_lab.data.prepare import choose_fields
from tfos_lab.data.schema import column_specs
from tfos_lab.data.tfrecords.framing import starts_with_frame
from tfos_lab.data.tfrecords.options import ReadOptions
from tfos_lab.data.tfrecords.paths import Found, find_files, partition_of
from tfos_lab.data.tfrecords.reading import infer_fields
from tfos_lab.driver.feed.files.shares import Block, FoundFile, deal_rows
from tfos_lab.driver.feed.files.spark_schema import SparkField, partition_field, spark_fields
from tfos_lab.errors import ConfigError, FeedError, NoSession, RecordError
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.node.feed.files.lines import LineFile, unify
from tfos_lab.node.feed.files.opened import CSV, JSON, PARQUET, TFRECORD, open_random, open_stream, readable
from tfos_lab.node.feed.files.read import find_shapes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

# How many records inference reads, spread over the files; and how many files are looked at, at the same time.
_SAMPLE = 10_000
_THREADS = 16


@dataclass
class FileRows:
    """Rows of files; kept, so that the nodes of a further start need not count them again.

    ``what`` is how messages call the data, and ``schema`` that of the columns wanted, as Spark writes it in JSON;
    fields may have a ``path`` through structs. ``shapes`` has the lengths of array columns, once they are known.
    """

    what: str
    format: str
    schema: str
    files: list[FoundFile]
    shapes: dict[str, list[int]] = field(default_factory=dict)

    @property
    def is_counted(self) -> bool:
        """Whether it is known how many rows each file has."""
        return all(file.blocks is not None for file in self.files)

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(file.file.size_bytes for file in self.files)

    def record(self, blocks: Mapping[int, Sequence[Block]]) -> None:
        """Take what nodes have counted, by the number of the file."""
        self.files = [replace(file, blocks=blocks[number]) for number, file in enumerate(self.files)]

    def deal(self, nodes: int) -> list[list[FilePart]]:
        """Return what each node reads; finds out the lengths of array columns, if that has not been done."""
        if not self.shapes:
            self.shapes = find_shapes(
                self.format, (part for parts in deal_rows(self.files, 1) for part in parts), self.schema
            )
        return deal_rows(self.files, nodes)


def find_rows(
    data: Any, columns: Sequence[str] | None, session: SparkSession | None, before_spark: Callable[[], None]
) -> FileRows:
    """Return the rows of the files that ``data`` names: files, folders, patterns, or a table.

    The session knows tables, and the file system of paths without a scheme; ``before_spark`` is called before Spark
    works. Raises ConfigError, which names each problem, and NoSession for a table's name where there is no session.
    """
    if is_table(data):
        if session is None:
            reason = f"data={data!r}: there is no such file, and no SparkSession that knows a table of this name"
            raise NoSession(reason=reason, for_rows=True)
        before_spark()
        return _of_table(data, columns, session)
    files = list_files(text_of(data), paths_of(data), session)
    try:
        return _of_files(text_of(data), columns, files)
    except (FeedError, RecordError) as error:
        raise ConfigError([f"{text_of(data)}: {error}"]) from error


def _of_table(name: str, columns: Sequence[str] | None, session: SparkSession) -> FileRows:
    what = text_of(name)
    files, fields = table_files(session, name)
    try:
        files, own = _of_parquet(what, files)
    except FeedError as error:
        raise ConfigError([f"{what}: {error}"]) from error
    stored = {field["name"] for field in own}
    chosen = choose_fields(fields, columns)
    if missing := [field["name"] for field in chosen if field.get("path", [field["name"]])[0] not in stored]:
        problem = f"{what}: the table's files lack its column '{missing[0]}', which Spark fills with nulls"
        raise ConfigError([f"{problem}: choose others with columns=..., or feed data=spark.table({name!r})"])
    return FileRows(what, PARQUET, _schema(chosen), files)


def _of_files(what: str, columns: Sequence[str] | None, files: list[FoundFile]) -> FileRows:
    format_ = find_format(what, files)
    if format_ == PARQUET:
        files, fields = _of_parquet(what, files)
    elif format_ == TFRECORD:
        fields = _record_fields(what, files)
    else:
        fields = _line_fields(what, format_, files)
    return FileRows(what, format_, _schema(choose_fields(fields, columns)), files)


def _record_fields(what: str, files: Sequence[FoundFile]) -> list[SparkField]:
    """Infer the columns of TFRecords. Strings are bytes: tensors hold the same, and not all bytes are text."""
    systems = {root: open_path(root)[0] for root in {file.file.root for file in files}}
    found = [
        (systems[file.file.root], Found(file.file.path, file.file.size_bytes, file.partition))
        for file in files
        if file.file.size_bytes
    ]
    try:
        fields = infer_fields(ReadOptions(paths=(what,), sample=_SAMPLE), found)
    except ConfigError as error:
        raise ConfigError([f"{what}: the files hold no records with values, so there are no rows to feed"]) from error
    folders = {name for file in files for name in file.partition}
    return [each if each["name"] in folders else {**each, "type": _as_bytes(each["type"])} for each in fields]


def _line_fields(what: str, format_: str, files: Sequence[FoundFile]) -> list[SparkField]:
    """Infer the columns of CSV or JSON, by the first rows of all files."""

    def schema_of(file: DataFile) -> pa.Schema | None:
        with readable(file):
            return LineFile(format_, file).schema()

    schemas = _of_each(files, schema_of)
    there = [schema for schema in schemas if schema is not None]
    if not there:
        raise ConfigError([f"{what}: the files hold no rows, so there is nothing to feed"])
    for file, schema in zip(files, schemas, strict=True):
        names = [] if schema is None else schema.names
        if twice := next((name for name in names if names.count(name) > 1), None):
            problem = f"{what}: the first line of {file.file.path} names '{twice}' twice"
            raise ConfigError(
                [f"{problem}: it has to be a header; have Spark read a file without, and feed the DataFrame"]
            )
    kinds = unify(format_, there)
    whole = pa.schema(list(kinds.items()))
    # Each file has its own header, while an object of JSON may leave any column out.
    own = [
        whole if schema is None or format_ == JSON else pa.schema([(name, kinds[name]) for name in schema.names])
        for schema in schemas
    ]
    return fields_of(what, files, own)


def _of_each(files: Sequence[FoundFile], look: Callable[[DataFile], T]) -> list[T]:
    with ThreadPoolExecutor(_THREADS, "tfos-files") as pool:
        return list(pool.map(look, [file.file for file in files]))


def _as_bytes(kind: Any) -> Any:
    if isinstance(kind, dict):
        return {**kind, "elementType": _as_bytes(kind["elementType"])}
    return "binary" if kind == "string" else kind


def _schema(fields: Sequence[SparkField]) -> str:
    column_specs({"fields": fields})
    return json.dumps({"type": "struct", "fields": list(fields)})


# ---- tables ---------------------------------------------------------------------------------------------------------


def table_files(session: SparkSession, name: str) -> tuple[list[FoundFile], list[SparkField]]:
    """Return the files of a table, and its columns as Spark writes them in JSON.

    Raises ConfigError if there is no such table, or it is no plain table of Parquet files.
    """
    details = _details(session, name)
    is_parquet = details.get("provider") == "parquet" or "parquet" in details.get("serde library", "")
    if details.get("type") == "VIEW" or not is_parquet:
        kind = details.get("provider") or "a view"
        problem = f"data={name!r}: this table is {kind}, and nodes read the files of Parquet tables only"
        raise ConfigError([f"{problem}: feed the DataFrame, as in data=spark.table({name!r})"])
    table = session.table(name)
    fields = table.schema.jsonValue()["fields"]
    names = {field["name"] for field in fields}
    files = [_found(unquote(uri), names) for uri in sorted(table.inputFiles())]
    if not files:
        raise ConfigError([f"data={name!r}: this table has no files, so there are no rows to feed"])
    return files, fields


def _details(session: SparkSession, name: str) -> dict[str, str]:
    """Return the catalog's entries for a table, by their names in lower case."""
    why = ""
    try:
        # Asked first: pyspark logs a page where a table is described that is not there.
        rows = session.sql(f"DESCRIBE TABLE EXTENDED {name}").collect() if _is_known(session, name) else None
    except Exception as error:  # noqa: BLE001 - whatever a catalog raises
        rows, why = None, f" ({spark_session.cause_of(error):.200})"
    if rows is None:
        problem = f"data={name!r}: there is no such file, and no such table{why}"
        raise ConfigError([f"{problem}; write './{name}' for a file"])
    entries = [(str(row["col_name"]), str(row["data_type"])) for row in rows]
    heading = "# Detailed Table Information"
    begin = next((number for number, (key, _) in enumerate(entries) if key == heading), len(entries))
    return {key.lower(): value if key == "Type" else value.lower() for key, value in entries[begin:]}


def _is_known(session: SparkSession, name: str) -> bool:
    from pyspark.errors import ParseException

    try:
        return session.catalog.tableExists(name)
    except ParseException:  # a name such as my-rows.parquet
        return False


def _found(uri: str, columns: set[str]) -> FoundFile:
    system, path = open_path(uri)
    size: Any = system.get_file_info(path).size
    partition = {name: value for name, value in partition_of(path).items() if name in columns}
    return FoundFile(DataFile("/" if is_local(uri) else uri, path, size or 0), None, partition)


# ---- what `data` names ----------------------------------------------------------------------------------------------


_WILD = re.compile(r"[*?\[]")


def names_files(data: Any) -> bool:
    """Whether these are names of files, folders or a table: a text, a path, or a list of them."""
    if isinstance(data, list | tuple):
        return bool(data) and all(isinstance(one, str | os.PathLike) for one in data)
    return isinstance(data, str | os.PathLike)


def paths_of(data: Any) -> list[str]:
    """Return names of files as texts."""
    return [os.fspath(one) for one in (data if isinstance(data, list | tuple) else [data])]


def is_table(data: Any) -> bool:
    """Whether a text is the name of a table: no ``/``, no wildcards, and no file of that name.

    Examples
    --------
    >>> [is_table(name) for name in ("sales.orders", "/data/orders", "orders-*.parquet", "s3://bucket/orders")]
    [True, False, False, False]
    """
    if not isinstance(data, str) or "/" in data or _WILD.search(data) or split_scheme(data)[0]:
        return False
    return not Path(data).expanduser().exists()


def text_of(data: Any) -> str:
    """Return how to name the data in messages."""
    paths = paths_of(data)
    return f"data={paths[0]!r}" if len(paths) == 1 else f"data={paths[:2]!r}" + (" and more" if len(paths) > 2 else "")


# ---- their format ---------------------------------------------------------------------------------------------------


_ENDINGS = {
    **dict.fromkeys((".parquet", ".parq", ".pq"), PARQUET),
    **dict.fromkeys((".tfrecord", ".tfrecords", ".tfrec"), TFRECORD),
    ".csv": CSV,
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), JSON),
}
_PARQUET_MAGIC = b"PAR1"
_HEAD_BYTES = 12
_NAMES = {PARQUET: "Parquet", TFRECORD: "TFRecords", CSV: "CSV", JSON: "JSON"}


def list_files(what: str, paths: Sequence[str], session: SparkSession | None) -> list[FoundFile]:
    """Return the files of some paths, folders and patterns; each path's are sorted by name, and each has some."""
    found, empty = [], []
    for path in paths:
        whole = path if session is None else path_in_full(path, session)
        # A root is only there to find the file system by.
        root = "/" if is_local(whole) else whole
        try:
            _, files = find_files(whole)
        except ConfigError as error:
            empty += [problem.replace("path=", "data=", 1) for problem in error.problems]
            continue
        if not files:
            empty.append(f"data='{path}': there are no files in this folder")
        found += [FoundFile(DataFile(root, file.path, file.size_bytes), None, file.partition) for file in files]
    if empty or not found:
        raise ConfigError(empty or [f"{what}: there are no files"])
    return found


def find_format(what: str, files: Sequence[FoundFile]) -> str:
    """Return the one format that all files have, by their names or else their first bytes.

    Raises ConfigError for files of several formats, or of one that nodes do not read.
    """
    formats = _of_each(files, _format_of)
    if None in formats:
        path = files[formats.index(None)].file.path
        problem = f"{what}: {path} is neither Parquet nor TFRecords, and its name does not end in .csv or .json"
        raise ConfigError([f"{problem}: name files of one of these, or feed a DataFrame of it"])
    found = {str(format_): files[formats.index(format_)].file.path for format_ in formats}
    if len(found) > 1:
        told = " and ".join(f"{_NAMES[format_]} ({path})" for format_, path in sorted(found.items()))
        raise ConfigError([f"{what}: there are both {told}: name files of one format, as in data='.../*.parquet'"])
    return next(iter(found))


def _format_of(file: DataFile) -> str | None:
    name = file.path.lower().removesuffix(".gz")
    if by_name := next((format_ for ending, format_ in _ENDINGS.items() if name.endswith(ending)), None):
        return by_name
    with readable(file):
        with open_random(file) as source:
            if source.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC:
                return PARQUET
        with open_stream(file) as stream:
            head = stream.read(_HEAD_BYTES)
    return TFRECORD if starts_with_frame(head) or not file.size_bytes else None


# ---- Parquet --------------------------------------------------------------------------------------------------------


def _of_parquet(what: str, files: Sequence[FoundFile]) -> tuple[list[FoundFile], list[SparkField]]:
    """Return the files with their row groups, and their columns.

    Raises FeedError for what cannot be read, or is no Parquet file, and ConfigError as `fields_of`.
    """
    footers = _of_each(files, _read_footer)
    counted = [replace(file, blocks=blocks) for file, (blocks, _) in zip(files, footers, strict=True)]
    return counted, fields_of(what, files, [schema for _, schema in footers])


def _read_footer(file: DataFile) -> tuple[list[Block], pa.Schema]:
    from pyarrow import parquet

    with readable(file), open_random(file) as source:
        opened = parquet.ParquetFile(source)
        metadata = opened.metadata
        groups = ((number, metadata.row_group(number).num_rows) for number in range(metadata.num_row_groups))
        return [(number, rows) for number, rows in groups if rows], opened.schema_arrow


def fields_of(what: str, files: Sequence[FoundFile], schemas: Sequence[pa.Schema]) -> list[SparkField]:
    """Return the columns of all files, those of the folders' names last, as Spark does.

    Raises ConfigError if files differ in their columns, or in the depth of their folders.
    """
    first, schema = files[0], schemas[0]
    for file, other in zip(files[1:], schemas[1:], strict=True):
        if file.partition.keys() != first.partition.keys():
            raise ConfigError([f"{what}: {_difference_of_folders(first, file)}"])
        if not other.equals(schema) and (difference := _difference(first.file.path, schema, file.file.path, other)):
            advice = "feed files of one schema, or have Spark read them (mergeSchema) and feed the DataFrame"
            raise ConfigError([f"{what}: {difference}; {advice}"])
    values = {name: [file.partition[name] for file in files] for name in first.partition}
    own = [field for field in spark_fields(schema) if field["name"] not in values]
    return [*own, *(partition_field(name, some) for name, some in values.items())]


def _difference(path: str, schema: pa.Schema, other_path: str, other: pa.Schema) -> str:
    """Return how schemas differ, in words; nothing if only the order of columns, or what may be null, differs."""
    types, others = ({field.name: field.type for field in fields} for fields in (schema, other))
    for name in types:
        if name not in others:
            return f"column '{name}' is in {path} and not in {other_path}"
        if types[name] != others[name]:
            return f"column '{name}' is {types[name]} in {path} and {others[name]} in {other_path}"
    extra = next((name for name in others if name not in types), None)
    return "" if extra is None else f"column '{extra}' is in {other_path} and not in {path}"


def _difference_of_folders(first: FoundFile, other: FoundFile) -> str:
    def names(file: FoundFile) -> str:
        return ", ".join(f"{name}=" for name in file.partition) or "no columns"

    return (
        f"the folders of {first.file.path} name {names(first)}, and those of {other.file.path} {names(other)}: give "
        "one partitioned folder, or name its files"
    )
