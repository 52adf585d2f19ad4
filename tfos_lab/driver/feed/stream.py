"""Feeds a streaming DataFrame to the nodes: each micro-batch is a feed, and is done when the nodes have read its rows.

Only then does Spark write the micro-batch into its checkpoint, so a stream that is started again continues with the
first rows that nobody has read.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfos_lab.core.states import RunState
from tfos_lab.data.frames import is_connect
from tfos_lab.driver.feed.job import HeadLost
from tfos_lab.driver.state.instructions import Failure
from tfos_lab.errors import ClusterEnded, ConfigError, FeedError
from tfos_lab.launchers.spark import session as spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tfos_lab.driver.cluster import Cluster
    from tfos_lab.driver.feed.feeding import Feeding
    from tfos_lab.driver.feed.request import FeedRequest
    from tfos_lab.driver.head import Head
    from tfos_lab.driver.state.driver_feed import DriverFeed

logger = logging.getLogger(__name__)


STEP_S = 0.05


class MicroBatches:
    """The micro-batches of one stream; what the streams of Structured Streaming and DStreams have in common."""

    def __init__(self, cluster: Cluster, feeding: Feeding) -> None:
        self._cluster = cluster
        self._feeding = feeding
        self._ending = threading.Event()
        self._idle = threading.Condition()
        self._busy = False
        self._has_fed = False
        self._over = threading.Event()

    @property
    def is_over(self) -> bool:
        """Whether the nodes have been given all rows."""
        return self._over.is_set()

    def join(self, timeout_s: float) -> None:
        """Wait for the stream's end."""
        self._over.wait(timeout_s)

    def _begin(self) -> None:
        """Begin a micro-batch; raise if no more are wanted."""
        with self._idle:
            if self._ending.is_set():
                raise ClusterEnded(cluster=self._cluster.name, state="ending", asked="feed rows of a stream")
            self._busy = True

    def _end(self) -> None:
        with self._idle:
            self._busy = False
            self._idle.notify_all()

    def _wait_until_idle(self, timeout_s: float) -> None:
        """Begin no further micro-batch, and wait for the end of the one under way."""
        self._ending.set()
        with self._idle:
            self._idle.wait_for(lambda: not self._busy, timeout_s)

    def _feed_rows(self, request: FeedRequest) -> None:
        """Feed a micro-batch, and wait until it has been read; once more, to nodes that are started again."""
        while True:
            self._cluster.wait_until_running()
            head = self._cluster.head
            try:
                with self._feeding.lock:
                    feed = self._feeding.run_job(head, request)
                    self._has_fed = True
                self._wait_until_read(head, feed)
                return
            except HeadLost:
                self._cluster.wait_for_head(head.number + 1)

    def _wait_until_read(self, head: Head, feed: DriverFeed) -> None:
        while feed.total_rows and len(feed.read_by) < len(feed.ranks):
            if head.state.state is RunState.RESTARTING:
                raise HeadLost
            if self._is_unwanted(head):
                raise ClusterEnded(cluster=self._cluster.name, state="done with it", asked="read rows of a stream")
            time.sleep(STEP_S)

    def _is_unwanted(self, head: Head) -> bool:
        """Whether the nodes want no more rows, or none is left to read them."""
        with head.lock:
            nodes = [head.state.views[rank].state for rank in head.feed_state.ranks]
            stopped = head.feed_state.stopped_by is not None
        return stopped or self._cluster.ended or any(state.ended for state in nodes)


