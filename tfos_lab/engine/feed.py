"""Feeds a DataFrame to the nodes: checks it, opens their endpoints, runs Spark's job, and sees that all adds up."""

from __future__ import annotations

import secrets
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from tfos_lab.data.prepare import map_batches, prepare
from tfos_lab.engine import spark_session
from tfos_lab.engine.roster import Failure
from tfos_lab.engine.shipping import make_task
from tfos_lab.errors import ClusterEnded, ConfigError, FeedError, FeedTimeout, NoSession, TfosError
from tfos_lab.node.feed_plan import FeedPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tfos_lab.engine.cluster import Cluster
    from tfos_lab.engine.feed_ledger import Feed
    from tfos_lab.engine.launchers.base import Launcher

_SCHEMA = "partition long, attempt string, rows long"
_STEP_S = 0.1
_OPEN_TIMEOUT_S = 30.0
_SETTLE_TIMEOUT_S = 2.0
_CANCEL_TIMEOUT_S = 5.0


def feed_rows(
    cluster: Cluster,
    launcher: Launcher,
    data: Any,
    *,
    epochs: int,
    columns: list[str] | None,
    remainder: str,
    timeout_s: float,
) -> None:
    """Feed ``data`` to all training nodes; see `Cluster.train`."""
    frame = _checked_frame(cluster, data, epochs, columns, remainder)
    cluster.wait_until_running()
    if cluster.ended:
        raise ClusterEnded(cluster=cluster.name, state=cluster.state, asked="feed rows")
    with cluster.feeding:
        FeedJob(cluster, launcher, frame, timeout_s).run(epochs, remainder)


def _checked_frame(cluster: Cluster, data: Any, epochs: int, columns: list[str] | None, remainder: str) -> DataFrame:
    """Refuse what cannot be fed, before anything is started."""
    problems = []
    if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
        problems.append(f"epochs={epochs!r}: a whole number, at least 1, is needed")
    if remainder not in ("pad", "drop"):
        problems.append(f"remainder={remainder!r}: use 'pad' or 'drop'")
    if not hasattr(data, "mapInArrow") and not hasattr(data, "mapPartitions"):
        problems.append(f"data={type(data).__name__}: a Spark DataFrame or RDD is needed (spark.createDataFrame)")
    if problems:
        raise ConfigError(problems)
    if cluster.ended:
        raise ClusterEnded(cluster=cluster.name, state=cluster.state, asked="feed rows")
    if not hasattr(data, "mapInArrow"):
        session = cluster.spark or spark_session.active_session()
        if session is None:
            raise NoSession(reason="an RDD is to be fed, but there is no SparkSession to read it with")
        data = session.createDataFrame(data)
    spark_session.require_alive(data.sparkSession)
    return prepare(data, columns)


