"""Counts the rows that a node's function takes, and reports them to the driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from tfos_lab.core import messages as m
from tfos_lab.node.feed.node_feed import NodeFeed

_REPORT_INTERVAL_S = 0.25


class ReadProgress:
    """What this node has read so far, over all its feeds and inferences; rows of splits do not count."""

    def __init__(self, feeds: Sequence[NodeFeed], send: Callable[[m.FromAgent], None]) -> None:
        self._feeds = feeds
        self._send = send
        self._lock = threading.Lock()
        self._rows_taken = 0
        self._reported_s = 0.0

    @property
    def rows(self) -> int:
        """How many rows have been taken."""
        return self._rows_taken

    def count(self, rows: int, *, report: bool = False) -> None:
        """Add rows; report them at once if asked to, else a few times per second."""
        with self._lock:
            self._rows_taken += rows
        if report or time.monotonic() - self._reported_s > _REPORT_INTERVAL_S:
            self.flush()

    def flush(self) -> None:
        """Report the rows taken so far."""
        self._reported_s = time.monotonic()
        trained = [feed for feed in self._feeds if not feed.kept]
        epoch = max((feed.epochs_read for feed in trained), default=0)
        feeds = {feed.number: (feed.epochs_read, feed.rows_taken) for feed in trained if not feed.stream}
        self._send(m.RowsTaken(rows=self._rows_taken, epoch=epoch, feeds=feeds))

    def report_stream_read(self) -> None:
        """Report the feeds of a stream that have been read: a function that asks for more has finished them."""
        for feed in self._feeds:
            if feed.stream and feed.epochs_read and not feed.read_reported:
                feed.read_reported = True
                self._send(m.FeedRead(feed=feed.number))

    def report_segment_read(self, path: str) -> None:
        """Report that all rows of a file have been taken."""
        self._send(m.SegmentRead(path=path))
