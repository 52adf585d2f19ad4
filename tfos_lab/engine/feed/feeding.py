"""All that a cluster is fed in its life: one feed at a time, and all of them once more for nodes that start again."""

from __future__ import annotations

import contextlib
import itertools
import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tfos_lab.engine.feed.fed_cluster import FedCluster
    from tfos_lab.engine.feed.request import FeedRequest
    from tfos_lab.engine.generation import Generation
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

    def __init__(self, cluster: FedCluster) -> None:
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
        from tfos_lab.engine.feed.job import GenerationLost

        known = False
        while True:
            self._cluster.wait_until_running()
            generation = self._cluster.generation
            try:
                self.catch_up(generation)
                with self.lock:
                    if not known:
                        self._requests.append(request)
                        known = True
                self.catch_up(generation)
                return
            except GenerationLost:
                self._cluster.wait_for_generation(generation.number + 1)

    def catch_up(self, generation: Generation) -> None:
        """Give the nodes of a generation all feeds that they have not had.

        Raises
        ------
        GenerationLost
            If a node is lost meanwhile, and another generation follows.
        """
        from tfos_lab.engine.feed.job import FeedJob

        with self.lock:
            while generation.feeds < len(self._requests):
                request = self._requests[generation.feeds]
                FeedJob(self._cluster, generation, request, self.tls_identity(generation)).run()
                generation.feeds += 1
            generation.caught_up = True
            self.pass_on_end(generation)

    def end(self) -> None:
        """Tell the nodes that no further rows will come; what was fed can be read to its end."""
        self._ended = True
        self.pass_on_end(self._cluster.generation)

    def pass_on_end(self, generation: Generation) -> None:
        """Tell the nodes of a generation, once they have been fed all there is."""
        if self._ended and generation.caught_up and all(stream.is_over for stream in self.streams):
            with contextlib.suppress(OSError):
                generation.server.request(lambda _now_s: generation.feed_state.end())

    def settle(self) -> None:
        """Wait until the streams have ended, which they do when the cluster has."""
        for stream in self.streams:
            stream.join(_SETTLE_S)

    def tls_identity(self, generation: Generation) -> TlsIdentity | None:
        """Return the certificate and key of the nodes' endpoints for rows, made when first asked for.

        None where the nodes are on this machine: they are reached by unix sockets.
        """
        if not generation.launcher.traits.spans_hosts:
            return None
        if self._tls is None:
            from tfos_lab.engine.feed.certificates import make_identity

            self._tls = make_identity()
        return self._tls
