"""The child's part of a feed: knows which rows are here, how many steps to take, and reads them epoch by epoch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from tfos_lab import messages as m
from tfos_lab.data.schema import ColumnSpec, column_specs
from tfos_lab.errors import FeedError
from tfos_lab.node.segments import read_in_order, read_shuffled

Columns = dict[str, np.ndarray]

_REPORT_INTERVAL_S = 0.25
_WAIT_STEP_S = 1.0


@dataclass
class Feed:
    """One feed, as far as it has come to this node."""

    number: int
    epochs: int
    remainder: str
    specs: tuple[ColumnSpec, ...]
    segments: list[tuple[str, int]] = field(default_factory=list)
    resolved: bool = False
    rows: int | None = None
    steps: dict[int, int] = field(default_factory=dict)
    aborted: str | None = None
    epochs_read: int = 0

    @property
    def complete(self) -> bool:
        """Whether all rows have come."""
        return self.rows is not None


@dataclass(frozen=True)
class Reading:
    """How one dataset reads: its number, and what was asked of ``ctx.dataset``."""

    opening: int
    batch_size: int
    remainder: str | None
    shuffle: bool
    seed: int | None


class FeedReader:
    """All feeds of this node. The station's thread calls `take`; tf.data's threads iterate over `epoch`."""

    def __init__(self, seat: int, say: Callable[[m.FromAgent], None]) -> None:
        self._seat = seat
        self._say = say
        self._changed = threading.Condition()
        self._feeds: list[Feed] = []
        self._ended = False
        self._openings = 0
        self._rows_taken = 0
        self._reported_s = 0.0

    # ---- what comes -------------------------------------------------------------------------------------------------

    def take(self, message: m.ToAgent) -> None:
        """Take in what the driver or the agent says about feeds."""
        with self._changed:
            match message:
                case m.FeedOpen():
                    specs = column_specs(message.schema)
                    self._feeds.append(Feed(message.feed, message.epochs, message.remainder, specs))
                case m.SegmentReady():
                    self._add_segment(self._feeds[message.feed], message)
                case m.FeedComplete(feed=number, rows=rows):
                    self._feeds[number].rows = rows
                case m.EpochPlan(feed=number, opening=opening, steps=steps):
                    self._feeds[number].steps[opening] = steps
                case m.FeedAborted(feed=number, reason=reason):
                    self._feeds[number].aborted = reason
                case m.FeedsEnded():
                    self._ended = True
            self._changed.notify_all()

    def _add_segment(self, feed: Feed, message: m.SegmentReady) -> None:
        if message.shapes and not feed.resolved:
            feed.resolved = True
            feed.specs = tuple(replace(spec, shape=tuple(message.shapes[spec.name])) for spec in feed.specs)
        if message.rows:
            feed.segments.append((message.path, message.rows))

    # ---- what can be asked ------------------------------------------------------------------------------------------

    @property
    def epochs(self) -> int:
        """How often the current feed is to be read; waits for it to begin."""
        return self._next_feed().epochs

    def open(self, batch_size: int, remainder: str | None, *, shuffle: bool, seed: int | None) -> Reading:
        """Tell the driver that a dataset is read with this batch size."""
        with self._changed:
            opening, self._openings = self._openings, self._openings + 1
        self._say(m.DatasetOpened(seat=self._seat, opening=opening, batch_size=batch_size, remainder=remainder))
        return Reading(opening, batch_size, remainder, shuffle, seed)

    def specs(self) -> tuple[ColumnSpec, ...]:
        """Return what the columns become, with their shapes; waits for the first rows."""
        feed = self._next_feed()
        self._wait(feed, lambda: feed.resolved or feed.complete)
        return feed.specs

    def known_steps(self, reading: Reading, patience_s: float = 0.0) -> int | None:
        """Return the steps of the coming epoch if they are known by now, else None."""
        feed = self._next_feed()
        with self._changed:
            self._changed.wait_for(lambda: reading.opening in feed.steps, patience_s)
            return feed.steps.get(reading.opening)

    def _next_feed(self) -> Feed:
        """Return the feed that the next epoch reads.

        A feed is read ``epochs`` times before the next one; the last one may be read again and again once the driver
        has said that no other will come.
        """
        while True:
            with self._changed:
                unread = [feed for feed in self._feeds if feed.epochs_read < feed.epochs and feed.aborted is None]
                if unread:
                    return unread[0]
                if self._ended:
                    if not self._feeds:
                        raise FeedError(
                            reason="this cluster is fed no rows: give the cell data=..., or call cluster.train(df)"
                        )
                    if self._feeds[-1].aborted is not None:
                        raise FeedError(reason=self._feeds[-1].aborted)
                    return self._feeds[-1]
                self._changed.wait(_WAIT_STEP_S)

    def _wait(self, feed: Feed, predicate: Callable[[], bool]) -> None:
        with self._changed:
            while not predicate():
                if feed.aborted is not None:
                    raise FeedError(reason=feed.aborted)
                self._changed.wait(_WAIT_STEP_S)

    # ---- reading ----------------------------------------------------------------------------------------------------

    def epoch(self, reading: Reading) -> Iterator[tuple[Columns, int]]:
        """Yield one epoch as ``(columns, real rows)``.

        Columns have ``batch_size`` rows, unless all nodes read their rows to the end alone; in the last batches only
        the first ``real rows`` count, the others are zeros.
        """
        from tfos_lab.data.batches import count_rows, pad_to, rebatch, slice_rows, zeros

        feed = self._next_feed()
        remainder = reading.remainder or feed.remainder
        if remainder == "drop" or reading.shuffle:
            self._wait(feed, lambda: reading.opening in feed.steps)
        step = 0
        for batch in rebatch(self._batches(feed, reading), reading.batch_size):
            rows = count_rows(batch)
            if rows < reading.batch_size or remainder == "drop":
                self._wait(feed, lambda: reading.opening in feed.steps)
                if step >= feed.steps[reading.opening]:
                    break
            step += 1
            self._mark(feed, reading, step, rows)
            yield pad_to(slice_rows(batch, 0, rows), reading.batch_size), rows
        self._wait(feed, lambda: reading.opening in feed.steps)
        while step < feed.steps[reading.opening]:
            step += 1
            self._mark(feed, reading, step, 0)
            yield zeros(feed.specs, reading.batch_size), 0
        if feed.steps[reading.opening] == 0:
            feed.epochs_read += 1

    def _batches(self, feed: Feed, reading: Reading) -> Iterator[Columns]:
        if reading.shuffle:
            seed = None if reading.seed is None else [reading.seed, self._seat, feed.epochs_read]
            yield from read_shuffled(feed.segments, feed.specs, reading.batch_size, np.random.default_rng(seed))
            return
        index = 0
        while True:
            self._wait_for_segment(feed, index)
            if index >= len(feed.segments):
                return
            yield from read_in_order(feed.segments[index][0], feed.specs)
            index += 1

    def _wait_for_segment(self, feed: Feed, index: int) -> None:
        self._wait(feed, lambda: index < len(feed.segments) or feed.complete)

    def _mark(self, feed: Feed, reading: Reading, step: int, rows: int) -> None:
        """Count rows and, with the last step, the epoch."""
        with self._changed:
            self._rows_taken += rows
            last = step == feed.steps.get(reading.opening)
            if last:
                feed.epochs_read += 1
        if last or time.monotonic() - self._reported_s > _REPORT_INTERVAL_S:
            self.flush()

    def flush(self) -> None:
        """Tell the driver how many rows have been taken."""
        if self._feeds:
            self._reported_s = time.monotonic()
            epoch = max(feed.epochs_read for feed in self._feeds)
            self._say(m.RowsTaken(seat=self._seat, rows=self._rows_taken, epoch=epoch))

    def stop(self) -> None:
        """Want no more rows."""
        self._say(m.FeedStopped(seat=self._seat))
