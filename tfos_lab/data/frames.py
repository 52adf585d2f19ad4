"""What the data package needs of a SparkSession: DataFrames from Arrow tables, and the file system of its paths."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_lab.core.paths import absolute, hadoop_path, is_local, split_scheme
from tfos_lab.core.threads import uninterrupted
from tfos_lab.data.spark_versions import frame_of_table
from tfos_lab.errors import ConfigError, NoSession

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def to_dataframe(table: pa.Table, spark: SparkSession | None = None, partitions: int | None = None) -> DataFrame:
    """Make a DataFrame of an Arrow table, by the active session unless another is given.

    Its rows keep their order, unless they are to be spread evenly over a number of ``partitions``. Raises
    `NoSession` if no session is given and none is active.
    """
    if partitions is not None and partitions < 1:
        raise ConfigError([f"partitions={partitions}: at least one is needed"])
    df = frame_of_table(session_or_active(spark), table)
    return df if partitions is None else df.repartition(partitions)


def session_or_active(spark: SparkSession | None) -> SparkSession:
    """Return the given session, or else the active one; `NoSession` if there is none, or it was stopped."""
    from pyspark.sql import SparkSession

    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise NoSession(reason="there is no active SparkSession to make a DataFrame with", for_rows=True)
    require_session(session)
    if is_stopped(session):
        raise NoSession(reason="the SparkSession was stopped", for_rows=True)
    return session


def require_frame(df: Any, method: str) -> None:
    """Raise a ConfigError for what is no Spark DataFrame, and `NoSession` if its session was stopped."""
    if not hasattr(df, "sparkSession") or not hasattr(df, "mapInArrow"):
        raise ConfigError([f"{method}({type(df).__name__}): a Spark DataFrame is needed (spark.createDataFrame)"])
    if is_stopped(df.sparkSession):
        reason = f"{method}(df): the SparkSession of the DataFrame was stopped"
        raise NoSession(reason=reason, advice="make another, and the DataFrame with it", for_rows=True)


def require_session(spark: Any) -> None:
    """Raise a ConfigError for what is no SparkSession, such as a SparkContext."""
    if not is_connect(spark) and not hasattr(spark, "sparkContext"):
        advice = "a SparkSession is needed, as SparkSession.builder.getOrCreate() returns it"
        raise ConfigError([f"spark is a {type(spark).__name__}: {advice}"])


def is_stopped(spark: SparkSession) -> bool:
    """Whether this process has called ``spark.stop()``."""
    if is_connect(spark):
        return bool(getattr(spark, "is_stopped", False))
    return spark.sparkContext._jsc is None  # noqa: SLF001 - there is no public way to ask


@uninterrupted()
def is_stream(data: Any) -> bool:
    """Whether something is a streaming DataFrame."""
    return bool(getattr(data, "isStreaming", False))


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is a Spark Connect client."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def default_fs(spark: SparkSession) -> str:
    """Return the file system of paths without a scheme, such as ``"hdfs://namenode:8020"``."""
    if is_connect(spark):
        return str(spark.conf.get("spark.hadoop.fs.defaultFS", "file:///"))
    configuration = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - there is no public API for it
    return str(configuration.get("fs.defaultFS", "file:///"))


def model_path(path: str, spark: SparkSession | None) -> str:
    """Complete the path of a model to be read: what is on this machine is meant, or else what Spark would read."""
    here = is_local(path) and Path(split_scheme(absolute(path))[2]).exists()
    return absolute(path) if here or spark is None else path_in_full(path, spark)


def path_in_full(path: str | os.PathLike[str], spark: SparkSession) -> str:
    """Complete a path as Spark does; a path on this machine gets no scheme. A ConfigError for what is no path."""
    # An empty one would be the current folder, which is not to be overwritten.
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ConfigError([f"path={path!r:.60}: the path of a folder or a file is needed"])
    path = os.fspath(path)
    default = default_fs(spark)
    if is_local(path) and is_local(default):
        return absolute(path)
    user = None if is_connect(spark) else str(spark.sparkContext.sparkUser())
    return hadoop_path(path, default, str(Path.cwd()), user)
