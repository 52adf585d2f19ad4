"""The one table of how Spark's types become tensors: a rule for each, or advice on what to do instead.

=====================  =========================  ====================================================================
Spark SQL              tensor, per row            remarks
=====================  =========================  ====================================================================
boolean                bool ()
tinyint ... bigint     int8 ... int64 ()
float, double          float32, float64 ()
decimal(p, s)          float64 ()                 the nearest double up to 15 digits (else 1 bit off)
string                 string ()                  UTF-8 bytes, as TensorFlow holds strings
binary                 string ()                  as they are
date                   int32 ()                   days since 1970-01-01
timestamp              int64 ()                   microseconds since 1970-01-01 00:00 UTC, whatever the session's zone
timestamp_ntz          int64 ()                   microseconds since 1970-01-01 00:00 of the same wall clock
time                   int64 ()                   microseconds since midnight
interval day/time      int64 ()                   microseconds
array<T>               T's dtype (n,)             all rows of the same length, found in the first batch
array<array<T>>        T's dtype (n, m)           and so on, to any depth
vector (spark.ml)      float64 (n,)               dense or sparse
map, struct, variant   refused                    with what to do instead
matrix, void           refused
interval year/month    refused
a null, of any type    refused                    when a batch has one (`batches.to_numpy`)
=====================  =========================  ====================================================================

To support another type, add a `Rule`, and a converter for its kind to `tfos_lab.data.batches`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from pyarrow import types

ColumnKind = Literal["number", "bool", "decimal", "string", "binary", "date", "timestamp", "time", "duration", "vector"]


@dataclass(frozen=True)
class Rule:
    """A type that becomes a tensor: types that ``matches`` accepts are of this kind and dtype."""

    matches: Callable[[pa.DataType], bool]
    kind: ColumnKind
    dtype: str


@dataclass(frozen=True)
class UnsupportedType:
    """A type that becomes no tensor, and what to do instead; ``{name}`` in the advice is the column's name."""

    matches: Callable[[pa.DataType], bool]
    advice: str


def _has_fields(*names: str) -> Callable[[pa.DataType], bool]:
    wanted = list(names)
    return lambda kind: types.is_struct(kind) and [kind.field(i).name for i in range(kind.num_fields)] == wanted


is_vector = _has_fields("type", "size", "indices", "values")  # what Spark sends for pyspark.ml.linalg's VectorUDT
_is_matrix = _has_fields("type", "numRows", "numCols", "colPtrs", "rowIndices", "values", "isTransposed")
_is_variant = _has_fields("value", "metadata")


def is_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type holds text, whatever the width of its offsets."""
    return bool(types.is_string(kind) or types.is_large_string(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether an Arrow type holds bytes, of any or of fixed length."""
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def is_array(kind: pa.DataType) -> bool:
    """Whether an Arrow type is a list, of any or of fixed length."""
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


RULES = (
    Rule(types.is_boolean, "bool", "bool"),
    Rule(types.is_int8, "number", "int8"),
    Rule(types.is_int16, "number", "int16"),
    Rule(types.is_int32, "number", "int32"),
    Rule(types.is_int64, "number", "int64"),
    Rule(types.is_float32, "number", "float32"),
    Rule(types.is_float64, "number", "float64"),
    Rule(is_text, "string", "object"),
    Rule(is_bytes, "binary", "object"),
    Rule(types.is_decimal, "decimal", "float64"),
    Rule(types.is_date, "date", "int32"),
    Rule(types.is_timestamp, "timestamp", "int64"),
    Rule(types.is_time, "time", "int64"),
    Rule(types.is_duration, "duration", "int64"),
    Rule(is_vector, "vector", "float64"),
    # Spark has none of these, but Arrow batches from elsewhere may have.
    Rule(types.is_uint8, "number", "uint8"),
    Rule(types.is_uint16, "number", "uint16"),
    Rule(types.is_uint32, "number", "uint32"),
    Rule(types.is_uint64, "number", "uint64"),
    Rule(types.is_float16, "number", "float16"),
)

UNSUPPORTED = (
    UnsupportedType(_is_matrix, "make it an array column (of the values, row by row), and ask for the shape you need"),
    UnsupportedType(
        _is_variant, "take what you need out of it: F.variant_get('{name}', '$.field', 'double').alias('field')"
    ),
    UnsupportedType(types.is_struct, "feed its fields as columns of their own: columns=['{name}.{field}', ...]"),
    UnsupportedType(types.is_map, "take the keys you need into columns: df.withColumn('key', df['{name}']['key'])"),
    UnsupportedType(types.is_null, "give it a type (df['{name}'].cast('float')) and values, or leave the column out"),
    UnsupportedType(types.is_interval, "make it a number of months: df['{name}'].cast('int')"),
)
_NO_RULE = "cast it to a number, a string or an array of numbers, or leave the column out"


def find_rule(kind: pa.DataType) -> tuple[Rule | None, tuple[int | None, ...]]:
    """Return the rule for an Arrow type, and the shape that the arrays around its values give.

    The rule is None if the type is not supported. The shape has one entry for each array, and one for a vector; None
    for a length that only the data tell.
    """
    shape: tuple[int | None, ...] = ()
    while is_array(kind):
        shape += (kind.list_size if types.is_fixed_size_list(kind) else None,)
        kind = kind.value_type
    if types.is_dictionary(kind):
        kind = kind.value_type
    for rule in RULES:
        if rule.matches(kind):
            return rule, shape + ((None,) if rule.kind == "vector" else ())
    return None, shape


def find_advice(name: str, kind: pa.DataType) -> str:
    """Return what to do about a column whose type is not supported."""
    inner = kind
    while is_array(inner):
        inner = inner.value_type
    if inner is not kind and (types.is_struct(inner) or types.is_map(inner)):
        return f"take one field of each element: F.transform('{name}', lambda element: element['field'])"
    for unsupported in UNSUPPORTED:
        if unsupported.matches(inner):
            field = inner.field(0).name if types.is_struct(inner) and inner.num_fields else "field"
            return unsupported.advice.format(name=name, field=field)
    return _NO_RULE
