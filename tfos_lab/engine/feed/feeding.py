"""All that a cluster is fed in its life: one feed at a time, and all of them once more for nodes that start again."""

from __future__ import annotations

import contextlib
import itertools
import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tfos_lab.engine.feed.request import FeedRequest
    from tfos_lab.engine.generation import Attempt
    from tfos_lab.engine.lifecycle import Lifecycle
    from tfos_lab.messages import TlsIdentity

# A stream ends at once, unless Spark is in trouble.
_SETTLE_S = 10.0


class Stream(Protocol):
    """A stream that was begun."""

    @property
    def is_over(self) -> bool:
        """Whether no rows will come any more."""
        ...

    def join(self, timeout_s: float) -> None:
        """Wait for its end."""


class Feeding:
    """The feeds of one cluster; safe to use from any thread.

    Attributes
    ----------
    lock : threading.Lock
        Held by whoever feeds.
    streams : list of Stream
        Streams that were begun.
    """

    def __init__(self, cluster: Lifecycle) -> None:
        self._cluster = cluster
        self._requests: list[FeedRequest] = []
        self._sources = itertools.count()
        self._ended = False
        self._tls: TlsIdentity | None = None
        self.lock = threading.Lock()
        self.streams: list[Stream] = []

    def next_source(self) -> int:
        """Return the number of another call of `Cluster.train`."""
        return next(self._sources)

    def feed(self, request: FeedRequest) -> None:
        """Feed rows to all training nodes; returns when all are stored with them."""
        from tfos_lab.engine.feed.job import AttemptLost

        known = False
        while True:
            self._cluster.wait_until_running()
            attempt = self._cluster.attempt
            try:
                self.catch_up(attempt)
                with self.lock:
                    if not known:
                        self._requests.append(request)
                        known = True
                self.catch_up(attempt)
                return
            except AttemptLost:
                self._cluster.wait_for_attempt(attempt.number + 1)

    def catch_up(self, attempt: Attempt) -> None:
        """Give the nodes of an attempt all feeds that they have not had.

        Raises
        ------
        AttemptLost
            If a node is lost meanwhile, and another attempt follows.
        """
        from tfos_lab.engine.feed.job import FeedJob

        with self.lock:
            while attempt.feeds < len(self._requests):
                request = self._requests[attempt.feeds]
                FeedJob(self._cluster, attempt, request, self.tls_identity(attempt)).run()
                attempt.feeds += 1
            attempt.caught_up = True
            self.pass_on_end(attempt)

    def end(self) -> None:
        """Tell the nodes that no further rows will come; what was fed can be read to its end."""
        self._ended = True
        self.pass_on_end(self._cluster.attempt)

    def pass_on_end(self, attempt: Attempt) -> None:
        """Tell the nodes of an attempt, once they have been fed all there is."""
        if self._ended and attempt.caught_up and all(stream.is_over for stream in self.streams):
            with contextlib.suppress(OSError):
                attempt.server.request(lambda _now_s: attempt.ledger.end())

    def settle(self) -> None:
        """Wait until the streams have ended, which they do when the cluster has."""
        for stream in self.streams:
            stream.join(_SETTLE_S)

    def tls_identity(self, attempt: Attempt) -> TlsIdentity | None:
        """Return the certificate and key of the nodes' endpoints for rows, made when first asked for.

        None where the nodes are on this machine: they are reached by unix sockets.
        """
        if attempt.launcher.name != "spark":
            return None
        if self._tls is None:
            from tfos_lab.engine.feed.certificates import make_identity

            self._tls = make_identity()
        return self._tls
