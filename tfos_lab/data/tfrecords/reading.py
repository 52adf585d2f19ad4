"""The work of Spark's reader: finds the schema and the files on the driver, and reads files on the executors."""

from __future__ import annotations

import operator
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs

from tfos_lab.data.file_systems import open_path
from tfos_lab.data.spark_versions import arrow_schema
from tfos_lab.data.tfrecords.codecs import (
    INFERRED_TYPES,
    KIND_NAMES,
    FeatureKind,
    check_columns,
    count_values,
    decode,
    find_features,
)
from tfos_lab.data.tfrecords.framing import Frames, read_frames
from tfos_lab.data.tfrecords.options import ReadOptions
from tfos_lab.data.tfrecords.paths import Found, find_files, open_records
from tfos_lab.errors import ConfigError, RecordError

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType


# Files are grouped up to this size for one task; Spark assumes that opening a file costs as much as reading 4 MB.
_GROUP_BYTES = 4 << 20
_BATCH_ROWS = 10_000
_SAMPLED_FILES = 100
_INTEGER = re.compile(r"-?\d{1,18}")

# The files of one task: path, path within the file system, partition. Plain values, as Spark pickles them for workers
# that need not have tfos_lab.
Group = list[tuple[str, str, dict[str, str | None]]]


@dataclass
class _Seen:
    kind: FeatureKind
    path: str
    is_list: bool = False


def infer_schema(options: dict[str, str]) -> StructType:
    """Infer the schema of files from their first records.

    A feature with one value in each record becomes a scalar column, others become arrays: of ``bigint``, ``float``, and
    ``string`` or (for `binary_features`) ``binary``. Columns are ordered by name; partition columns come last.
    """
    from pyspark.sql.types import StructType

    read = ReadOptions.of(options)
    listings = [find_files(path) for path in read.paths]
    found = [(system, file) for system, files in listings for file in files]
    return StructType.fromJson({"type": "struct", "fields": infer_fields(read, found)})


def infer_fields(read: ReadOptions, found: Sequence[tuple[fs.FileSystem, Found]]) -> list[dict[str, Any]]:
    """Infer the schema of files as `infer_schema` does; return its fields as Spark writes them in JSON."""
    features: dict[str, _Seen] = {}
    has_records = False
    some = found if not read.sample else found[:: max(1, len(found) // _SAMPLED_FILES)]
    for system, file in some:
        left = max(1, read.sample // len(some)) if read.sample else None
        with open_records(system, file.path) as stream:
            for frames in read_frames(stream, file.path):
                has_records = True
                _look(frames, features)
                left = None if left is None else left - len(frames)
                if left is not None and left <= 0:
                    break
    if not features:
        what = "their records hold no values" if has_records else "no records"
        raise ConfigError([f"{', '.join(read.paths)}: {what} to infer a schema from; give one"])
    types: dict[str, Any] = {}
    for name, seen in sorted(features.items()):
        is_binary = seen.kind is FeatureKind.BYTES and name in read.binary_features
        leaf = "binary" if is_binary else INFERRED_TYPES[seen.kind]
        types[name] = {"type": "array", "elementType": leaf, "containsNull": True} if seen.is_list else leaf
    values: dict[str, list[str]] = {}
    for _, file in found:
        for name, value in file.partition.items():
            values.setdefault(name, []).extend([] if value is None else [value])
    for name, known in values.items():
        types.pop(name, None)
        types[name] = "long" if known and all(map(_INTEGER.fullmatch, known)) else "string"
    return [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]


def _look(frames: Frames, features: dict[str, _Seen]) -> None:
    frames, regions = find_features(frames)
    for name, region in regions.items():
        for number in sorted(set(region.kinds.tolist()) - {FeatureKind.NONE}):
            kind = FeatureKind(number)
            counts = count_values(frames, region, kind)
            is_list = bool((counts[region.kinds == kind] != 1).any())
            seen = features.setdefault(name, _Seen(kind, frames.path))
            if seen.kind is not kind:
                raise RecordError(
                    reason=f"feature '{name}' holds {KIND_NAMES[seen.kind]} in {seen.path} and {KIND_NAMES[kind]} in "
                    f"{frames.path}: leave it out by a schema without it, or write the files anew"
                )
            seen.is_list = seen.is_list or is_list


def plan_read(options: dict[str, str], schema: StructType, filters: Sequence[Filter] = ()) -> list[Group]:
    """Return which files each task reads, without those whose partition values fail one of Spark's filters."""
    check_columns(schema.json())
    types = {field.name: field.type for field in arrow_schema(schema)} if filters else {}
    groups: list[Group] = []
    for path in ReadOptions.of(options).paths:
        _, files = find_files(path)
        wanted = []
        for file in files:
            values = {
                name: pa.scalar(value, pa.string()).cast(types.get(name, pa.string())).as_py()
                for name, value in file.partition.items()
            }
            if all(_passes(condition, values) is not False for condition in filters):
                wanted.append(file)
        groups += [[(path, file.path, dict(file.partition)) for file in some] for some in _grouped(wanted)]
    return groups


def _grouped(files: Sequence[Found]) -> Iterator[list[Found]]:
    group: list[Found] = []
    size = 0
    for file in files:
        if group and size + file.size_bytes > _GROUP_BYTES:
            yield group
            group, size = [], 0
        group.append(file)
        size += file.size_bytes
    if group:
        yield group


def read_group(schema: StructType, group: Group | None) -> Iterator[pa.RecordBatch]:
    """Read the files of one task."""
    target = arrow_schema(schema)
    for path, plain, partition in group or []:
        system, _ = open_path(path)
        stored = pa.schema([field for field in target if field.name not in partition])
        with _open_seen(system, plain) as stream:
            for frames in read_frames(stream, plain):
                batch = _with_partition(decode(frames, stored), partition, target)
                for first in range(0, batch.num_rows, _BATCH_ROWS):
                    yield batch.slice(first, _BATCH_ROWS)


def _open_seen(system: fs.FileSystem, plain: str) -> IO[bytes]:
    """Open a file that the driver has listed."""
    try:
        return open_records(system, plain)
    except FileNotFoundError as error:
        reason = (
            f"{plain}: the driver sees this file, {socket.gethostname()} does not: put it where the driver and all "
            "executors find it, or name the file system (hdfs://...)"
        )
        raise RecordError(reason=reason) from error


def _with_partition(batch: pa.RecordBatch, partition: dict[str, str | None], target: pa.Schema) -> pa.RecordBatch:
    if not any(field.name in partition for field in target):
        return batch
    columns = []
    for field in target:
        if field.name in partition:
            value = pa.scalar(partition[field.name], pa.string()).cast(field.type)
            columns.append(pa.repeat(value, batch.num_rows))
        else:
            columns.append(batch.column(field.name))
    return pa.RecordBatch.from_arrays(columns, schema=target)


# By the names of Spark's classes; a folder without a value passes none of them.
_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "In": lambda value, several: value in several,
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": operator.contains,
}


def _passes(condition: Any, values: Mapping[str, Any]) -> bool | None:
    """Whether rows with these values of folders pass a filter; None where that is not known here."""
    name = type(condition).__name__
    if name == "Not":
        inner = _passes(condition.child, values)
        return None if inner is None else not inner
    column = ".".join(condition.attribute)
    if column not in values:
        return None
    value = values[column]
    if name in ("IsNull", "IsNotNull"):
        return (value is None) is (name == "IsNull")
    if name not in _TESTS:
        return None
    return value is not None and bool(_TESTS[name](value, condition.value))
