"""A feed as one node knows it, how a dataset reads it, and what the node has read of all its feeds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tfos_lab.core import messages as m
from tfos_lab.core.messages import INPUT_QUEUE, KEPT, EpochPlan, FilesDealt
from tfos_lab.data.rows import row_bytes
from tfos_lab.data.schema import ColumnSpec
from tfos_lab.errors import FeedError
from tfos_lab.node.feed.schedule import Schedule
from tfos_lab.node.feed.segments import Segment

# Handing rows over to TensorFlow costs the same for one batch as for many, so several go at once, up to these limits.
_BYTES_AT_ONCE = 16 << 20
_BATCHES_AT_ONCE = 64
# Strings are copied one by one: fewer of them stay in the processor's caches (60,000 of 784 bytes: 42 ms, not 50-77).
_BATCHES_OF_STRINGS_AT_ONCE = 16

_REPORT_INTERVAL_S = 0.25


@dataclass
class NodeFeed:
    """One feed, as far as it has arrived at this node."""

    opened: m.FeedOpen
    specs: tuple[ColumnSpec, ...]
    # Whether these are rows to be inferred.
    serving: bool = False
    segments: list[Segment] = field(default_factory=list)
    # Whether the shapes of `specs` are fully known.
    resolved: bool = False
    # How many rows each node has, of what tasks have brought; leftover rows, and those of files, come on top.
    rows_come: int = 0
    # This node's rows; None while more may come.
    rows: int | None = None
    # The agreed steps, by dataset.
    plans: dict[int, EpochPlan] = field(default_factory=dict)
    # Datasets whose length was not known when they were opened; those whose batch size differs between nodes.
    unplanned: set[int] = field(default_factory=set)
    mixed_sizes: set[int] = field(default_factory=set)
    # Why the feed has failed.
    aborted: str | None = None
    epochs_read: int = 0
    rows_taken: int = 0
    # Whether the driver knows that this feed of a stream has been read.
    read_reported: bool = False
    # This node's share, where the rows come from files; the segments are then of `FileSegment`.
    files: FilesDealt | None = None
    # The rows of files, where they have been stored to be read in a random order.
    stored: list[Segment] | None = None

    @property
    def kept(self) -> bool:
        """Whether these are the rows of a split, to be read whenever the function asks for them."""
        return self.opened.epochs == KEPT

    @property
    def complete(self) -> bool:
        """Whether all rows have arrived."""
        return self.rows is not None

    def steps(self, reading: Reading) -> int | None:
        """Return the steps of an epoch, or None while they are not agreed on."""
        plan = self.plans.get(reading.dataset_id)
        return None if plan is None else plan.steps

    def schedule(self, reading: Reading) -> Schedule | None:
        """Return how the rows become steps, or None while that is not known.

        Raises FeedError if they were planned with other rows, or another batch size, than this node has.
        """
        plan = self.plans.get(reading.dataset_id)
        if plan is None or self.rows is None:
            return None
        if (self.rows, reading.batch_size) not in [(rows, size) for rows, size, _ in plan.shares]:
            has = f"{self.rows:,} rows, in batches of {reading.batch_size:,}"
            raise FeedError(reason=f"this node has {has}, and the driver has not planned the steps with them")
        return Schedule(plan.steps, self.rows, reading.batch_size, plan.shares)

    def has_come(self, index: int) -> bool:
        """Whether a segment is here, or will never come."""
        return index < len(self.segments) or self.complete

    def is_last(self, reading: Reading, step: int) -> bool:
        """Whether this step is known to be the last of an epoch."""
        return step == self.steps(reading)


@dataclass(frozen=True)
class Reading:
    """How one dataset reads: its number, and the arguments of ``ctx.dataset``."""

    dataset_id: int
    batch_size: int
    remainder: str
    shuffle: bool
    seed: int | None
    queue: str = INPUT_QUEUE

    def rows_at_once(self, feed: NodeFeed) -> int:
        """Return how many rows are handed over at once: those of several batches, unless batches are large."""
        has_strings = any(np.dtype(spec.dtype) == object for spec in feed.specs)
        most = _BATCHES_OF_STRINGS_AT_ONCE if has_strings else _BATCHES_AT_ONCE
        batches = _BYTES_AT_ONCE // (row_bytes(feed.specs) * self.batch_size)
        return self.batch_size * min(max(batches, 1), most)


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
        trained = (feed for feed in self._feeds if not feed.kept and not feed.opened.stream)
        feeds = {feed.opened.feed: (feed.epochs_read, feed.rows_taken) for feed in trained}
        self._send(m.RowsTaken(rows=self._rows_taken, feeds=feeds))

    def report_stream_read(self) -> None:
        """Report the feeds of a stream that have been read: a function that asks for more has finished them."""
        for feed in self._feeds:
            if feed.opened.stream and feed.epochs_read and not feed.read_reported:
                feed.read_reported = True
                self._send(m.FeedRead(feed=feed.opened.feed))

    def report_segment_read(self, path: str) -> None:
        """Report that all rows of a file have been taken."""
        self._send(m.SegmentRead(path=path))
