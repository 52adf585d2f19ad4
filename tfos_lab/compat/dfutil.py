"""DataFrames as TFRecord files of `tf.train.Example`s, and back.

The files are written and read by `tfos_lab.data.tfrecords`: without a JAR, and without TensorFlow. New programs use
`tfos_lab.data.write_tfrecords` and `read_tfrecords`, which keep floats as they are and have more options.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from tfos_lab.core.code_archive import make_finder
from tfos_lab.data.file_systems import exists
from tfos_lab.data.frames import path_in_full
from tfos_lab.data.tfrecords.codecs import encode
from tfos_lab.data.tfrecords.tables import read_tfrecords, write_tfrecords
from tfos_lab.errors import ConfigError

if TYPE_CHECKING:
    import tensorflow as tf
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.types import DataType, StructType

# DataFrame → the folder that it was loaded from, for as long as the DataFrame is used.
loadedDF: MutableMapping[DataFrame, str] = WeakKeyDictionary()


def isLoadedDF(df: DataFrame) -> bool:
    """Whether `loadTFRecords` has made this very DataFrame."""
    return df in loadedDF


def saveAsTFRecords(df: DataFrame, output_dir: str) -> None:
    """Save a DataFrame as TFRecord files: one for each partition that has rows.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Its columns are numbers, strings, binary, or arrays of them; `tfos_lab.data.tfrecords.codecs` lists all types.
    output_dir : str
        The folder, which must not exist: on the file system that Spark writes to by default, or with a scheme.

    Raises
    ------
    ConfigError
        For a folder that exists, or columns that cannot be saved; before anything is computed.
    RecordError
        For rows that cannot be saved.
    """
    if exists(path_in_full(output_dir, df.sparkSession)):
        raise ConfigError([f"output_dir='{output_dir}' exists already: name another folder, or remove it first"])
    write_tfrecords(df, output_dir)


def loadTFRecords(sc: SparkContext, input_dir: str, binary_features: Collection[str] = []) -> DataFrame:  # noqa: ARG001 - as in TFoS
    """Load TFRecord files as a DataFrame, with a column for each feature, ordered by name.

    A feature of one value in each record becomes a bigint, double or string; others become arrays. A feature that a
    record lacks is null.

    Parameters
    ----------
    sc : pyspark.SparkContext
        Of the session to use.
    input_dir : str
        A folder, a file or a pattern; or several, separated by commas.
    binary_features : collection of str
        Features whose bytes are no text; they become binary instead of string.

    Raises
    ------
    ConfigError, RecordError
        If there are no such files, or no records in them.
    """
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructField, StructType

    session = SparkSession.builder.getOrCreate()
    paths = [path for path in input_dir.split(",") if path]
    found = read_tfrecords(session, paths, binary_features=binary_features).schema
    schema = StructType([StructField(field.name, _widened(field.dataType)) for field in found])
    df = read_tfrecords(session, paths, schema)
    loadedDF[df] = input_dir
    return df


def _widened(found: DataType) -> DataType:
    """Return a column's type with doubles for floats."""
    from pyspark.sql.types import ArrayType, DoubleType, FloatType

    if isinstance(found, ArrayType):
        return ArrayType(_widened(found.elementType))
    return DoubleType() if isinstance(found, FloatType) else found


# ---- rows as examples ------------------------------------------------------------------------------------------------

# Rows that are made at a time: a partition is not held as columns, too.
_ROWS_AT_ONCE = 1000
# By their names in ``df.dtypes``.
_LEAVES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    **dict.fromkeys(("bigint", "long"), pa.int64()),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.large_string(),
    "binary": pa.large_binary(),
}


def _arrow_type(dtype: str) -> pa.DataType:
    """Return the type of a column, by that in ``df.dtypes``."""
    leaf = _LEAVES.get(dtype.removeprefix("array<").removesuffix(">"))
    if leaf is None:
        advice = "a tf.train.Example holds numbers, strings, binary and arrays of them"
        raise ConfigError([f"Unsupported dtype: {dtype}: {advice}"])
    return pa.list_(leaf) if dtype.startswith("array<") else leaf


