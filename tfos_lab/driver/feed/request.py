"""What a cluster can be fed: a DataFrame or an RDD, arrays or files, checked before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfos_lab.core.config import FeedConfig, FeedOptions
from tfos_lab.core.messages import INPUT_QUEUE
from tfos_lab.core.options import problems_in
from tfos_lab.core.states import RunState
from tfos_lab.data.frames import is_connect, is_stream
from tfos_lab.data.prepare import choose_fields, prepare
from tfos_lab.driver.feed.arrays import frame_of_arrays, is_in_memory, table_of
from tfos_lab.driver.feed.files.source import FileRows, find_rows, names_files
from tfos_lab.driver.feed.spark_job import FrameRows, ObjectRows, SparkRows
from tfos_lab.errors import ClusterEnded, ConfigError, FeedError, NoSession
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.launchers.spark.session import while_server_answers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tfos_lab.driver.cluster import Cluster

    _Forms = tuple[DataFrame | None, ObjectRows | None]

_NO_ROWS = "data={}: a Spark DataFrame or RDD, a pandas DataFrame, or NumPy arrays (one, a dict, or a tuple) are needed"
_OR_FILES = "; or names of files, as in data='/data/*.parquet'"
_ASKED_FOR = (
    "these rows come as Python objects, of which no tensors are made: for ctx.dataset, feed a DataFrame, or leave out "
    "objects=True"
)
_DSTREAM = (
    "data=DStream: only cluster.train takes one; have the RDD of each micro-batch answered, as in "
    "stream.transform(lambda rdd: cluster.inference(rdd, objects=True))"
)


@dataclass(frozen=True)
class FeedRequest:
    """What the nodes are to be fed; kept, so that the nodes of the next start can be fed it, too.

    Rows can go as the columns of a ``frame``, as ``objects``, or as the nodes ask, where there are both; or nodes read
    them from ``files``. ``source`` counts the calls of `Cluster.train`; the frame of a ``stream`` is one of its
    micro-batches. Of what a run is started with, some rows are ``required``.
    """

    frame: DataFrame | None
    config: FeedConfig
    stream: bool = False
    source: int = 0
    objects: ObjectRows | None = None
    queue: str = INPUT_QUEUE
    files: FileRows | None = None
    required: bool = False

    @property
    def is_open_choice(self) -> bool:
        """Whether the nodes decide if rows go as columns or as objects."""
        return self.frame is not None and self.objects is not None

    def rows_as(self, *, objects: bool) -> SparkRows:
        """Return the rows in the form asked for, if there is that choice."""
        if self.objects is not None and (objects or self.frame is None):
            return self.objects
        assert self.frame is not None
        return FrameRows(self.frame)


def make_request(cluster: Cluster, data: Any, options: Mapping[str, Any], queue: str = INPUT_QUEUE) -> FeedRequest:
    """Refuse what cannot be fed, before anything is started.

    Raises ConfigError with every problem found, NoSession if there is no session or a dead one, and if no rows can be
    fed any more, ClusterEnded or why the cluster has failed.
    """
    config = check_feed(cluster, data, options, queue)
    if are_files(data):
        files = found_rows(data, config.columns, cluster.spark, lambda: _make_room(cluster))
        return FeedRequest(None, config, queue=queue, files=files)
    frame, rows = _while_answered(data, lambda: _forms(cluster, data, config.columns, objects=config.objects))
    return FeedRequest(frame, config, objects=rows, queue=queue)


def check_rows(data: Any, columns: list[str] | None, session: SparkSession | None, *, objects: bool | None) -> Any:
    """Refuse what is known before nodes start of rows that cannot be fed; raises as `make_request` does.

    What Spark has to compute first, such as an RDD's first row, is looked at when the nodes run. Returns the data, in
    which names of files have become what was found, so that nobody looks for them again.
    """
    if data is None or is_dstream(data):
        return data
    if problems := list(check_objects(data, columns, objects)):
        raise ConfigError(problems)
    if names_files(data):
        return found_rows(data, columns, session, lambda: None)
    if not is_rows(data):
        raise ConfigError([no_rows(data) + _OR_FILES])
    if not hasattr(data, "mapInArrow"):
        _require_session(session, data)
    if is_in_memory(data):
        from pyspark.sql.pandas.types import from_arrow_schema

        choose_fields(from_arrow_schema(table_of(data).schema).jsonValue()["fields"], columns)
    elif hasattr(data, "mapInArrow"):
        spark_session.require_alive(data.sparkSession, for_rows=True)
        if not objects:
            _while_answered(data, lambda: (prepare(data, columns), None))
    return data


def found_rows(
    data: Any, columns: list[str] | None, session: SparkSession | None, before_spark: Callable[[], None]
) -> FileRows:
    """Return the rows of files, of which ``data`` is the names or what `check_rows` has found."""
    if isinstance(data, FileRows):
        return data
    is_alive = session is not None and spark_session.death_of(session) is None
    return find_rows(data, columns, session if is_alive else spark_session.active_session(), before_spark)


def are_files(data: Any) -> bool:
    """Whether rows are of files: names of some, or what `check_rows` has found."""
    return isinstance(data, FileRows) or names_files(data)


def check_feed(cluster: Cluster, data: Any, options: Mapping[str, Any], queue: str) -> FeedConfig:
    """Return how rows are fed; raises as `make_request` does for options that make no sense, and ended clusters."""
    # `Cluster.train` has one keyword less to write.
    problems = [problem.removeprefix("feed_") for problem in problems_in(FeedOptions, options)]
    if (is_stream(data) or is_dstream(data)) and options["epochs"] != 1:
        problems.append(f"epochs={options['epochs']}: a stream is read once; it has no end to begin again from")
    problems += [*check_objects(data, options.get("columns"), options.get("objects")), *check_queue(queue)]
    if not is_rows(data) and not is_dstream(data) and not are_files(data):
        problems.append(no_rows(data) + _OR_FILES)
    if problems:
        raise ConfigError(problems)
    if cluster.state is RunState.FAILED:
        raise cluster.failure()
    if cluster.ended:
        raise ClusterEnded(cluster=cluster.name, state=cluster.state, asked="feed rows")
    return FeedConfig(**options)


def check_objects(data: Any, columns: Any, objects: Any) -> Iterator[str]:
    """Yield what is wrong with ``objects``, the form in which rows are to travel."""
    if objects and are_files(data):
        yield "objects=True: rows of files come as columns; leave it out, and ctx.data_feed() gives them as tuples"
    if objects and columns is not None:
        yield f"columns={columns!r}: rows that are objects have none; leave columns out, or objects=True"
    if objects and (is_stream(data) or _is_connect(data)):
        kind = "a stream's rows" if is_stream(data) else "rows through Spark Connect"
        yield f"objects=True: {kind} come as columns; leave it out, and ctx.data_feed() gives them as tuples"


def check_queue(queue: Any) -> Iterator[str]:
    """Yield what is wrong with the name of a queue."""
    if not isinstance(queue, str) or not queue:
        yield f"queue={queue!r}: the name of a queue is needed, such as {INPUT_QUEUE!r}"


def _forms(cluster: Cluster, data: Any, columns: list[str] | None, *, objects: bool | None) -> _Forms:
    """Return the rows as columns, as objects, or as both, where the nodes decide."""
    if is_in_memory(data):
        data = as_frame(cluster, data)
    is_frame = hasattr(data, "mapInArrow")
    if objects:
        if is_frame:
            spark_session.require_alive(data.sparkSession, for_rows=True)
        return None, _as_objects(cluster, data.rdd if is_frame else data, _ASKED_FOR)
    try:
        frame = prepare(as_frame(cluster, data), columns)
    except ConfigError as error:
        if is_frame or columns is not None or objects is False:
            raise
        return None, _as_objects(cluster, data, str(error))
    if is_frame or columns is not None or objects is False:
        return frame, None
    return frame, _as_objects(cluster, data, _ASKED_FOR)


def _as_objects(cluster: Cluster, rdd: Any, advice: str) -> ObjectRows:
    session = _require_session(cluster.spark, rdd)
    return ObjectRows(rdd, session, f"{advice}; or read the rows as they are with ctx.data_feed()")


def as_frame(cluster: Cluster, data: Any) -> DataFrame:
    """Return a DataFrame unchanged; an RDD, pandas' DataFrames and NumPy's arrays as a DataFrame.

    Raises ConfigError for anything else, and NoSession if there is no session, or a dead one.
    """
    if not is_rows(data):
        raise ConfigError([no_rows(data)])
    frame: DataFrame = data
    if not hasattr(data, "mapInArrow"):
        session = _require_session(cluster.spark, data)
        if is_in_memory(data):
            return frame_of_arrays(session, data)
        _make_room(cluster)  # Spark computes the first row
        frame = frame_of_rdd(session, data)
    spark_session.require_alive(frame.sparkSession, for_rows=True)
    return frame


def _make_room(cluster: Cluster) -> None:
    """Let Spark work, as the nodes may hold all its slots."""
    cluster.wait_until_running()
    cluster.head.launcher.free_slots()


def _require_session(own: SparkSession | None, data: Any) -> SparkSession:
    """Return the session to read data with: its own, or the active one."""
    session = own or spark_session.active_session()
    if session is None:
        reason = f"data is of type {type(data).__name__}, but there is no SparkSession to read it with"
        raise NoSession(reason=reason, for_rows=True)
    spark_session.require_alive(session, for_rows=True)
    return session


def is_rows(data: Any) -> bool:
    """Whether this is a DataFrame, classic or Connect, an RDD, or arrays in this process's memory."""
    is_rdd = hasattr(data, "mapPartitions") and not is_dstream(data)
    return hasattr(data, "mapInArrow") or is_rdd or is_in_memory(data)


