"""All feeds of a cluster: one at a time, and all of them once more for nodes that are started again."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from tfos_lab.core.threads import on_a_thread
from tfos_lab.data.frames import is_stream
from tfos_lab.driver.feed.request import is_dstream
from tfos_lab.driver.head import Head, HeadLost
from tfos_lab.driver.state.instructions import Failure
from tfos_lab.driver.state.readers import returned_unread
from tfos_lab.errors import ClusterEnded, ConfigError, FeedError, NoSession, RecordError

if TYPE_CHECKING:
    from tfos_lab.core.certificates import Identities
    from tfos_lab.driver.cluster import Cluster
    from tfos_lab.driver.feed.request import FeedRequest
    from tfos_lab.driver.feed.stream import MicroBatches
    from tfos_lab.driver.state.feed_state import DriverFeed

# Errors for rows that cannot be fed.
UNFED = (ConfigError, FeedError, NoSession, RecordError)
# A stream ends at once, unless Spark is in trouble.
_SETTLE_S = 10.0

_T = TypeVar("_T")


class Feeding:
    """The feeds of one cluster; safe to use from any thread.

    `lock` is held while a feed is under way. `streams` are those that have begun; `splits` names what has been
    fed beside the rows to train on.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._requests: list[FeedRequest] = []
        self._sources = itertools.count()
        self._ended = self._is_required = False
        self._identities: Identities | None = None
        self.lock = threading.Lock()
        self.streams: list[MicroBatches] = []
        self.splits: set[str] = set()
        # Feeds on their own threads; where one fails, it has failed the cluster.
        self._deferred: list[Future[None]] = []

    def next_source(self) -> int:
        """Return the number of a new call of `Cluster.train`."""
        return next(self._sources)

    def feed(self, request: FeedRequest) -> None:
        """Feed rows to all training nodes; return when they have stored all of them."""
        request = replace(request, required=self._is_required)
        waits_for_function = request.is_open_choice and self._cluster.launcher.runs_inline
        if waits_for_function or not all(each.done() for each in self._deferred):
            self._feed_later(request)
            return

        def feed(head: Head) -> None:
            self.catch_up(head)
            with self.lock:
                if not any(one is request for one in self._requests):
                    self._requests.append(request)
            self.catch_up(head)

        try:
            self.with_head(feed)
        except BaseException:
            with self.lock:
                given = self._cluster.head.feeds
                waiting = [one for one in self._requests[given:] if one is not request]
                self._requests[given:] = waiting  # what has failed, or was interrupted, is not fed before the next rows
            raise

    def with_head(self, act: Callable[[Head], _T]) -> _T:
        """Call a function with the nodes once they run, and again if they are restarted meanwhile."""
        while True:
            self._cluster.wait_until_running()
            with contextlib.suppress(HeadLost):
                return act(self._cluster.head)

    def _feed_later(self, request: FeedRequest) -> None:
        """Feed when the function asks for rows: it runs on this very thread, once nothing more is fed."""
        self._requests.append(request)
        head = self._cluster.head
        deferred = on_a_thread(lambda: self.catch_up(head), name="tfos-feed-later")
        self._deferred.append(deferred)
        deferred.add_done_callback(lambda _: self.pass_on_end(head))

    def catch_up(self, head: Head) -> None:
        """Give nodes all feeds that they have not been given yet; raises `HeadLost` if they start again meanwhile."""
        with self.lock:
            while head.feeds < len(self._requests):
                request = self._requests[head.feeds]
                self.run_job(head, request)
                head.feeds += 1
            head.caught_up = True
            self.pass_on_end(head)

    def run_job(self, head: Head, request: FeedRequest) -> DriverFeed:
        """Run one feed; call it with `lock` held."""
        from tfos_lab.driver.feed.job import FeedJob, FileJob

        if request.files is not None:
            return FileJob(self._cluster, head, request, None).run()
        return FeedJob(self._cluster, head, request, self.identities()).run()

    def end(self) -> None:
        """End the feeds: no more rows will come; nodes can still read what was fed."""
        self._ended = True
        self.pass_on_end(self._cluster.head)

    def pass_on_end(self, head: Head) -> None:
        """Tell nodes that no more rows will come, once they have been fed all there are."""
        are_over = all(stream.is_over for stream in self.streams) and all(each.done() for each in self._deferred)
        if self._ended and head.caught_up and are_over:
            with contextlib.suppress(OSError):
                head.request(lambda _now_s: head.feed_state.end())

    def settle(self) -> None:
        """Wait until the streams have ended; they end with the cluster.

        Raises FeedError where rows could not be fed and that has not been raised before.
        """
        for stream in self.streams:
            stream.join(_SETTLE_S)
        wait(self._deferred, _SETTLE_S)
        for deferred in self._deferred:
            if deferred.done() and isinstance(error := deferred.exception(), FeedError):
                raise error

    def expect(self, rows: Any) -> None:
        """Say, before the nodes start, what they will be fed: the run fails if its functions return before that.

        A stream may have no rows.
        """
        self._cluster.head.feed_state.expected = not (is_stream(rows) or is_dstream(rows))

    @contextlib.contextmanager
    def required(self) -> Iterator[None]:
        """Have the run fail where the rows that it was started with cannot be fed, or are none.

        A function that returns without reading them ends with the same error, whether before they came or later.
        """
        self._is_required = True
        try:
            yield
        except Exception as error:  # noqa: BLE001 - it is raised again, or what it means
            rows, cause = self._cluster.head.feed_state, error
            if isinstance(error, ClusterEnded) and rows.returned:
                if rows.stopped_by is not None:
                    return
                cause = FeedError(reason=returned_unread(rows.returned)) if rows.is_ignored else error
            self.fail(cause)
            raise cause from error.__cause__
        finally:
            self._is_required = False

    def fail(self, error: Exception) -> None:
        """End the nodes for rows that could not be fed, unless they have ended: they would wait for them for ever."""
        if not self._cluster.ended:
            self._cluster.head.fail(Failure("feed", type(error).__name__, str(error)))
            self._cluster.head.await_ends()

    def identities(self) -> Identities | None:
        """Return the certificates of the nodes and of Spark's tasks; made on first use.

        None where the nodes are on this machine: unix sockets reach them.
        """
        if not self._cluster.launcher.spans_hosts:
            return None
        if self._identities is None:
            from tfos_lab.core.certificates import make_identities

            self._identities = make_identities()
        return self._identities
