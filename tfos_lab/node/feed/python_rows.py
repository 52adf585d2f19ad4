"""Rows as Python values: those of typed columns, and those that are Python objects.

Each object is pickled by itself, into one binary column of Arrow record batches. They are pickled and unpickled in
Spark's Python workers and in the nodes' processes only. Everything between these (tasks, spool, exchanges) passes on
bytes.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from tfos_lab.data.spark_versions import rows_of_batches
from tfos_lab.errors import FeedError
from tfos_lab.texts import first_line

# Spark's schema of the one column, as `FeedOpen` and `InferenceOpen` have it.
OBJECTS_SCHEMA = '{"type":"struct","fields":[{"name":"object","type":"binary","nullable":false,"metadata":{}}]}'
COLUMN = "object"
_SCHEMA = pa.schema([pa.field(COLUMN, pa.binary(), nullable=False)])
_PROTOCOL = 5
# Limits of one record batch. Small rows are cheaper the more of them go at once; large ones must not fill the memory.
_ROWS_AT_ONCE = 4096
_BYTES_AT_ONCE = 4 << 20


def encode(objects: Iterable[Any], *, what: str = "a row") -> pa.RecordBatch:
    """Return a record batch of pickled objects; for one that cannot be pickled, a FeedError names it by ``what``.

    Examples
    --------
    >>> decode(encode(["a", None, (1, [2.0])]))
    ['a', None, (1, [2.0])]
    """
    return _batch([_dumps(row, what) for row in objects])


def decode(batch: pa.RecordBatch, *, what: str = "a row", where: str = "on this node") -> list[Any]:
    """Return the objects of a record batch.

    For one that cannot be unpickled, a FeedError names ``what`` it was, and ``where``.
    """
    # Much faster than `to_pylist`, which makes an Arrow scalar of each value first.
    pickled = batch.column(0).to_numpy(zero_copy_only=False).tolist()
    try:
        return list(map(pickle.loads, pickled))
    except Exception as error:
        raise FeedError(
            reason=f"{what} cannot be unpickled {where} ({type(error).__name__}: {first_line(error)}): make it "
            "of values whose types can be imported there, or map it to plain Python values"
        ) from error


def encoded(rows: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    """Yield objects as record batches."""
    pickled: list[bytes] = []
    size = 0
    for row in rows:
        pickled.append(_dumps(row))
        size += len(pickled[-1])
        if size >= _BYTES_AT_ONCE or len(pickled) >= _ROWS_AT_ONCE:
            yield _batch(pickled)
            pickled, size = [], 0
    if pickled:
        yield _batch(pickled)


def _batch(pickled: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(pickled, pa.binary())], schema=_SCHEMA)


def _dumps(row: Any, what: str = "a row") -> bytes:
    try:
        data = pickle.dumps(row, _PROTOCOL)
    except Exception as error:  # noqa: BLE001 - `pickle` raises whatever an object's own methods raise
        return _dumps_by_value(row, error, what)
    # Where the row goes, that is another module.
    return _dumps_by_value(row, None, what) if b"__main__" in data else data


def _dumps_by_value(row: Any, error: Exception | None, what: str) -> bytes:
    """Pickle an object together with its class, which cannot be imported elsewhere, such as one of a notebook."""
    # Imported here: few rows need it.
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(row, _PROTOCOL)
    except Exception as own:  # noqa: BLE001 - as above
        error = error or own
        kind = type(row)
        package = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        raise FeedError(
            reason=f"{what} of type {package}{kind.__qualname__} cannot be pickled ({type(error).__name__}: "
            f"{first_line(error)}): map it to values that can be pickled, such as a tuple of what you need"
        ) from error
    return data


# ---- rows of typed columns -------------------------------------------------------------------------------------------

# Spark's types whose values Arrow gives as Spark does, also within arrays.
_PLAIN = ("byte", "short", "integer", "long", "float", "double", "boolean", "string", "date")


def decoder(schema: str, *, objects: bool) -> Callable[[pa.RecordBatch], list[Any]]:
    """Return a function that returns the rows of record batches: of ``objects``, or of Spark's ``schema`` in JSON.

    The latter are what `DataFrame.collect` would give: pyspark's `Row` where pyspark can be imported, else tuples.
    """
    if objects:
        return decode
    fields = json.loads(schema)["fields"]
    try:
        from pyspark.sql import Row
    except ImportError:
        return _tuples
    if all(_is_plain(field["type"]) for field in fields):
        make = Row(*(field["name"] for field in fields))
        return lambda batch: [make(*values) for values in _tuples(batch)]
    # Times, user-defined types and Spark's own settings are left to Spark.
    return rows_of_batches(schema)


def _is_plain(kind: Any) -> bool:
    while isinstance(kind, dict) and kind["type"] == "array":
        kind = kind["elementType"]
    return kind in _PLAIN or (isinstance(kind, str) and kind.startswith("decimal"))


def _tuples(batch: pa.RecordBatch) -> list[Any]:
    return list(zip(*(_values(column) for column in batch.columns), strict=True))


def _values(column: pa.Array) -> list[Any]:
    if not column.null_count and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return list(column.to_numpy().tolist())  # much faster than `to_pylist`
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return list(column.to_numpy(zero_copy_only=False).tolist())
    if not column.null_count and pa.types.is_fixed_size_list(column.type):
        flat, size = _values(column.flatten()), column.type.list_size
        return [flat[start : start + size] for start in range(0, len(flat), size)]
    return list(column.to_pylist())
