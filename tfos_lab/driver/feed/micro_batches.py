"""Feeds the micro-batches of a stream, one after another: each is done when the nodes have read its rows."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tfos_lab.core.states import RunState
from tfos_lab.driver.feed.job import HeadLost
from tfos_lab.errors import ClusterEnded

if TYPE_CHECKING:
    from tfos_lab.driver.cluster import Cluster
    from tfos_lab.driver.feed.feeding import Feeding
    from tfos_lab.driver.feed.request import FeedRequest
    from tfos_lab.driver.head import Head
    from tfos_lab.driver.state.driver_feed import DriverFeed

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
