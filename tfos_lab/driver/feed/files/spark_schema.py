"""The Spark schema of Parquet files: what Spark wrote into them, or what it would read from their types.

The other direction of `tfos_lab.data.spark_types`; without pyspark.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyarrow import types

from tfos_lab.data.spark_types import ATOMS as SPARK_ATOMS
from tfos_lab.data.type_table import is_array, is_bytes, is_text

SparkField = dict[str, Any]

_SPARK_KEY = b"org.apache.spark.sql.parquet.row.metadata"
_ATOMS = {
    **{kind: name for name, kind in SPARK_ATOMS.items()},
    # Spark lacks unsigned and half-precision numbers, and reads them as the next wider ones.
    pa.uint8(): "short",
    pa.uint16(): "integer",
    pa.uint32(): "long",
    pa.uint64(): "decimal(20,0)",
    pa.float16(): "float",
}
_KINDS = (
    (is_text, "string"),
    (is_bytes, "binary"),
    (types.is_date, "date"),
    (types.is_time, "time(6)"),
    (types.is_duration, "interval day to second"),
)
_INTEGER = re.compile(r"-?\d{1,18}")
_INT_LIMIT = 2**31


def spark_fields(schema: pa.Schema) -> list[SparkField]:
    """Return the fields of a file's schema as Spark writes them in JSON.

    Examples
    --------
    >>> spark_fields(pa.schema({"x": pa.list_(pa.float32())}))[0]["type"]["elementType"]
    'float'
    """
    written = json.loads((schema.metadata or {}).get(_SPARK_KEY, b'{"fields": []}'))["fields"]
    by_name = {field["name"]: field for field in written}
    return [by_name.get(field.name) or _field(field.name, _spark_type(field.type)) for field in schema]


def partition_field(name: str, values: Iterable[str | None]) -> SparkField:
    """Return the field of a partition's column, of the type that Spark infers from the names of the folders.

    Examples
    --------
    >>> partition_field("year", ["2023", "2024"])["type"], partition_field("day", ["2024-02-29"])["type"]
    ('integer', 'date')
    """
    known = [value for value in values if value is not None]
    if not known:
        return _field(name, "string")
    return _field(name, next((kind for kind, parse in _PARSERS if all(map(parse, known))), "string"))


def _field(name: str, kind: Any) -> SparkField:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _spark_type(kind: pa.DataType) -> Any:
    if kind in _ATOMS:
        return _ATOMS[kind]
    if types.is_dictionary(kind):
        return _spark_type(kind.value_type)
    if is_array(kind):
        return {"type": "array", "elementType": _spark_type(kind.value_type), "containsNull": True}
    if types.is_map(kind):
        key, value = _spark_type(kind.key_type), _spark_type(kind.item_type)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if types.is_struct(kind):
        return {"type": "struct", "fields": [_field(field.name, _spark_type(field.type)) for field in kind]}
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    return next((name for matches, name in _KINDS if matches(kind)), str(kind))


# ---- names of folders -----------------------------------------------------------------------------------------------


def _is_int(value: str) -> bool:
    return _is_long(value) and -_INT_LIMIT <= int(value) < _INT_LIMIT


def _is_long(value: str) -> bool:
    return _INTEGER.fullmatch(value) is not None


def _is_double(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return value[-1:].isdigit()


def _is_date(value: str) -> bool:
    try:
        return dt.date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


_PARSERS = (("integer", _is_int), ("long", _is_long), ("double", _is_double), ("date", _is_date))
