"""Which feature of a `tf.train.Example` each Spark type becomes, and comes back from.

=========================  ==============  ===========================================================================
Spark SQL                  feature         remarks
=========================  ==============  ===========================================================================
boolean                    int64 list      0 and 1
tinyint ... bigint         int64 list
date                       int64 list      days since 1970-01-01
timestamp, timestamp_ntz   int64 list      microseconds since 1970-01-01 00:00, UTC or of the same wall clock
float                      float list
double, decimal            float list      rounded to float: an Example has nothing finer
string, binary             bytes list      strings in UTF-8
array<any of these>        the same list   of any length in each row
vector (spark.ml)          float list      dense; all equally long
a null                     no feature      and the other way round
a null inside an array     refused
anything else              refused         each with what to do instead
=========================  ==============  ===========================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import pyarrow as pa
from pyarrow import types

from tfos_lab.data.spark_types import arrow_columns
from tfos_lab.data.type_table import is_array, is_bytes, is_text, is_vector
from tfos_lab.errors import ConfigError


class FeatureKind(IntEnum):
    """The three lists that a feature can be, by their numbers in its message; ``NONE`` is a feature without any."""

    NONE = 0
    BYTES = 1
    FLOAT = 2
    INT64 = 3


KIND_NAMES = {
    FeatureKind.NONE: "nothing",
    FeatureKind.BYTES: "bytes",
    FeatureKind.FLOAT: "floats",
    FeatureKind.INT64: "integers",
}


def kind_of(column_type: pa.DataType) -> FeatureKind | None:
    """Return which list a column's values go into; None for a type that no list holds."""
    if is_vector(column_type):
        return FeatureKind.FLOAT
    leaf = column_type.value_type if is_array(column_type) else column_type
    if types.is_boolean(leaf) or types.is_signed_integer(leaf) or types.is_date32(leaf) or types.is_timestamp(leaf):
        return FeatureKind.INT64
    if types.is_floating(leaf) or types.is_decimal(leaf):
        return FeatureKind.FLOAT
    return FeatureKind.BYTES if is_text(leaf) or is_bytes(leaf) else None


def check_columns(schema: str | Mapping[str, Any]) -> None:
    """Raise a ConfigError with every column of a Spark schema (as JSON) that has no feature, and what to do."""
    columns = arrow_columns(schema)
    problems = [
        f"column '{name}' of type {label} has no place in a tf.train.Example: {_advice(name, kind)}"
        for name, kind, label in columns
        if kind_of(kind) is None
    ]
    names = [name for name, _, _ in columns]
    problems += [
        f"column '{name}' is there twice: rename one" for name in sorted({n for n in names if names.count(n) > 1})
    ]
    if problems:
        raise ConfigError(problems)


def check_folders(schema: str | Mapping[str, Any]) -> None:
    """Raise a ConfigError with every column of a Spark schema whose values cannot be names of folders."""
    problems = [
        f"partition_by: column '{name}' of type {label} cannot name folders: make it a string, a number or a date"
        for name, kind, label in arrow_columns(schema)
        if not (
            is_text(kind)
            or (kind_of(kind) in (FeatureKind.INT64, FeatureKind.FLOAT) and not is_array(kind) and not is_vector(kind))
        )
    ]
    if problems:
        raise ConfigError(problems)


def _advice(name: str, kind: pa.DataType) -> str:
    if is_array(kind) and is_array(kind.value_type):
        return f"flatten it (F.flatten('{name}')), and reshape where you read it"
    if is_array(kind):
        return f"take one field of each element: F.transform('{name}', lambda element: element['field'])"
    if types.is_map(kind):
        return f"take the keys you need into columns: df.withColumn('key', df['{name}']['key'])"
    if types.is_struct(kind):
        return f"make its fields columns of their own: df.select('*', '{name}.*').drop('{name}')"
    return f"cast it to a number or a string: df.withColumn('{name}', df['{name}'].cast('string'))"
