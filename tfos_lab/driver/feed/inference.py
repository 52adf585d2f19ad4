"""Inference: has a cluster's nodes compute results for rows, and returns them, as a DataFrame or an RDD.

What is returned is lazy. Rows travel when Spark computes it: each task sends its rows to a node, on its own host if
there is one.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from typing import TYPE_CHECKING, Any

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.core.code_archive import make_task
from tfos_lab.core.config import FeedOptions
from tfos_lab.core.options import problems_in
from tfos_lab.core.states import RunState
from tfos_lab.data.frames import is_stream
from tfos_lab.data.prepare import map_batches, prepare, taken_names, widen
from tfos_lab.data.spark_versions import parsed_schema
from tfos_lab.driver.feed.arrays import is_in_memory
from tfos_lab.driver.feed.job import OPEN_TIMEOUT_S, await_readers
from tfos_lab.driver.feed.request import as_frame, check_objects, check_queue, is_rows, no_rows
from tfos_lab.driver.state.readers import not_open
from tfos_lab.errors import ClusterEnded, ConfigError, FeedTimeout
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.node.feed.inference_task import InferencePlan
from tfos_lab.node.feed.python_rows import COLUMN, OBJECTS_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tfos_lab.driver.cluster import Cluster
    from tfos_lab.driver.feed.feeding import Feeding
    from tfos_lab.driver.head import Head

# A model may take long to answer its first row; a function that never answers looks the same from here.
_PROBE_NOTE_S = 20.0
_PROBE_NOTE = (
    "inference has waited for the results of a single row for a while: see whether map_fun calls ctx.put_results for "
    "every batch of its dataset"
)
_ASKED = "answer rows"


def want_objects(head: Head, timeout_s: float) -> bool:
    """Return whether nodes read rows as Python objects; wait until one has asked for rows, as `await_readers` does."""
    await_readers(head, timeout_s, kind=True, asked=_ASKED)
    return bool(head.feed_state.wants_objects)


class Inference:
    """The inferences of one cluster; those of columns are all of the same ones."""

    def __init__(self, cluster: Cluster, feeding: Feeding) -> None:
        self._cluster = cluster
        self._feeding = feeding
        self._token = secrets.token_hex(16)
        self._lock = threading.Lock()
        self._columns = ""
        self._results = b""
        self._numbers = itertools.count()

    def of(
        self,
        data: Any,
        columns: list[str] | None,
        schema: Any,
        *,
        objects: bool | None = None,
        queue: str,
        timeout_s: float,
    ) -> Any:
        """Return the results for ``data``; see `Cluster.inference`."""
        _check(data, columns, schema, objects=objects, queue=queue, timeout_s=timeout_s)
        if is_in_memory(data):
            data = as_frame(self._cluster, data)
        is_frame = hasattr(data, "mapInArrow")
        if is_frame:
            spark_session.require_alive(data.sparkSession, for_rows=True)
        cluster = self._cluster
        if cluster.launcher.runs_inline:
            raise ConfigError(
                ["inference: inline answers on the very thread that computes the results; use local='processes'"]
            )
        cluster.wait_until_running()
        if cluster.ended:
            raise ClusterEnded(cluster=cluster.name, state=cluster.state, asked="answer rows")
        open_choice = not is_frame and objects is None and columns is None and schema is None
        if objects or (open_choice and self._feeding.with_head(lambda head: want_objects(head, timeout_s))):
            return self._of_objects(data.rdd if is_frame else data, queue, timeout_s)
        plan = InferencePlan(queue=queue, timeout_s=timeout_s)
        if is_frame:
            return self._frame(data, columns, schema, plan)[0]
        frame, results = self._frame(as_frame(self._cluster, data), columns, schema, plan)
        return frame.select(*(f"`{name}`" for name in results)).rdd.map(lambda row: row[0] if len(row) == 1 else row)

    def _open(self, head: Head, plan: InferencePlan) -> InferencePlan:
        """Open the nodes' endpoints for rows as in the plan; return it with where the nodes are."""
        feeds, identities = head.feed_state, self._feeding.identities()
        await_readers(head, plan.timeout_s, asked=_ASKED)  # nodes that serve the chief answer nothing
        message = m.InferenceOpen(
            schema=plan.schema,
            token=self._token,
            tls=identities.nodes if identities else None,
            objects=plan.objects,
            queue=plan.queue,
        )
        head.request(lambda _now_s: feeds.open_inference(message))
        if not head.await_rows(lambda: not feeds.not_answering, OPEN_TIMEOUT_S, asked=_ASKED):
            raise FeedTimeout(reason=not_open(feeds.not_answering, OPEN_TIMEOUT_S))
        head.launcher.free_slots()
        return msgspec.structs.replace(
            plan,
            cluster=self._cluster.name,
            token=self._token,
            locations={rank: feeds.answering[rank] for rank in feeds.ranks},
            tls=identities.tasks if identities else None,
        )

    def _of_objects(self, rdd: Any, queue: str, timeout_s: float) -> Any:
        plan = InferencePlan(
            schema=OBJECTS_SCHEMA, asked=[0], names=[COLUMN], objects=True, queue=queue, timeout_s=timeout_s
        )
        with self._lock:
            plan = self._feeding.with_head(lambda head: self._open(head, plan))
            plan = msgspec.structs.replace(plan, inference=next(self._numbers))
        encoded = msgspec.msgpack.encode(plan)
        return rdd.mapPartitions(make_task("tfos_lab.node.feed.inference_task", "object_task", encoded))

    def _frame(
        self, df: DataFrame, columns: list[str] | None, schema: Any, plan: InferencePlan
    ) -> tuple[DataFrame, list[str]]:
        spark_session.require_alive(df.sparkSession, for_rows=True)
        asked = prepare(df, columns)
        described = ", ".join(f"{field.name}: {field.dataType.simpleString()}" for field in asked.schema)
        with self._lock:
            if self._columns and described != self._columns:
                which = f"answer for ({self._columns}), these rows are ({described})"
                cure = "choose with columns=[...], or start another cluster for them"
                raise ConfigError([f"columns: the nodes of '{self._cluster.name}' {which}; {cure}"])
            self._columns = described
            wide, positions = widen(df, columns)
            plan = msgspec.structs.replace(
                plan, schema=asked.schema.json(), asked=positions, names=asked.columns, kept=len(df.columns)
            )
            plan = self._feeding.with_head(lambda head: self._open(head, plan))
            wanted = self._wanted(wide, plan, schema)
            plan = msgspec.structs.replace(plan, inference=next(self._numbers))
        return _results(df, wide, plan, wanted), list(wanted.names)

    # ---- the type of results ----------------------------------------------------------------------------------------

    def _wanted(self, wide: DataFrame, plan: InferencePlan, schema: Any) -> Any:
        """Return the Arrow schema of the results: as given, as before, or as found with a single row."""
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        if schema is not None:
            return to_arrow_schema(parsed_schema(schema) if isinstance(schema, str) else schema)
        if not self._results:
            self._results = self._probe(wide, plan)
        return pa.ipc.read_schema(pa.py_buffer(self._results))

    def _probe(self, wide: DataFrame, plan: InferencePlan) -> bytes:
        if is_stream(wide):
            raise ConfigError(["schema: a streaming DataFrame needs one, such as schema='prediction float'"])
        task = make_task("tfos_lab.node.feed.inference_task", "probe_task", msgspec.msgpack.encode(plan))
        tag = f"tfos-probe-{self._cluster.id}"
        note = threading.Timer(_PROBE_NOTE_S, self._cluster.history.add_note, [_PROBE_NOTE])
        note.name, note.daemon = f"tfos-probe-note-{self._cluster.id}", True
        note.start()
        try:
            with spark_session.tagged(wide.sparkSession, tag, f"tfos_lab: one row for '{self._cluster.name}'"):
                rows = map_batches(wide.limit(1), task, "results binary").collect()
        except Exception as error:
            if self._cluster.state is RunState.FAILED:
                raise self._cluster.failure() from error
            raise spark_session.job_error(error, schema=wide.schema.json())  # noqa: B904 - Spark's error is its cause already
        finally:
            note.cancel()
        if not rows:
            raise ConfigError(
                ["schema: there is no row to find the type of results with; give schema='prediction float', say"]
            )
        return bytes(rows[0]["results"])


def _check(
    data: Any, columns: list[str] | None, schema: Any, *, objects: bool | None, queue: str, timeout_s: float
) -> None:
    problems = problems_in(FeedOptions, {"objects": objects})
    problems += [*check_objects(data, columns, objects), *check_queue(queue)]
    if objects and schema is not None:
        problems.append(f"schema={schema!r}: results of objects have any type; leave schema out, or objects=True")
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s > 0:
        problems.append(f"timeout={timeout_s!r}: a number of seconds above 0 is needed")
    if not is_rows(data):
        problems.append(no_rows(data))
    if problems:
        raise ConfigError(problems)


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