def to_examples(rows: Iterable[Row], dtypes: Sequence[tuple[str, str]]) -> list[tuple[bytearray, None]]:
    """Make a pair of each row: a serialized example, and None. A null becomes no feature."""
    rows, pairs = iter(rows), []
    while some := list(itertools.islice(rows, _ROWS_AT_ONCE)):
        columns = {name: pa.array([row[name] for row in some], _arrow_type(dtype)) for name, dtype in dtypes}
        pairs += [(bytearray(record.as_py()), None) for record in encode(pa.RecordBatch.from_pydict(columns))]
    return pairs


class _ToTFExample:
    """The function that `toTFExample` returns. Executors get it with the code that it needs."""

    def __init__(self, dtypes: Sequence[tuple[str, str]]) -> None:
        self._dtypes = list(dtypes)

    def __call__(self, rows: Iterable[Row]) -> list[tuple[bytearray, None]]:
        return to_examples(rows, self._dtypes)

    def __reduce__(self) -> tuple[Any, ...]:
        find, dtypes = make_finder(), self._dtypes

        # A local function is pickled by value. It must not refer to any name of this module.
        def task(rows: Iterable[Row]) -> Any:
            return find("tfos_lab.compat.dfutil", "to_examples")(rows, dtypes)

        return functools.partial, (task,)


def toTFExample(dtypes: Sequence[tuple[str, str]]) -> Callable[[Iterable[Row]], Iterable[tuple[bytearray, None]]]:
    """Return a function for ``rdd.mapPartitions`` that makes serialized `tf.train.Example`s of rows.

    Parameters
    ----------
    dtypes : sequence of (str, str)
        ``df.dtypes`` of the rows' DataFrame.

    Returns
    -------
    callable
        From rows to pairs of a serialized example (bytearray) and None, as Hadoop's formats have them.

    Raises
    ------
    ConfigError
        For a type that an example cannot hold.

    Examples
    --------
    >>> examples = df.rdd.mapPartitions(toTFExample(df.dtypes))  # doctest: +SKIP
    """
    for _, dtype in dtypes:
        _arrow_type(dtype)
    return _ToTFExample(dtypes)


def fromTFExample(iter: Iterable[Sequence[Any]], binary_features: Collection[str] = []) -> list[Row]:  # noqa: A002 - as in TFoS
    """Make rows of serialized `tf.train.Example`s; for ``rdd.mapPartitions``.

    Parameters
    ----------
    iter : iterable of sequence
        Each begins with the bytes of an example, as the pairs of `toTFExample` do.
    binary_features : collection of str
        Features whose bytes are no text.

    Returns
    -------
    list of pyspark.sql.Row
        With the features as columns, ordered by name: one value, a list of several, or None for an empty feature.
    """
    import tensorflow as tf
    from pyspark.sql import Row

    rows = []
    for pair in iter:
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


def infer_schema(example: tf.train.Example, binary_features: Collection[str] = []) -> StructType:
    """Return the schema of the row that `fromTFExample` makes of an example.

    Parameters
    ----------
    example : tensorflow.train.Example
        One record.
    binary_features : collection of str
        Features whose bytes are no text; they become binary instead of string.

    Returns
    -------
    pyspark.sql.types.StructType
        Columns ordered by name: bigint, double, string or binary, and arrays of them for features of several values.
        An empty feature becomes a string.
    """
    from pyspark.sql.types import StructField, StructType

    features = example.features.feature
    return StructType(
        [StructField(name, _type_of(features[name], name in binary_features)) for name in sorted(features)]
    )


def _type_of(feature: tf.train.Feature, is_binary: bool) -> DataType:
    from pyspark.sql.types import ArrayType, BinaryType, DoubleType, LongType, StringType

    held = feature.WhichOneof("kind") or "bytes_list"
    values = getattr(feature, held).value
    plain: DataType
    if held == "bytes_list" and is_binary:
        plain = BinaryType()
    elif held == "bytes_list" or not values:
        plain = StringType()
    else:
        plain = LongType() if held == "int64_list" else DoubleType()
    return ArrayType(plain) if len(values) > 1 else plain
