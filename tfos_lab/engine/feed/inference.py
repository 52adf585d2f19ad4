"""Inference: has a cluster's nodes compute results for the rows of a DataFrame, and returns them as a DataFrame.

The DataFrame of results is lazy. Rows travel when Spark computes it: each task sends its rows to a node, on its own
host if there is one.
"""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from tfos_lab.core.states import RunState
from tfos_lab.data.prepare import map_batches, prepare, taken_names, widen
from tfos_lab.engine.feed.arrays import is_in_memory
from tfos_lab.engine.feed.request import as_frame
from tfos_lab.engine.spark import session as spark_session
from tfos_lab.engine.spark.archived import make_task
from tfos_lab.engine.state.readers import NOBODY_READS, never_asked
from tfos_lab.errors import ClusterEnded, ConfigError, FeedError, FeedTimeout
from tfos_lab.node.feed.inference_task import InferencePlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tfos_lab.engine.feed.fed_cluster import FedCluster, FedGeneration
    from tfos_lab.engine.feed.feeding import Feeding

_OPEN_TIMEOUT_S = 30.0
# How long functions may work before they ask for rows, or begin to serve.
_DECIDE_TIMEOUT_S = 600.0
_STEP_S = 0.005
# A model may take long to answer its first row; a function that never answers looks the same from here.
_PROBE_NOTE_S = 20.0
_PROBE_NOTE = (
    "inference has waited for the results of a single row for a while: see whether map_fun calls ctx.put_results for "
    "every batch of its dataset"
)


