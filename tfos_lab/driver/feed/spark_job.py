"""Spark's side of a feed: the job whose tasks send their rows to the nodes."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from tfos_lab.core.code_archive import make_task
from tfos_lab.core.threads import uninterrupted
from tfos_lab.data.prepare import map_batches
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.node.feed.python_rows import OBJECTS_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tfos_lab.node.feed.wire import FeedPlan

# What `tfos_lab.node.feed.task` yields.
_SCHEMA = "partition long, attempt string, rows long"
_ASK_INTERVAL_S = 0.5
_CANCEL_TIMEOUT_S = 5.0
_CANCEL_AGAIN_S = 0.5


@dataclass(frozen=True)
class FrameRows:
    """The rows of a DataFrame, as columns."""

    frame: DataFrame

    @property
    def session(self) -> SparkSession:
        """The DataFrame's own."""
        return self.frame.sparkSession

    @property
    @uninterrupted()
    def schema(self) -> str:
        """The DataFrame's own."""
        return str(self.frame.schema.json())

    def send(self, plan: bytes) -> list[int]:
        """Run the job; return the number of rows of each partition."""
        task = make_task("tfos_lab.node.feed.task", "feed_task", plan)
        return [row["rows"] for row in map_batches(self.frame, task, _SCHEMA).collect()]


@dataclass(frozen=True)
class ObjectRows:
    """The elements of an RDD, as they are; ``advice`` is for nodes that want columns."""

    rdd: Any
    session: SparkSession
    advice: str

    @property
    def schema(self) -> str:
        """That of pickled objects."""
        return OBJECTS_SCHEMA

    def send(self, plan: bytes) -> list[int]:
        """Run the job; return the number of rows of each partition."""
        return list(self.rdd.mapPartitions(make_task("tfos_lab.node.feed.task", "object_task", plan)).collect())


SparkRows = FrameRows | ObjectRows


class SparkJob:
    """One job, on its own thread, so that an interrupt or a failing node can cancel it.

    ``label`` names the thread and tags Spark's jobs, and ``description`` is shown in Spark's own UI. `error` is why it
    has failed; without one, `rows_sent` is the number of rows of each partition when it has ended.
    """

    def __init__(self, rows: SparkRows, plan: FeedPlan, *, label: str, description: str) -> None:
        self._rows = rows
        self._plan = plan
        self._tag = f"{label}-{secrets.token_hex(3)}"
        self._description = description
        self._told: tuple[int, int, int] | None = None
        self._cancelled = False
        self._ask_s = 0.0
        self.error: Exception | None = None
        self.rows_sent: list[int] = []
        self._thread = threading.Thread(target=self._run, name=label, daemon=True)
        self._thread.start()

    @property
    def schema(self) -> str:
        """That of the rows, as Spark writes it in JSON."""
        return self._rows.schema

    def has_ended(self, timeout_s: float) -> bool:
        """Return whether the job has ended within this time, well or badly."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def news(self) -> tuple[int, int, int] | None:
        """Return the result of `session.tasks_of` if it has changed; Spark is asked only now and then."""
        if time.monotonic() < self._ask_s:
            return None
        self._ask_s = time.monotonic() + _ASK_INTERVAL_S
        told, self._told = self._told, spark_session.tasks_of(self._rows.session, self._tag) or self._told
        return self._told if self._told != told else None

    def cancel(self) -> None:
        """Cancel the job, and wait a moment for its end; Spark may not know it yet, and is asked again."""
        self._cancelled = True
        until = time.monotonic() + _CANCEL_TIMEOUT_S
        while self._thread.is_alive() and time.monotonic() < until:
            if not spark_session.cancel_tagged(self._rows.session, self._tag):
                return
            self._thread.join(_CANCEL_AGAIN_S)

    def _run(self) -> None:
        try:
            session = self._rows.session
            with (
                spark_session.tagged(session, self._tag, self._description),
                spark_session.without_noise(session),
            ):
                if self._cancelled:
                    return
                self.rows_sent = self._rows.send(msgspec.msgpack.encode(self._plan))
        except Exception as error:  # noqa: BLE001 - the thread that waits for this one raises it
            self.error = error