class FeedJob:
    """One feed from its opening to its end."""

    def __init__(self, cluster: Cluster, launcher: Launcher, frame: DataFrame, timeout_s: float) -> None:
        self._cluster = cluster
        self._launcher = launcher
        self._frame = frame
        self._timeout_s = timeout_s
        self._schema = frame.schema.json()
        self._token = secrets.token_hex(16)
        # Nodes on this machine are reached by unix sockets; executors may lie on several hosts.
        self._tls = cluster.tls_identity() if launcher.name == "spark" else None
        self._tag = f"tfos-feed-{cluster.id}-{secrets.token_hex(3)}"
        self._rows: list[Any] | None = None
        self._error: Exception | None = None

    def run(self, epochs: int, remainder: str) -> None:
        """Feed, and wait until every row that Spark produced has been committed."""
        feed = self._open(epochs, remainder)
        try:
            self._launcher.free_slots()
            self._run_job(feed)
            self._wait_until_complete(feed)
        except BaseException as error:
            reason = str(error) or type(error).__name__
            self._cluster.request(lambda _now_s: self._cluster.ledger.abort(feed.number, reason))
            if isinstance(error, FeedError):
                failure = Failure("feed", type(error).__name__, reason)
                self._cluster.request(lambda now_s: self._cluster.roster.fail(failure, now_s))
                self._settle()
            raise

    def _settle(self) -> None:
        """Wait until the cluster's state tells of the failure, too."""
        deadline = time.monotonic() + _SETTLE_TIMEOUT_S
        while not self._cluster.ended and time.monotonic() < deadline:
            time.sleep(0.005)

    def _open(self, epochs: int, remainder: str) -> Feed:
        """Open every node's endpoint and wait for all of them."""
        ledger = self._cluster.ledger
        before = ledger.current
        self._cluster.request(lambda _now_s: ledger.open(self._schema, epochs, remainder, self._token, self._tls))
        deadline = time.monotonic() + _OPEN_TIMEOUT_S
        while time.monotonic() < deadline:
            feed = ledger.current
            if feed is not None and feed is not before and len(feed.locations) == len(feed.seats):
                return feed
            self._check_cluster()
            time.sleep(0.005)
        raise FeedTimeout(reason=f"the nodes did not open their endpoints for rows within {_OPEN_TIMEOUT_S:g} s")

    def _run_job(self, feed: Feed) -> None:
        """Run Spark's job on a thread of its own, so that an interrupt or a failing node can cancel it."""
        thread = threading.Thread(target=self._collect, args=(feed,), name=f"tfos-feed-{self._cluster.id}", daemon=True)
        thread.start()
        ledger = self._cluster.ledger
        try:
            stopped = self._watch(thread, feed)
        except BaseException:
            self._cancel(thread)
            raise
        if stopped:
            self._cancel(thread)
            self._cluster.request(lambda now_s: ledger.cut(feed.number, now_s))
            return
        if self._error is not None:
            raise FeedError(reason=_reason(self._error)) from self._error
        rows = self._rows or []
        total, partitions = sum(row["rows"] for row in rows), len(rows)
        self._cluster.request(lambda now_s: ledger.job_done(feed.number, total, partitions, now_s))

    def _watch(self, thread: threading.Thread, feed: Feed) -> bool:
        """Wait for the job; returns whether a node wants no more rows before its end."""
        progress, progressed_s = (0, 0), time.monotonic()
        while thread.is_alive():
            thread.join(_STEP_S)
            self._check_cluster()
            if self._cluster.ledger.stopped_by is not None:
                return True
            now = (len(feed.committed), feed.size_bytes)
            if now != progress:
                progress, progressed_s = now, time.monotonic()
            self._check_patience(time.monotonic() - progressed_s)
        return False

    def _cancel(self, thread: threading.Thread) -> None:
        spark_session.cancel_tagged(self._frame.sparkSession, self._tag)
        thread.join(_CANCEL_TIMEOUT_S)

    def _check_patience(self, idle_s: float) -> None:
        if idle_s > self._timeout_s:
            raise FeedTimeout(reason=f"no partition was stored for {self._timeout_s:g} s; raise feed_timeout")

    def _collect(self, feed: Feed) -> None:
        plan = FeedPlan(
            feed=feed.number,
            token=self._token,
            locations=feed.locations,
            schema=self._schema,
            certificate=self._tls.certificate if self._tls else b"",
        )
        task = make_task("tfos_lab.node.feed_task", "feed_task", msgspec.msgpack.encode(plan))
        spark = self._frame.sparkSession
        try:
            with spark_session.tagged(spark, self._tag, f"tfos_lab: rows for '{self._cluster.name}'"):
                self._rows = map_batches(self._frame, task, _SCHEMA).collect()
        except Exception as error:  # noqa: BLE001 - raised again by the thread that waits for this one
            self._error = error

    def _wait_until_complete(self, feed: Feed) -> None:
        deadline = time.monotonic() + self._timeout_s
        while feed.state == "open":
            self._check_cluster()
            if time.monotonic() > deadline:
                raise FeedTimeout(reason=f"rows were stored but not committed within {self._timeout_s:g} s")
            time.sleep(0.005)
        if feed.total_rows != feed.expected_rows and self._cluster.ledger.stopped_by is None:
            raise FeedError(
                reason=f"Spark produced {feed.expected_rows} rows, {feed.total_rows} were committed: "
                "a fault of tfos_lab, please report it"
            )

    def _check_cluster(self) -> None:
        """A node that has failed, or a cluster that has been stopped, ends the feed."""
        state = self._cluster.state
        if state == "failed":
            raise self._cluster.failure()
        if state in ("stopped", "stopping"):
            raise ClusterEnded(cluster=self._cluster.name, state=state, asked="feed rows")


def _reason(error: Exception) -> str:
    if isinstance(error, TfosError):
        return str(error)
    return spark_session.own_words_in(error) or f"Spark's job failed: {spark_session.cause_of(error)}"
