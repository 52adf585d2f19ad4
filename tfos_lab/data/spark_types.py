"""Spark's schemas as Arrow types, and as SQL writes them; without pyspark.

``df.schema.json()`` is the one form of a schema that classic Spark, Spark Connect and all versions share.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

SparkType = str | Mapping[str, Any]

# Stands for a type without a known counterpart; no rule matches it.
UNKNOWN = pa.sparse_union([])

ATOMS = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "variant": pa.struct([("value", pa.binary()), ("metadata", pa.binary())]),
}
# Simple types with parameters or units in their names, such as decimal(10,2), char(4), time(6), interval day to second.
_PATTERNS = (
    (re.compile(r"(char|varchar)\(\d+\)|string collate .*"), pa.string()),
    (re.compile(r"time(\(\d+\))?"), pa.time64("ns")),
    (re.compile(r"interval (year|month).*|interval"), pa.month_day_nano_interval()),
    (re.compile(r"interval (day|hour|minute|second).*"), pa.duration("us")),
)
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
SQL_NAMES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_UDT_NAMES = {"VectorUDT": "vector", "MatrixUDT": "matrix"}


def arrow_columns(schema: str | Mapping[str, Any]) -> list[tuple[str, pa.DataType, str]]:
    """Return a Spark schema's columns: name, the Arrow type that Spark sends for it, and its type in SQL.

    Examples
    --------
    >>> arrow_columns('{"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": true}]}')
    [('n', DataType(int64), 'bigint')]
    """
    tree = json.loads(schema) if isinstance(schema, str) else schema
    return [(field["name"], arrow_type(field["type"]), sql_name(field["type"])) for field in tree["fields"]]


def arrow_type(spark_type: SparkType) -> pa.DataType:
    """Return the Arrow type that Spark sends for one of its types, or `UNKNOWN`."""
    if isinstance(spark_type, str):
        return _arrow_atom(spark_type)
    match spark_type["type"]:
        case "array":
            return pa.list_(arrow_type(spark_type["elementType"]))
        case "map":
            return pa.map_(arrow_type(spark_type["keyType"]), arrow_type(spark_type["valueType"]))
        case "struct":
            return pa.struct([(field["name"], arrow_type(field["type"])) for field in spark_type["fields"]])
        case "udt":
            return arrow_type(spark_type["sqlType"])
    return UNKNOWN


def sql_name(spark_type: SparkType) -> str:
    """Return a type's name in Spark SQL, such as ``array<bigint>``; for spark.ml's types ``vector`` and ``matrix``."""
    if isinstance(spark_type, str):
        return SQL_NAMES.get(spark_type, spark_type)
    match spark_type["type"]:
        case "array":
            return f"array<{sql_name(spark_type['elementType'])}>"
        case "map":
            return f"map<{sql_name(spark_type['keyType'])},{sql_name(spark_type['valueType'])}>"
        case "struct":
            fields = ",".join(f"{field['name']}:{sql_name(field['type'])}" for field in spark_type["fields"])
            return f"struct<{fields}>"
        case "udt":
            name = udt_name(spark_type) or "udt"
            return _UDT_NAMES.get(name, name)
    return str(spark_type["type"])


def udt_name(spark_type: SparkType) -> str | None:
    """Return the class of a user-defined type, such as ``VectorUDT``; None for any other type."""
    if isinstance(spark_type, str) or spark_type["type"] != "udt":
        return None
    path = spark_type.get("pyClass") or spark_type.get("class") or ""
    return str(path).rpartition(".")[2] or None


def _arrow_atom(name: str) -> pa.DataType:
    if name in ATOMS:
        return ATOMS[name]
    if name == "decimal":
        return pa.decimal128(10, 0)
    if decimal := _DECIMAL.fullmatch(name):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return next((kind for pattern, kind in _PATTERNS if pattern.fullmatch(name)), UNKNOWN)
