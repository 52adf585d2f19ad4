"""Which feature of a `tf.train.Example` each Spark type becomes, and how its values get there and back.

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
vector (spark.ml)          float list      dense; all of the same length
a null                     no feature      and the other way round
a null inside an array     refused
anything else              refused         with what to do instead
=========================  ==============  ===========================================================================

To support another type, add a `Codec` to `CODECS`: `encode` and `decode` look there. They handle what surrounds the
values (arrays, vectors, nulls, bytes on disk) for all types alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
# What a feature is read as where no schema is given.
INFERRED_TYPES = {FeatureKind.BYTES: "string", FeatureKind.FLOAT: "float", FeatureKind.INT64: "long"}


@dataclass(frozen=True)
class Codec:
    """How flat values of some Arrow types become those of a feature, and back.

    ``to_feature`` maps the values to integers, float32 or large_binary, as ``kind`` holds them; ``from_feature`` maps
    int64, float32 or large_binary values to those of the given type.
    """

    matches: Callable[[pa.DataType], bool]
    kind: FeatureKind
    to_feature: Callable[[pa.Array], pa.Array]
    from_feature: Callable[[pa.Array, pa.DataType], pa.Array]


def _cast(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    return values.cast(wanted)


CODECS = (
    Codec(types.is_boolean, FeatureKind.INT64, lambda values: values.cast(pa.int8()), _cast),
    Codec(types.is_signed_integer, FeatureKind.INT64, lambda values: values, _cast),
    Codec(
        types.is_date32,
        FeatureKind.INT64,
        lambda values: values.view(pa.int32()),
        lambda values, wanted: values.cast(pa.int32()).view(wanted),
    ),
    Codec(
        types.is_timestamp,
        FeatureKind.INT64,
        lambda values: values.cast(pa.timestamp("us", values.type.tz)).view(pa.int64()),
        lambda values, wanted: values.view(pa.timestamp("us", wanted.tz)).cast(wanted),
    ),
    Codec(types.is_floating, FeatureKind.FLOAT, lambda values: values.cast(pa.float32()), _cast),
    Codec(types.is_decimal, FeatureKind.FLOAT, lambda values: values.cast(pa.float32()), _cast),
    Codec(
        is_text,
        FeatureKind.BYTES,
        lambda values: values.cast(pa.large_binary()),
        # Arrow checks that the bytes are UTF-8.
        lambda values, wanted: values.cast(pa.large_string()).cast(wanted),
    ),
    Codec(is_bytes, FeatureKind.BYTES, lambda values: values.cast(pa.large_binary()), _cast),
)


def find_codec(leaf: pa.DataType) -> Codec | None:
    """Return the codec for values of a type, which are in no array any more; None for a type that no list holds."""
    return next((codec for codec in CODECS if codec.matches(leaf)), None)


def kind_of(column_type: pa.DataType) -> FeatureKind | None:
    """Return which list a column's values go into; None for a type that no list holds."""
    if is_vector(column_type):
        return FeatureKind.FLOAT
    codec = find_codec(column_type.value_type if is_array(column_type) else column_type)
    return None if codec is None else codec.kind


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
