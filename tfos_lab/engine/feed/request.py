"""What a cluster can be fed: a DataFrame or an RDD, checked before anything starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfos_lab.core.config import FeedConfig
from tfos_lab.core.options import problems_in
from tfos_lab.data.prepare import prepare
from tfos_lab.engine.feed.arrays import frame_of_arrays, is_in_memory
from tfos_lab.engine.feed.rdd import frame_of_rdd
from tfos_lab.engine.spark import session as spark_session
from tfos_lab.errors import ClusterEnded, ConfigError, NoSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tfos_lab.engine.feed.fed_cluster import AskedCluster, SessionOwner


_NO_ROWS = "data={}: a Spark DataFrame or RDD, a pandas DataFrame, or NumPy arrays (one, a dict, or a tuple) are needed"
_DSTREAM = (
    "data=DStream: DStreams cannot be fed; read the stream as a streaming DataFrame, as in "
    "spark.readStream.format('json').schema('x double').load(folder), and feed that"
)


@dataclass(frozen=True)
class FeedRequest:
    """What the nodes are to be fed; kept, so that the nodes of the next generation can be fed it, too.

    ``source`` counts the calls of `Cluster.train`; the frame of a ``stream`` is one of its micro-batches.
    """

    frame: DataFrame
    epochs: int
    remainder: str
    timeout_s: float
    spool_bytes: int = 0
    stream: bool = False
    source: int = 0


def checked_frame(
    cluster: AskedCluster,
    data: Any,
    *,
    epochs: int,
    columns: list[str] | None,
    remainder: str,
    timeout_s: float,
    spool_bytes: int | None,
) -> DataFrame:
    """Refuse what cannot be fed, before anything is started."""
    values = {"epochs": epochs, "columns": columns, "remainder": remainder, "timeout_s": timeout_s}
    problems = problems_in(FeedConfig, values)
    if spool_bytes is not None and (
        isinstance(spool_bytes, bool) or not isinstance(spool_bytes, int) or spool_bytes < 1
    ):
        problems.append(f"spool_bytes={spool_bytes!r}: a whole number of bytes is needed")
    if getattr(data, "isStreaming", False) and epochs != 1:
        problems.append(f"epochs={epochs}: a stream is read once; it has no end to begin again from")
    if not is_rows(data):
        problems.append(_no_rows(data))
    if problems:
        raise ConfigError(problems)
    if cluster.ended:
        raise ClusterEnded(cluster=cluster.name, state=cluster.state, asked="feed rows")
    return prepare(as_frame(cluster, data), columns)


def as_frame(cluster: SessionOwner, data: Any) -> DataFrame:
    """Return a DataFrame unchanged; an RDD, pandas' DataFrames and NumPy's arrays as a DataFrame.

    Raises
    ------
    ConfigError
        For anything else.
    NoSession
        If there is no session, or a dead one.
    """
    if not is_rows(data):
        raise ConfigError([_no_rows(data)])
    frame: DataFrame = data
    if not hasattr(data, "mapInArrow"):
        session = cluster.spark or spark_session.active_session()
        if session is None:
            raise NoSession(
                reason=f"data is of type {type(data).__name__}, but there is no SparkSession to read it with"
            )
        spark_session.require_alive(session)
        frame = frame_of_arrays(session, data) if is_in_memory(data) else frame_of_rdd(session, data)
    spark_session.require_alive(frame.sparkSession)
    return frame


def is_rows(data: Any) -> bool:
    """Whether this is a DataFrame, classic or Connect, an RDD, or arrays in this process's memory."""
    is_rdd = hasattr(data, "mapPartitions") and not _is_dstream(data)
    return hasattr(data, "mapInArrow") or is_rdd or is_in_memory(data)


def _is_dstream(data: Any) -> bool:
    return hasattr(data, "foreachRDD")


def _no_rows(data: Any) -> str:
    return _DSTREAM if _is_dstream(data) else _NO_ROWS.format(type(data).__name__)
