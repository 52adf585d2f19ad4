"""Feeds streams to the nodes: each micro-batch is a feed, and is done when the nodes have read its rows.

Only then does Spark write the micro-batch of a streaming DataFrame into its checkpoint, so a stream that is started
again continues with the first rows that nobody has read. Of a DStream, Spark calls back for the RDD of each
micro-batch, from its own thread; the rest of the stream waits there meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfos_lab.core.states import RunState
from tfos_lab.data.frames import is_connect
from tfos_lab.driver.feed.inference import want_objects
from tfos_lab.driver.feed.request import check_feed, make_request
from tfos_lab.errors import ClusterEnded, ConfigError, FeedError
from tfos_lab.launchers.spark import session as spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tfos_lab.core.config import FeedConfig
    from tfos_lab.driver.cluster import Cluster
    from tfos_lab.driver.feed.feeding import Feeding
    from tfos_lab.driver.feed.request import FeedRequest
    from tfos_lab.driver.head import Head

logger = logging.getLogger(__name__)

_STEP_S = 0.05
# How long the micro-batch of a DStream that is under way may take when the stream ends.
_LAST_S = 600.0
# How long a context that interrupts its jobs may take until its state is STOPPED.
_STOPPING_S = 10.0


class MicroBatches:
    """The micro-batches of one stream; what the streams of Structured Streaming and DStreams have in common."""

    def __init__(self, cluster: Cluster, feeding: Feeding) -> None:
        self._cluster = cluster
        self._feeding = feeding
        self._ending = threading.Event()
        self._under_way = threading.Lock()
        self._has_fed = False
        self._over = threading.Event()

    @property
    def is_over(self) -> bool:
        """Whether the nodes have been given all rows."""
        return self._over.is_set()

    def join(self, timeout_s: float) -> None:
        """Wait for the stream's end."""
        self._over.wait(timeout_s)

    @contextlib.contextmanager
    def _micro_batch(self) -> Iterator[None]:
        """Feed a micro-batch in the block; raises ClusterEnded if no more are wanted."""
        with self._under_way:
            if self._ending.is_set():
                raise ClusterEnded(cluster=self._cluster.name, state="ending", asked="feed rows of a stream")
            yield

    def _wait_until_idle(self, timeout_s: float) -> None:
        """Begin no further micro-batch, and wait for the end of the one under way."""
        self._ending.set()
        if self._under_way.acquire(timeout=timeout_s):
            self._under_way.release()

    def _feed_rows(self, request: FeedRequest) -> None:
        """Feed a micro-batch, and wait until it has been read; once more, to nodes that are started again."""

        def feed_rows(head: Head) -> None:
            with self._feeding.lock:
                feed = self._feeding.run_job(head, request)
                self._has_fed = True

            def is_read() -> bool:
                return not feed.total_rows or len(feed.read_by) == len(feed.ranks)

            head.await_rows(lambda: is_read() or self._is_unwanted(head))
            if not is_read():
                raise ClusterEnded(cluster=self._cluster.name, state="done with it", asked="read rows of a stream")

        self._feeding.with_head(feed_rows)

    def _is_unwanted(self, head: Head) -> bool:
        """Whether the nodes want no more rows, or have ended and are not restarted."""
        if head.state.state is RunState.RESTARTING:
            return False
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
                time.sleep(_STEP_S)
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
        try:
            with self._micro_batch():
                if batch > self._done_batch:
                    self._feed_rows(replace(self._request, frame=rows))
                    self._done_batch = batch
        except ClusterEnded:
            self._ending.set()  # the query ends with this error, which is no failure of the stream
            raise

    # ---- the watcher ------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """End the query when nobody wants its rows; fail the cluster when the query fails."""
        try:
            while self.is_active:
                if self._is_unwanted(self._cluster.head):
                    self._ending.set()
                    self.query.stop()
                time.sleep(_STEP_S * 2)
            self._feed_columns()
        finally:
            self._over.set()
        self._feeding.pass_on_end(self._cluster.head)
        error = self.query.exception()
        if error is not None and not self._ending.is_set():
            self._feeding.fail(spark_session.job_error(error, "the stream failed"))

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


