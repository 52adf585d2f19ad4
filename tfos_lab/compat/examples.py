"""Rows as serialized `tf.train.Example`s and back, with TensorFlow's own class; for `dfutil`, in Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tfos_lab.errors import ConfigError

if TYPE_CHECKING:
    import tensorflow as tf
    from pyspark.sql import Row

_FLOATS = ("float", "double")
_INTEGERS = ("boolean", "tinyint", "smallint", "int", "bigint", "long")
_BYTES = ("binary", "string")


def list_of(dtype: str) -> str:
    """Return which list of a feature holds a column's values, by the column's type in ``df.dtypes``.

    Raises
    ------
    ConfigError
        For a type that no feature holds.
    """
    leaf = dtype.removeprefix("array<").removesuffix(">")
    for name, leaves in (("float_list", _FLOATS), ("int64_list", _INTEGERS), ("bytes_list", _BYTES)):
        if leaf in leaves:
            return name
    advice = "a tf.train.Example holds numbers, strings, binary and arrays of them"
    raise ConfigError([f"Unsupported dtype: {dtype}: {advice}"])


def to_examples(rows: Iterable[Row], dtypes: Sequence[tuple[str, str]]) -> list[tuple[bytearray, None]]:
    """Make a pair of each row: a serialized example, and None. A null becomes no feature."""
    import tensorflow as tf

    makers = [(name, _maker(dtype)) for name, dtype in dtypes]
    pairs = []
    for row in rows:
        features = {name: make(row[name]) for name, make in makers if row[name] is not None}
        example = tf.train.Example(features=tf.train.Features(feature=features))
        pairs.append((bytearray(example.SerializeToString()), None))
    return pairs


def _maker(dtype: str) -> Callable[[Any], tf.train.Feature]:
    """Return a function that makes a feature of a column's value."""
    import tensorflow as tf

    name = list_of(dtype)
    kind = {"float_list": tf.train.FloatList, "int64_list": tf.train.Int64List, "bytes_list": tf.train.BytesList}[name]
    is_array = dtype.startswith("array<")

    def make(value: Any) -> tf.train.Feature:
        values = value if is_array else [value]
        if name == "int64_list":  # of booleans, too
            values = [int(item) for item in values]
        elif name == "bytes_list":
            values = [item.encode() if isinstance(item, str) else bytes(item) for item in values]
        return tf.train.Feature(**{name: kind(value=values)})

    return make


def from_examples(pairs: Iterable[Sequence[Any]], binary_features: Collection[str]) -> list[Row]:
    """Make a row of each serialized example, with its features as columns, ordered by name."""
    import tensorflow as tf
    from pyspark.sql import Row

    rows = []
    for pair in pairs:
        features = tf.train.Example.FromString(bytes(pair[0])).features.feature
        rows.append(Row(**{name: _value(features[name], name in binary_features) for name in sorted(features)}))
    return rows


def _value(feature: tf.train.Feature, is_binary: bool) -> Any:
    """Return a feature's one value, a list of several, or None for an empty one."""
    held = feature.WhichOneof("kind")
    values = list(getattr(feature, held).value) if held else []
    if held == "bytes_list":
        values = [bytearray(item) if is_binary else item.decode() for item in values]
    return values if len(values) > 1 else values[0] if values else None