class StreamFeed(MicroBatches):
    """A stream that is being fed; what `Cluster.train` returns for a streaming DataFrame.

    Attributes
    ----------
    query : pyspark.sql.streaming.StreamingQuery
        Spark's own handle. To end it, call `stop` of this object, which waits for the rows under way.
    """

    def __init__(self, cluster: Cluster, feeding: Feeding, request: FeedRequest) -> None:
        super().__init__(cluster, feeding)
        assert request.frame is not None
        self._request, self._frame = request, request.frame
        self._done_batch = -1
        self.query: Any = None

    def __repr__(self) -> str:
        state = "active" if self.is_active else "ended"
        return f"<stream to cluster {self._cluster.name!r}: {state}, micro-batch {self._done_batch}>"

    def start(self, checkpoint: str) -> None:
        """Start the query; Spark calls `_feed` from its own thread."""
        writer = self._frame.writeStream.foreachBatch(self._feed).option("checkpointLocation", checkpoint)
        self.query = writer.start()
        threading.Thread(target=self._watch, name=f"tfos-stream-{self._cluster.id}", daemon=True).start()

    @property
    def is_active(self) -> bool:
        """Whether rows may still come."""
        return self.query is None or bool(self.query.isActive)

    def stop(self, timeout_s: float = 60.0) -> None:
        """Feed no more rows, after the micro-batch under way has been read. May be called twice."""
        deadline = time.monotonic() + timeout_s
        self._wait_until_idle(timeout_s)
        try:
            while self.is_active and self._committed() < self._done_batch and time.monotonic() < deadline:
                time.sleep(STEP_S)
        finally:
            self.query.stop()

    def _committed(self) -> int:
        """Return the last micro-batch in the checkpoint, by Spark's own commit log; -1 for none.

        The query's progress would not do: while it idles, it names the next batch (seen on Spark 4.3).
        """
        latest = self.query._jsq.streamingQuery().commitLog().getLatestBatchId()  # noqa: SLF001 - there is no public API for it
        return int(latest.get()) if latest.isDefined() else -1

    # ---- Spark's thread ---------------------------------------------------------------------------------------------

    def _feed(self, rows: DataFrame, batch: int) -> None:
        self._begin()
        try:
            if batch > self._done_batch:
                self._feed_rows(replace(self._request, frame=rows))
                self._done_batch = batch
        except ClusterEnded:
            self._ending.set()  # the query ends with this error, which is no failure of the stream
            raise
        finally:
            self._end()

    # ---- the watcher ------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """End the query when nobody wants its rows; fail the cluster when the query fails."""
        try:
            while self.is_active:
                head = self._cluster.head
                if head.state.state is not RunState.RESTARTING and self._is_unwanted(head):
                    self._ending.set()
                    self.query.stop()
                time.sleep(STEP_S * 2)
            self._feed_columns()
        finally:
            self._over.set()
        self._feeding.pass_on_end(self._cluster.head)
        error = self.query.exception()
        if error is not None and not self._ending.is_set():
            own = spark_session.job_error(error, "the stream failed")
            self._cluster.head.fail(Failure("feed", type(own).__name__, str(own)))

    def _feed_columns(self) -> None:
        """Show the nodes the columns of a stream that has ended before its first row, by an empty feed."""
        if self._has_fed or self._cluster.ended or self.query.exception() is not None:
            return
        frame = self._frame
        with contextlib.suppress(Exception):  # the cluster has ended, or Spark has
            self._feed_rows(replace(self._request, frame=frame.sparkSession.createDataFrame([], frame.schema)))


def feed_stream(cluster: Cluster, feeding: Feeding, request: FeedRequest, *, checkpoint: str) -> StreamFeed:
    """Feed a streaming DataFrame; see `Cluster.train`."""
    if is_connect(request.rows_as(objects=False).session):
        raise ConfigError(["data: streaming DataFrames need a classic session; through Spark Connect, feed tables"])
    cluster.wait_until_running()
    if cluster.ended:
        raise ClusterEnded(cluster=cluster.name, state=cluster.state, asked="feed rows")
    stream = StreamFeed(cluster, feeding, request)
    feeding.streams.append(stream)
    try:
        stream.start(checkpoint)
    except BaseException as error:
        feeding.streams.remove(stream)
        if isinstance(error, Exception):
            raise FeedError(reason=f"the stream could not be started: {spark_session.cause_of(error)}") from error
        raise
    return stream


class _OwnEnding(logging.Filter):
    """Drops the error that ends a micro-batch that nobody wants: py4j would print a traceback of it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log the record."""
        return not (record.exc_info and isinstance(record.exc_info[1], ClusterEnded))


logging.getLogger("py4j.clientserver").addFilter(_OwnEnding())