# ---- DStreams -------------------------------------------------------------------------------------------------------


class DStreamFeed(MicroBatches):
    """A DStream that is being fed; what `Cluster.train` returns for one.

    Its rows come as soon as its ``StreamingContext`` is started, and until that is stopped; or until `stop`, the nodes'
    ``terminate()``, or the cluster's end.
    """

    def __init__(self, cluster: Cluster, feeding: Feeding, stream: Any, config: FeedConfig, queue: str) -> None:
        super().__init__(cluster, feeding)
        self._context = stream.context()
        self._config, self._queue = config, queue
        self._source = feeding.next_source()
        stream.foreachRDD(self._feed)
        threading.Thread(target=self._watch, name=f"tfos-dstream-{cluster.id}", daemon=True).start()

    def __repr__(self) -> str:
        return f"<DStream to cluster {self._cluster.name!r}: {'active' if self.is_active else 'ended'}>"

    @property
    def is_active(self) -> bool:
        """Whether rows may still come."""
        return not self.is_over

    def stop(self, timeout_s: float = 60.0) -> None:
        """Feed no more rows, after the micro-batch under way has been read. May be called twice.

        The ``StreamingContext`` goes on: it is yours to stop.
        """
        self._wait_until_idle(timeout_s)
        self.join(timeout_s)

    # ---- Spark's thread ---------------------------------------------------------------------------------------------

    def _feed(self, _time: Any, rdd: Any) -> None:
        """Feed one micro-batch; those that nobody wants are skipped."""
        with contextlib.suppress(ClusterEnded), self._micro_batch():
            try:
                self._feed_rdd(rdd)
            except ClusterEnded:
                self._ending.set()
            except Exception as error:
                self._ending.set()
                if self._was_interrupted(error):
                    return
                self._feeding.fail(spark_session.job_error(error, "the DStream failed"))
                raise

    def _feed_rdd(self, rdd: Any) -> None:
        if not rdd.getNumPartitions():
            return
        config = self._config
        objects = config.objects
        if objects is None:
            objects = config.columns is None and self._feeding.with_head(
                lambda head: want_objects(head, config.feed_timeout)
            )
        if not objects and rdd.isEmpty():
            return  # Spark finds no columns in it
        request = make_request(self._cluster, rdd, {**vars(config), "objects": objects}, self._queue)
        self._feed_rows(replace(request, stream=True, source=self._source))

    # ---- the watcher ------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Notice the end: of the context, of the cluster, or of the nodes' interest."""
        try:
            while not (self._ending.wait(_STEP_S * 2) or self._has_stopped() or self._is_unwanted(self._cluster.head)):
                pass
            self._wait_until_idle(_LAST_S)
        finally:
            self._over.set()
        self._feeding.pass_on_end(self._cluster.head)

    def _was_interrupted(self, error: Exception) -> bool:
        """Whether a job was interrupted because the context is being stopped, which its state shows a little later."""
        deadline = time.monotonic() + _STOPPING_S
        while "InterruptedException" in str(error) and time.monotonic() < deadline:
            if self._has_stopped():
                return True
            time.sleep(_STEP_S)
        return False

    def _has_stopped(self) -> bool:
        """Whether the StreamingContext has been stopped, or its JVM is gone."""
        try:
            return str(self._context._jssc.getState()) == "STOPPED"  # noqa: SLF001 - there is no public way to ask
        except Exception:  # noqa: BLE001 - any error means that nobody answers
            return True


def feed_dstream(
    cluster: Cluster, feeding: Feeding, stream: Any, options: Mapping[str, Any], queue: str
) -> DStreamFeed:
    """Feed a DStream from the start of its context on; options and errors are those of `Cluster.train`."""
    feed = DStreamFeed(cluster, feeding, stream, check_feed(cluster, stream, options, queue), queue)
    feeding.streams.append(feed)
    return feed
