"""Feeds a DataFrame to the nodes: opens their endpoints, runs Spark's job, and sees that all adds up."""

from __future__ import annotations

import secrets
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from tfos_lab import messages as m
from tfos_lab.data.prepare import map_batches
from tfos_lab.engine.spark import session as spark_session
from tfos_lab.engine.spark.archived import make_task
from tfos_lab.engine.state.instructions import Failure
from tfos_lab.engine.state.readers import NOBODY_READS, never_asked
from tfos_lab.errors import ClusterEnded, ConfigError, FeedError, FeedTimeout, RecordError
from tfos_lab.node.feed.plan import FeedPlan

if TYPE_CHECKING:
    from tfos_lab.engine.feed.request import FeedRequest
    from tfos_lab.engine.generation import Generation
    from tfos_lab.engine.lifecycle import Lifecycle
    from tfos_lab.engine.state.feed_state import Feed

_SCHEMA = "partition long, attempt string, rows long"
_STEP_S = 0.1
_ASK_SPARK_S = 0.5
_OPEN_TIMEOUT_S = 30.0
_OPEN_STEP_S = 0.005
_SETTLE_TIMEOUT_S = 2.0
_CANCEL_TIMEOUT_S = 5.0
_CAUSE_PATIENCE_S = 2.0
# What fails the cluster, too: its nodes would wait for rows that never come.
_FAILURES = (FeedError, RecordError, ConfigError)


class GenerationLost(Exception):
    """A node was lost in the middle of a feed, and the nodes are started again."""