class Inference:
    """The inferences of one cluster, all of the same columns."""

    def __init__(self, cluster: FedCluster, feeding: Feeding) -> None:
        self._cluster = cluster
        self._feeding = feeding
        self._lock = threading.Lock()
        self._token = secrets.token_hex(16)
        self._columns = ""
        self._results = b""
        self._numbers = itertools.count()

    def of(self, data: Any, columns: list[str] | None, schema: Any) -> Any:
        """Return the results for ``data``; see `Cluster.inference`."""
        if hasattr(data, "mapInArrow") or is_in_memory(data):
            return self._frame(as_frame(self._cluster, data), columns, schema)[0]
        frame, results = self._frame(as_frame(self._cluster, data), columns, schema)
        return frame.select(*(f"`{name}`" for name in results)).rdd.map(lambda row: row[0] if len(row) == 1 else row)

    def _frame(self, df: DataFrame, columns: list[str] | None, schema: Any) -> tuple[DataFrame, list[str]]:
        cluster = self._cluster
        if cluster.generation.launcher.traits.runs_inline:
            raise ConfigError(
                ["inference: inline answers on the very thread that computes the results; use local='processes'"]
            )
        spark_session.require_alive(df.sparkSession)
        asked = prepare(df, columns)
        cluster.wait_until_running()
        if cluster.ended:
            raise ClusterEnded(cluster=cluster.name, state=cluster.state, asked="answer rows")
        with self._lock:
            plan, wide = self._plan(df, columns, asked)
            cluster.generation.launcher.free_slots()
            wanted = self._wanted(wide, plan, schema)
            plan = msgspec.structs.replace(plan, inference=next(self._numbers))
        return _results(df, wide, plan, wanted), list(wanted.names)

    # ---- the nodes --------------------------------------------------------------------------------------------------

    def _plan(self, df: DataFrame, columns: list[str] | None, asked: DataFrame) -> tuple[InferencePlan, DataFrame]:
        """Open the nodes' endpoints; return the tasks' plan, and the DataFrame with all columns that they need."""
        described = ", ".join(f"{field.name}: {field.dataType.simpleString()}" for field in asked.schema)
        if self._columns and described != self._columns:
            first = f"the nodes of '{self._cluster.name}' answer for ({self._columns}), these rows are ({described})"
            raise ConfigError([f"columns: {first}; choose with columns=[...], or start another cluster for them"])
        self._columns = described
        schema = asked.schema.json()
        tls = self._feeding.tls_identity(self._cluster.generation)
        wide, positions = widen(df, columns)
        plan = InferencePlan(
            cluster=self._cluster.name,
            token=self._token,
            locations=self._open(schema, tls),
            certificate=tls.certificate if tls else b"",
            schema=schema,
            asked=positions,
            names=asked.columns,
            kept=len(df.columns),
        )
        return plan, wide

    def _open(self, schema: str, tls: Any) -> dict[int, list[str]]:
        generation = self._cluster.generation
        feed_state = generation.feed_state
        self._wait_for_readers(generation)
        generation.server.request(lambda _now_s: feed_state.open_inference(schema, self._token, tls))
        deadline = time.monotonic() + _OPEN_TIMEOUT_S
        while time.monotonic() < deadline:
            if len(feed_state.answering) == len(feed_state.ranks):
                return dict(feed_state.answering)
            if self._cluster.state is RunState.FAILED:
                raise self._cluster.failure()
            time.sleep(_STEP_S)
        raise FeedTimeout(reason=f"the nodes did not open their endpoints for rows within {_OPEN_TIMEOUT_S:g} s")

    def _wait_for_readers(self, generation: FedGeneration) -> None:
        """Wait until it is known which nodes answer: with parameter servers, workers may serve the chief instead."""
        deadline = time.monotonic() + _DECIDE_TIMEOUT_S
        while undecided := generation.feed_state.undecided:
            if self._cluster.state is RunState.FAILED:
                raise self._cluster.failure()
            if self._cluster.ended:
                raise ClusterEnded(cluster=self._cluster.name, state=self._cluster.state, asked="answer rows")
            if time.monotonic() > deadline:
                raise FeedTimeout(reason=never_asked(undecided, _DECIDE_TIMEOUT_S))
            time.sleep(_STEP_S)
        if not generation.feed_state.ranks:
            raise FeedError(reason=NOBODY_READS)

    # ---- the type of results ----------------------------------------------------------------------------------------

    def _wanted(self, wide: DataFrame, plan: InferencePlan, schema: Any) -> Any:
        """Return the Arrow schema of the results: as given, as before, or as found with a single row."""
        import pyarrow as pa

        if schema is not None:
            return _arrow_schema(schema)
        if not self._results:
            self._results = self._probe(wide, plan)
        return pa.ipc.read_schema(pa.py_buffer(self._results))

    def _probe(self, wide: DataFrame, plan: InferencePlan) -> bytes:
        if wide.isStreaming:
            raise ConfigError(["schema: a streaming DataFrame needs one, such as schema='prediction float'"])
        task = make_task("tfos_lab.node.feed.inference_task", "probe_task", msgspec.msgpack.encode(plan))
        tag = f"tfos-probe-{self._cluster.id}"
        note = threading.Timer(_PROBE_NOTE_S, self._cluster.note, [_PROBE_NOTE])
        note.name, note.daemon = f"tfos-probe-note-{self._cluster.id}", True
        note.start()
        try:
            with spark_session.tagged(wide.sparkSession, tag, f"tfos_lab: one row for '{self._cluster.name}'"):
                rows = map_batches(wide.limit(1), task, "results binary").collect()
        except Exception as error:
            if self._cluster.state is RunState.FAILED:
                raise self._cluster.failure() from error
            raise spark_session.job_error(error)  # noqa: B904 - Spark's error is its cause already
        finally:
            note.cancel()
        if not rows:
            raise ConfigError(
                ["schema: there is no row to find the type of results with; give schema='prediction float', say"]
            )
        return bytes(rows[0]["results"])


def _results(df: DataFrame, wide: DataFrame, plan: InferencePlan, wanted: Any) -> DataFrame:
    """Return the lazy DataFrame: the columns of ``df``, and the results."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType

    if taken := taken_names(df, wanted.names):
        raise ConfigError(
            [f"put_results: the rows have a column '{taken[0]}' already; give the results another name, as in a dict"]
        )
    plan = msgspec.structs.replace(plan, results=wanted.serialize().to_pybytes())
    fields = [*df.schema.fields, *from_arrow_schema(wanted).fields]
    numbered = [StructField(f"c{i}", field.dataType, nullable=True) for i, field in enumerate(fields)]
    task = make_task("tfos_lab.node.feed.inference_task", "inference_task", msgspec.msgpack.encode(plan))
    return map_batches(wide, task, StructType(numbered)).toDF(*df.columns, *wanted.names)


def _arrow_schema(schema: Any) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    if isinstance(schema, str):
        schema = StructType.fromDDL(schema)
    return to_arrow_schema(schema)
