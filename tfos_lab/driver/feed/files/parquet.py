"""Parquet files as the driver sees them: their footers give the rows of each row group, and the columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfos_lab.core.messages import DataFile
from tfos_lab.driver.feed.files.shares import Block, FoundFile
from tfos_lab.driver.feed.files.spark_schema import SparkField, partition_field, spark_fields
from tfos_lab.errors import ConfigError
from tfos_lab.node.feed.files.opened import open_random, readable

if TYPE_CHECKING:
    import pyarrow as pa

_THREADS = 16


@dataclass(frozen=True)
class Footer:
    """What a file says of its rows."""

    blocks: list[Block]
    schema: pa.Schema


def read_footers(files: Sequence[FoundFile]) -> list[Footer]:
    """Read the footers of all files.

    Raises
    ------
    FeedError
        If a file cannot be read, or is no Parquet file.
    """
    with ThreadPoolExecutor(_THREADS, "tfos-footers") as pool:
        return list(pool.map(_read_footer, [file.file for file in files]))


def _read_footer(file: DataFile) -> Footer:
    from pyarrow import parquet

    with readable(file), open_random(file) as source:
        opened = parquet.ParquetFile(source)
        metadata = opened.metadata
        groups = ((number, metadata.row_group(number).num_rows) for number in range(metadata.num_row_groups))
        return Footer([(number, rows) for number, rows in groups if rows], opened.schema_arrow)


def fields_of(what: str, files: Sequence[FoundFile], schemas: Sequence[pa.Schema]) -> list[SparkField]:
    """Return the columns of all files, those of the folders' names last, as Spark does.

    Raises
    ------
    ConfigError
        If files differ in their columns, or in the depth of their folders.
    """
    first, schema = files[0], schemas[0]
    for file, other in zip(files[1:], schemas[1:], strict=True):
        if file.partition.keys() != first.partition.keys():
            raise ConfigError([f"{what}: {_difference_of_folders(first, file)}"])
        if not other.equals(schema) and (difference := _difference(schema, other)):
            told = difference.format(first=first.file.path, other=file.file.path)
            advice = "feed files of one schema, or have Spark read them (mergeSchema) and feed the DataFrame"
            raise ConfigError([f"{what}: {told}; {advice}"])
    values = {name: [file.partition[name] for file in files] for name in first.partition}
    own = [field for field in spark_fields(schema) if field["name"] not in values]
    return [*own, *(partition_field(name, some) for name, some in values.items())]


def _difference(first: pa.Schema, other: pa.Schema) -> str:
    """Return how schemas differ, in words; nothing if only the order of columns, or what may be null, differs."""
    types, others = _types(first), _types(other)
    for name in types:
        if name not in others:
            return f"column '{name}' is in {{first}} and not in {{other}}"
        if types[name] != others[name]:
            return (
                f"column '{name}' is {_type_text(types[name])} in {{first}} and {_type_text(others[name])} in {{other}}"
            )
    extra = next((name for name in others if name not in types), None)
    return "" if extra is None else f"column '{extra}' is in {{other}} and not in {{first}}"


def _types(fields: Iterable[pa.Field]) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in fields}


def _type_text(kind: pa.DataType) -> str:
    return str(kind).replace("{", "{{").replace("}", "}}")


def _difference_of_folders(first: FoundFile, other: FoundFile) -> str:
    def names(file: FoundFile) -> str:
        return ", ".join(f"{name}=" for name in file.partition) or "no columns"

    return (
        f"the folders of {first.file.path} name {names(first)}, and those of {other.file.path} {names(other)}: give "
        "one partitioned folder, or name its files"
    )