class FeedJob:
    """One feed to the nodes of one generation, from its opening to its end."""

    def __init__(
        self, cluster: Lifecycle, generation: Generation, request: FeedRequest, tls: m.TlsIdentity | None
    ) -> None:
        self._cluster = cluster
        self._generation = generation
        self._feed_state = generation.feed_state
        self._request = request
        self._frame = request.frame
        self._timeout_s = request.timeout_s
        self._schema = request.frame.schema.json()
        self._token = secrets.token_hex(16)
        self._tls = tls
        self._tag = f"tfos-feed-{cluster.id}-{secrets.token_hex(3)}"
        self._ask_spark_s = 0.0
        self._ended_tasks = 0
        self._rows: list[Any] | None = None
        self._error: Exception | None = None

    def run(self) -> Feed:
        """Feed, wait until every row that Spark produced has been committed, and return the feed's books."""
        server = self._generation.server
        feed = self._open()
        try:
            self._generation.launcher.free_slots()
            self._run_job(feed)
            self._wait_until_complete(feed)
            return feed
        except BaseException as error:
            reason = _reason_to_read_no_further(error)
            server.request(lambda _now_s: self._feed_state.abort(feed.number, reason))
            if isinstance(error, _FAILURES):
                self._generation.fail(Failure("feed", type(error).__name__, reason))
                self._settle()
            raise

    def _settle(self) -> None:
        """Wait until the cluster's state tells of the failure, too."""
        deadline = time.monotonic() + _SETTLE_TIMEOUT_S
        while not self._cluster.ended and time.monotonic() < deadline:
            time.sleep(0.005)

    def _open(self) -> Feed:
        """Open every node's endpoint and wait for all of them."""
        feed_state, asked = self._feed_state, self._request
        before = feed_state.current
        dataset_id = m.FeedOpen(
            feed=-1,
            epochs=asked.epochs,
            remainder=asked.remainder,
            schema=self._schema,
            token=self._token,
            tls=self._tls,
            stream=asked.stream,
            spool_bytes=asked.spool_bytes,
        )
        self._wait_for_readers()
        self._generation.server.request(lambda _now_s: feed_state.open(dataset_id, asked.source))
        deadline = time.monotonic() + _OPEN_TIMEOUT_S
        while time.monotonic() < deadline:
            feed = feed_state.current
            if feed is not None and feed is not before and len(feed.locations) == len(feed.ranks):
                return feed
            self._check_cluster()
            self._refuse_if_nobody_reads()
            time.sleep(_OPEN_STEP_S)
        raise FeedTimeout(reason=f"the nodes did not open their endpoints for rows within {_OPEN_TIMEOUT_S:g} s")

    def _wait_for_readers(self) -> None:
        """Wait until it is known which nodes read: beside parameter servers, workers may serve the chief instead."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            self._check_cluster()
            self._refuse_if_nobody_reads()
            undecided = self._feed_state.undecided
            if not undecided:
                break
            if time.monotonic() > deadline:
                raise FeedTimeout(reason=never_asked(undecided, self._timeout_s))
            time.sleep(_OPEN_STEP_S)
        if not self._feed_state.ranks:
            raise FeedError(reason=NOBODY_READS)

    def _refuse_if_nobody_reads(self) -> None:
        """Begin no feed whose rows would partly be read by nobody. What is under way ends early instead (`_watch`)."""
        if returned := self._feed_state.returned:
            state = "done" if self._generation.state == "done" else f"half done ({', '.join(returned)} returned)"
            raise ClusterEnded(cluster=self._cluster.name, state=state, asked="feed rows")

    def _run_job(self, feed: Feed) -> None:
        """Run Spark's job on a thread of its own, so that an interrupt or a failing node can cancel it."""
        thread = threading.Thread(target=self._collect, args=(feed,), name=f"tfos-feed-{self._cluster.id}", daemon=True)
        thread.start()
        feed_state, server = self._feed_state, self._generation.server
        server.request(lambda now_s: feed_state.foresee(feed.number, None, now_s))
        try:
            stopped = self._watch(thread, feed)
        except BaseException:
            self._cancel(thread)
            raise
        if stopped:
            self._cancel(thread)
            server.request(lambda now_s: feed_state.cut(feed.number, now_s))
            self._record_early_end(feed)
            return
        if self._error is not None:
            self._look_for_a_cause()
            raise spark_session.job_error(self._error)
        rows = self._rows or []
        total, partitions = sum(row["rows"] for row in rows), len(rows)
        server.request(lambda now_s: feed_state.job_done(feed.number, total, partitions, now_s))

    def _record_early_end(self, feed: Feed) -> None:
        if self._feed_state.stopped_by is None and not self._request.stream:
            done, names = len(feed.committed), ", ".join(self._feed_state.returned)
            self._cluster.note(f"the feed ended early, after {done} of its partitions, as {names} returned")

    def _is_unwanted(self) -> bool:
        """Whether a node wants no more rows: it has said so, or its function has returned."""
        return self._feed_state.stopped_by is not None or bool(self._feed_state.returned)

    def _look_for_a_cause(self) -> None:
        """A node that is gone makes Spark's job fail, too, and the cluster state hears of it a moment later."""
        deadline = time.monotonic() + _CAUSE_PATIENCE_S
        while "Flight" in str(self._error) and time.monotonic() < deadline:
            self._check_cluster()
            time.sleep(0.02)

    def _watch(self, thread: threading.Thread, feed: Feed) -> bool:
        """Wait for the job; returns whether a node wants no more rows before its end."""
        moves, moved_s = (0, 0), time.monotonic()
        while thread.is_alive():
            thread.join(_STEP_S)
            self._check_cluster()
            if self._is_unwanted():
                return True
            self._ask_spark(feed)
            now = (self._feed_state.moves, self._ended_tasks)
            if now != moves:
                moves, moved_s = now, time.monotonic()
            self._check_patience(time.monotonic() - moved_s)
        # Where all nodes have returned and gone, tasks find nobody.
        return self._error is not None and self._is_unwanted()

    def _ask_spark(self, feed: Feed) -> None:
        """Ask Spark now and then how far it is: for whoever looks on, and as it may work long before the first row."""
        if time.monotonic() < self._ask_spark_s:
            return
        self._ask_spark_s = time.monotonic() + _ASK_SPARK_S
        told = spark_session.tasks_of(self._frame.sparkSession, self._tag)
        if told is None:
            return
        partitions, self._ended_tasks = told
        if partitions != feed.foreseen_partitions:
            self._generation.server.request(lambda now_s: self._feed_state.foresee(feed.number, partitions, now_s))

    def _cancel(self, thread: threading.Thread) -> None:
        spark_session.cancel_tagged(self._frame.sparkSession, self._tag)
        thread.join(_CANCEL_TIMEOUT_S)

    def _check_patience(self, idle_s: float) -> None:
        if idle_s > self._timeout_s:
            raise FeedTimeout(
                reason=f"nothing has moved for {self._timeout_s:g} s: Spark ended no task, and no node got or took "
                "a row; see whether map_fun reads its rows, or raise feed_timeout (timeout_s of cluster.train)"
            )

    def _collect(self, feed: Feed) -> None:
        plan = FeedPlan(
            feed=feed.number,
            token=self._token,
            locations=feed.locations,
            schema=self._schema,
            certificate=self._tls.certificate if self._tls else b"",
        )
        task = make_task("tfos_lab.node.feed.task", "feed_task", msgspec.msgpack.encode(plan))
        spark = self._frame.sparkSession
        try:
            with spark_session.tagged(spark, self._tag, f"tfos_lab: rows for '{self._cluster.name}'"):
                self._rows = map_batches(self._frame, task, _SCHEMA).collect()
        except Exception as error:  # noqa: BLE001 - raised again by the thread that waits for this one
            self._error = error

    def _wait_until_complete(self, feed: Feed) -> None:
        deadline = time.monotonic() + self._timeout_s
        while feed.state == "open" and self._generation.state != "done":
            self._check_cluster()
            if time.monotonic() > deadline:
                raise FeedTimeout(reason=f"rows were stored but not committed within {self._timeout_s:g} s")
            time.sleep(0.005)
        if feed.total_rows != feed.expected_rows and not self._is_unwanted():
            raise FeedError(
                reason=f"Spark produced {feed.expected_rows} rows, {feed.total_rows} were committed: "
                "a fault of tfos_lab, please report it"
            )

    def _check_cluster(self) -> None:
        """A node that has failed, or a cluster that has been stopped, ends the feed."""
        state = self._generation.state
        if state == "restarting":
            raise GenerationLost(self._generation.cluster_state.reason)
        if state == "failed":
            raise self._cluster.failure()
        if state in ("stopped", "stopping"):
            raise ClusterEnded(cluster=self._cluster.name, state=state, asked="feed rows")


def _reason_to_read_no_further(error: BaseException) -> str:
    """Say to a node that is in the middle of a feed why no more rows come."""
    if isinstance(error, KeyboardInterrupt):
        return "cluster.train was interrupted before all rows had come: start another cluster to read them"
    return str(error) or type(error).__name__
