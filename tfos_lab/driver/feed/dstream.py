"""Feeds a DStream to the nodes: the RDD of each micro-batch, once the one before has been read.

Spark calls back for each micro-batch, from its own thread; the rest of the stream waits there meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfos_lab.core.states import RunState
from tfos_lab.driver.feed.inference import AnsweringNodes
from tfos_lab.driver.feed.request import check_feed, make_request
from tfos_lab.driver.feed.stream import STEP_S, MicroBatches
from tfos_lab.driver.state.instructions import Failure
from tfos_lab.errors import ClusterEnded
from tfos_lab.launchers.spark import session as spark_session

if TYPE_CHECKING:
    from tfos_lab.core.config import FeedConfig
    from tfos_lab.driver.cluster import Cluster
    from tfos_lab.driver.feed.feeding import Feeding

# How long the micro-batch under way may take when the stream ends.
_LAST_S = 600.0
# How long a context that interrupts its jobs may take to say that it has stopped.
_STOPPING_S = 10.0


class DStreamFeed(MicroBatches):
    """A DStream that is being fed; what `Cluster.train` returns for one.

    Its rows come as soon as its ``StreamingContext`` is started, and until that is stopped; or until `stop`, the nodes'
    ``terminate()``, or the cluster's end.
    """

    def __init__(self, cluster: Cluster, feeding: Feeding, stream: Any, config: FeedConfig, queue: str) -> None:
        super().__init__(cluster, feeding)
        self._context = stream.context()
        self._config, self._queue = config, queue
        self._nodes = AnsweringNodes(cluster, feeding)
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
        try:
            self._begin()
        except ClusterEnded:
            return
        try:
            self._feed_rdd(rdd)
        except ClusterEnded:
            self._ending.set()
        except Exception as error:
            self._ending.set()
            if self._was_interrupted(error):
                return
            head = self._cluster.head
            if not head.state.state.ended:
                own = spark_session.job_error(error, "the DStream failed")
                head.fail(Failure("feed", type(own).__name__, str(own)))
            raise
        finally:
            self._end()

    def _feed_rdd(self, rdd: Any) -> None:
        if not rdd.getNumPartitions():
            return
        config = self._config
        objects = config.objects
        if objects is None:
            objects = config.columns is None and self._nodes.want_objects(config.feed_timeout)
        if not objects and rdd.isEmpty():
            return  # Spark finds no columns in it
        request = make_request(self._cluster, rdd, {**vars(config), "objects": objects}, self._queue)
        self._feed_rows(replace(request, stream=True, source=self._source))

    # ---- the watcher ------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Notice the end: of the context, of the cluster, or of the nodes' interest."""
        try:
            while not self._ending.wait(STEP_S * 2) and not self._has_stopped():
                head = self._cluster.head
                if head.state.state is not RunState.RESTARTING and self._is_unwanted(head):
                    break
            self._wait_until_idle(_LAST_S)
        finally:
            self._over.set()
        self._feeding.pass_on_end(self._cluster.head)

    def _was_interrupted(self, error: Exception) -> bool:
        """Whether a job was cut short as the context is being stopped, which it says a little later."""
        deadline = time.monotonic() + _STOPPING_S
        while "InterruptedException" in str(error) and time.monotonic() < deadline:
            if self._has_stopped():
                return True
            time.sleep(STEP_S)
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
