"""DataFrames from RDDs; for RDDs that Spark makes no DataFrame of, an error with advice that works."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tfos_lab.errors import ConfigError, FeedError
from tfos_lab.launchers.spark import session as spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# How many rows to read for the type of a column that is None in the first one; as many as Spark reads.
_MAX_SAMPLED = 100
_PLAIN = (bool, int, float, str, bytes, bytearray)
_GIVE_TYPES = "give columns and types yourself, as in spark.createDataFrame(rdd, 'x double, label long')"


def frame_of_rdd(session: SparkSession, rdd: Any) -> DataFrame:
    """Make a DataFrame from an RDD, as lazy as the RDD except for its first row, whose types all others must have.

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
        return session.createDataFrame(rdd, _schema_of(session, rdd, rows))
    except (PySparkTypeError, PySparkValueError) as error:
        reason = " ".join(str(error).split())
        problem = f"data: Spark cannot make columns of what this RDD holds ({reason}); {_advice(rows[0], reason)}"
        raise ConfigError([problem]) from error


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
    values = row.values() if isinstance(row, Mapping) else row if isinstance(row, tuple | list) else ()
    if any(map(_is_numpy, values)):
        return "make NumPy's values Python's, as in rdd.map(lambda row: (row[0].tolist(), row[1]))"
    if isinstance(row, _PLAIN):
        return "make a tuple of each value: rdd.map(lambda x: (x,))"
    return "map each element to a tuple, dict or Row of plain values and lists, as in rdd.map(lambda x: (x.a, x.b))"


def _is_numpy(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "numpy"
