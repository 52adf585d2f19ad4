"""The columns of a feed of files: which of them a file has, and how they get the types that Spark would give them."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tfos_lab.data.spark_types import arrow_type
from tfos_lab.errors import FeedError


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
        """Return the columns wanted of rows of a file.

        Raises
        ------
        FeedError
            If a column is missing or has another type.
        """
        columns = []
        for name, path, kind in self.fields:
            if path[0] in partition:
                columns.append(pa.repeat(partition_value(partition[path[0]], kind), batch.num_rows))
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


def partition_value(value: str | None, kind: pa.DataType) -> pa.Scalar:
    """Return the value of a partition's folder in the type of its column."""
    return pa.scalar(value, pa.string()).cast(kind)


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
