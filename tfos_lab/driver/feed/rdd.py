"""DataFrames from RDDs; for RDDs that Spark makes no DataFrame of, an error with advice that works.

Spark takes columns and types from an RDD's first row, and silently turns later values of another type into nulls: an
int where the first row has a float, say. So `tfos_lab.node.feed.rdd_rows` checks every row on its way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from tfos_lab.core.code_archive import make_task
from tfos_lab.data.spark_types import sql_name
from tfos_lab.errors import ConfigError, FeedError
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.node.feed.rdd_rows import LEAVES, Column, converted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# How many rows to read for the type of a column that is None in the first one; as many as Spark reads.
_MAX_SAMPLED = 100
_PLAIN = (bool, int, float, str, bytes, bytearray)
_GIVE_TYPES = "give columns and types yourself, as in spark.createDataFrame(rdd, 'x double, label long')"


def frame_of_rdd(session: SparkSession, rdd: Any) -> DataFrame:
    """Make a DataFrame from an RDD, as lazy as the RDD except for its first row.

    Raises
    ------
    ConfigError
        For an RDD without rows, or whose first row Spark cannot turn into columns; says what to do.
    FeedError
        If the first row cannot be computed.
    """
    from pyspark.errors import PySparkTypeError, PySparkValueError

    rows = _first_rows(rdd, 1)
    if not rows:
        raise ConfigError(
            [f"data: this RDD is empty, and Spark learns columns from an RDD's first row; {_GIVE_TYPES}, or feed rows"]
        )
    try:
        schema = _schema_of(session, rdd, rows)
    except (PySparkTypeError, PySparkValueError) as error:
        reason = " ".join(str(error).split())
        problem = f"data: Spark cannot make columns of what this RDD holds ({reason}); {_advice(rows[0], reason)}"
        raise ConfigError([problem]) from error
    columns = [tuple(column) for column in _columns(schema.jsonValue()["fields"], rows[0])]
    check = make_task("tfos_lab.node.feed.rdd_rows", "checked", columns)
    return session.createDataFrame(rdd.mapPartitions(check), schema, verifySchema=False)


def _first_rows(rdd: Any, count: int) -> list[Any]:
    try:
        return list(rdd.take(count))
    except Exception as error:
        reason = spark_session.job_error(error)
        raise FeedError(reason=f"the RDD's first row cannot be computed: {reason}") from error


def _schema_of(session: SparkSession, rdd: Any, rows: list[Any]) -> Any:
    """Have Spark infer the schema of the first row, or of the first ones, as it does for an RDD."""
    from pyspark.errors import PySparkValueError

    try:
        return session.createDataFrame(rows).schema
    except PySparkValueError as error:
        if error.getCondition() != "CANNOT_DETERMINE_TYPE":
            raise
        return session.createDataFrame(_first_rows(rdd, _MAX_SAMPLED)).schema


def _advice(row: Any, reason: str) -> str:
    """Return advice on how to make columns from rows like this one."""
    if "CANNOT_DETERMINE_TYPE" in reason:
        return f"a column has nothing but None in the first {_MAX_SAMPLED} rows: {_GIVE_TYPES}"
    if _is_numpy(row):
        return "rows are NumPy's: make them Python's, as in rdd.map(lambda row: (row.tolist(),))"
    if isinstance(row, _PLAIN):
        return "make a tuple of each value: rdd.map(lambda x: (x,))"
    columns = list(_columns([], row))
    if hows := {column.key: how for column in columns if (how := _from_numpy(row[column.key]))}:
        names = ", ".join(f"'{column.name}'" for column in columns if column.key in hows)
        return f"{names}: NumPy's values, which have to be Python's, as in {converted(columns[0], hows)}"
    return "map each element to a tuple, dict or Row of plain values and lists, as in rdd.map(lambda x: (x.a, x.b))"


def _columns(fields: list[Mapping[str, Any]], row: Any) -> Iterator[Column]:
    """Yield the columns of rows like this one; given Spark's ``fields``, only those that need to be checked."""
    shape: Literal["tuple", "Row", "dict"]
    keys: list[Any]
    if isinstance(row, Mapping):
        shape, keys = "dict", sorted(row)
    elif hasattr(row, "__fields__"):
        shape, keys = "Row", list(row.__fields__)
    elif isinstance(row, tuple | list):
        shape, keys = "tuple", list(range(len(row)))
    else:
        return
    for number, key in enumerate(keys):
        if not fields:
            yield Column(f"_{key + 1}" if shape == "tuple" else str(key), shape, key, len(keys), "", "")
            continue
        name, spark_type = fields[number]["name"], fields[number]["type"]
        leaf, depth = _leaf_of(spark_type)
        if leaf in LEAVES:
            yield Column(name, shape, key, len(keys), leaf, sql_name(spark_type), depth)


def _leaf_of(spark_type: Any) -> tuple[Any, int]:
    """Return the type within arrays, and the number of arrays around it."""
    depth = 0
    while not isinstance(spark_type, str) and spark_type["type"] == "array":
        spark_type, depth = spark_type["elementType"], depth + 1
    return spark_type, depth


def _from_numpy(value: Any) -> str:
    """Return how to convert NumPy's values to Python's, or nothing if there are none."""
    if _is_numpy(value):
        return "{}.tolist()"
    if isinstance(value, list | tuple) and value and _is_numpy(value[0]):
        return "[value.tolist() for value in {}]"
    return ""


def _is_numpy(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "numpy"
