"""Typed columns as Python rows: what `DataFrame.collect` would give, as tuples with the names of their columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tfos_lab.data.spark_versions import rows_of_batches

# Spark's types whose values Arrow gives as Spark does, also within arrays.
_PLAIN = ("byte", "short", "integer", "long", "float", "double", "boolean", "string", "date")


def decoder(schema: str) -> Callable[[pa.RecordBatch], list[Any]]:
    """Return a function that returns the rows of record batches; ``schema`` is Spark's, in JSON.

    They are pyspark's `Row` where pyspark can be imported, else tuples.
    """
    fields = json.loads(schema)["fields"]
    try:
        import pyspark.sql  # noqa: F401 - only whether there is one
    except ImportError:
        return _tuples
    if all(_is_plain(field["type"]) for field in fields):
        return _rows_of([field["name"] for field in fields])
    # Times, user-defined types and Spark's own settings are left to Spark.
    return rows_of_batches(schema)


def _is_plain(kind: Any) -> bool:
    while isinstance(kind, dict) and kind["type"] == "array":
        kind = kind["elementType"]
    return kind in _PLAIN or (isinstance(kind, str) and kind.startswith("decimal"))


def _tuples(batch: pa.RecordBatch) -> list[Any]:
    return list(zip(*(_values(column) for column in batch.columns), strict=True))


def _rows_of(names: list[str]) -> Callable[[pa.RecordBatch], list[Any]]:
    from pyspark.sql import Row

    make = Row(*names)
    return lambda batch: [make(*values) for values in _tuples(batch)]


def _values(column: pa.Array) -> list[Any]:
    if not column.null_count and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return list(column.to_numpy().tolist())  # much faster than `to_pylist`
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return list(column.to_numpy(zero_copy_only=False).tolist())
    if not column.null_count and pa.types.is_fixed_size_list(column.type):
        flat, size = _values(column.flatten()), column.type.list_size
        return [flat[start : start + size] for start in range(0, len(flat), size)]
    return list(column.to_pylist())
