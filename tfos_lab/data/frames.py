"""Arrow tables as Spark DataFrames, for the data sets that tfos_lab brings along."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfos_lab.errors import ConfigError, NoSession

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def to_dataframe(table: pa.Table, spark: SparkSession | None = None, partitions: int | None = None) -> DataFrame:
    """Make a DataFrame of an Arrow table.

    Parameters
    ----------
    table : pyarrow.Table
        Its rows keep their order, unless ``partitions`` is given.
    spark : pyspark.sql.SparkSession, optional
        Classic or Spark Connect; the active session by default.
    partitions : int, optional
        Into how many partitions the rows are spread evenly; by default as Spark cuts them.

    Raises
    ------
    NoSession
        Without a session.
    """
    if partitions is not None and partitions < 1:
        raise ConfigError([f"partitions={partitions}: at least one is needed"])
    df = (spark or active_session()).createDataFrame(table)
    return df if partitions is None else df.repartition(partitions)


def active_session() -> SparkSession:
    """Return the active session; `NoSession` without one."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None:
        raise NoSession(reason="there is no active SparkSession to make a DataFrame with")
    return session