def _while_answered(data: Any, ask: Callable[[], _Forms]) -> _Forms:
    """Ask the Spark Connect server of a DataFrame for as long as it is not lost."""
    return while_server_answers(data.sparkSession, ask, name="tfos-rows") if _is_connect(data) else ask()


def _is_connect(data: Any) -> bool:
    return hasattr(data, "mapInArrow") and is_connect(data.sparkSession)


def is_dstream(data: Any) -> bool:
    """Whether this is a DStream."""
    # Of the type: a DataFrame of Spark Connect takes any other name for a column.
    return hasattr(type(data), "foreachRDD")


def no_rows(data: Any) -> str:
    """Return why data of this type cannot be fed."""
    return _DSTREAM if is_dstream(data) else _NO_ROWS.format(type(data).__name__)


# ---- RDDs as columns -------------------------------------------------------------------------------------------------


# How many rows to read for the type of a column that is None in the first one; as many as Spark reads.
_MAX_SAMPLED = 100
_PLAIN = (bool, int, float, str, bytes, bytearray)
_GIVE_TYPES = "give columns and types yourself, as in spark.createDataFrame(rdd, 'x double, label long')"


def frame_of_rdd(session: SparkSession, rdd: Any) -> DataFrame:
    """Make a DataFrame from an RDD, as lazy as the RDD except for its first row, whose types all others must have.

    Raises ConfigError for an RDD without rows, or whose first row Spark cannot turn into columns, with what to do; and
    FeedError if that row cannot be computed.
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
