"""What data ask of a SparkSession: DataFrames of Arrow tables, and the file system that paths are on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tfos_lab.core.paths import absolute, hadoop_path, is_local
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


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is a Spark Connect client."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def default_fs(spark: SparkSession) -> str:
    """Return the file system that paths without a scheme are on, such as ``"hdfs://namenode:8020"``."""
    if is_connect(spark):
        return str(spark.conf.get("spark.hadoop.fs.defaultFS", "file:///"))
    configuration = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - there is no public way to it
    return str(configuration.get("fs.defaultFS", "file:///"))


def path_in_full(path: str, spark: SparkSession) -> str:
    """Complete a path as Spark does; one on this machine gets no scheme."""
    default = default_fs(spark)
    if is_local(path) and is_local(default):
        return absolute(path)
    user = None if is_connect(spark) else str(spark.sparkContext.sparkUser())
    return hadoop_path(path, default, str(Path.cwd()), user)
