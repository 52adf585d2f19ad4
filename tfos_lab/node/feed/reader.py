"""The child's part of a feed: knows which rows are here, how many steps to take, and reads them epoch by epoch.

What an inference asks about comes as a feed, too: one that is read as long as the cluster lives (`answers`).
"""

from __future__ import annotations

import functools
import math
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

import numpy as np

from tfos_lab import messages as m
from tfos_lab.data.batches import count_rows, in_multiples, pad_to, slice_rows, zeros
from tfos_lab.data.schema import ColumnSpec, column_specs
from tfos_lab.errors import FeedError
from tfos_lab.node.feed.answers import Answers
from tfos_lab.node.feed.segments import Segments, read_shuffled
from tfos_lab.node.feed.state import Feed, Reading

Columns = dict[str, np.ndarray]

_REPORT_INTERVAL_S = 0.25
_WAIT_STEP_S = 1.0
# So long may it take until an iterator that is waited with can be thrown away.
_IDLE_S = 0.2


class FeedReader:
    """All feeds of this node. The station's thread calls `take`; tf.data's threads iterate over `epoch`."""

    def __init__(self, seat: int, say: Callable[[m.FromAgent], None]) -> None:
        self._seat = seat
        self._say = say
        self._changed = threading.Condition()
        self._feeds: list[Feed] = []
        self._segments = Segments()
        self._serving: Feed | None = None
        self._ended = False
        self.answers = Answers(seat, say, self._changed)
        self._openings = 0
        self._promised: dict[int, int] = {}
        self._rows_taken = 0
        self._asked = False
        self._reported_s = 0.0

    # ---- what comes -------------------------------------------------------------------------------------------------

    def take(self, message: m.ToAgent) -> None:
        """Take in what the driver or the agent says about rows."""
        is_read = False
        with self._changed:
            match message:
                case m.InferenceOpen(schema=schema):
                    self._serving = self._serving or Feed(-1, 1, "pad", column_specs(schema), serving=True)
                case m.ExchangeRows() | m.ExchangeEnded() | m.ExchangeDropped():
                    if isinstance(message, m.ExchangeRows):
                        self._resolve(self._serving, message.shapes)
                    self.answers.take(message)
                case m.FeedsEnded():
                    self._ended = True
                case m.EpochPlan(feed=number, opening=opening, steps=steps):
                    is_read = self._feeds[number].plan(opening, steps)
                case _:
                    self._take_feed(message)
            self._changed.notify_all()
        if is_read:
            self.flush()

    def _take_feed(self, message: m.ToAgent) -> None:
        match message:
            case m.FeedOpen():
                specs = column_specs(message.schema)
                feed = Feed(message.feed, message.epochs, message.remainder, specs, stream=message.stream)
                self._feeds.append(feed)
            case m.SegmentReady():
                self._add_segment(self._feeds[message.feed], message)
            case m.FeedComplete(feed=number, rows=rows):
                self._feeds[number].rows = rows
            case m.PlanLater(feed=number, opening=opening):
                self._feeds[number].unknown.add(opening)
            case m.FeedAborted(feed=number, reason=reason):
                self._feeds[number].aborted = reason

    def _add_segment(self, feed: Feed, message: m.SegmentReady) -> None:
        self._resolve(feed, message.shapes)
        if message.rows:
            feed.segments.append((message.path, message.rows))

    def _resolve(self, feed: Feed | None, shapes: dict[str, list[int]]) -> None:
        if feed is not None and shapes and not feed.resolved:
            feed.resolved = True
            feed.specs = tuple(replace(spec, shape=tuple(shapes[spec.name])) for spec in feed.specs)

    # ---- what can be asked ------------------------------------------------------------------------------------------

    @property
    def epochs(self) -> int:
        """How often the current feed is to be read; waits for it to begin."""
        return self._next_feed().epochs

    @property
    def is_stream(self) -> bool:
        """Whether the current feed is part of a stream; waits for it to begin."""
        return self._next_feed().stream

    def open(self, batch_size: int, remainder: str | None, *, shuffle: bool, seed: int | None) -> Reading:
        """Tell the driver that a dataset is read with this batch size."""
        with self._changed:
            opening, self._openings = self._openings, self._openings + 1
        self._say(
            m.DatasetOpened(
                seat=self._seat, opening=opening, batch_size=batch_size, remainder=remainder, shuffle=shuffle
            )
        )
        return Reading(opening, batch_size, remainder, shuffle, seed)

    def specs(self) -> tuple[ColumnSpec, ...]:
        """Return what the columns become, with their shapes; waits for the first rows."""
        feed = self._next_feed()
        self._wait(feed, lambda: feed.resolved or feed.complete or (feed.serving and self._ended))
        return feed.specs

    def known_steps(self, reading: Reading, patience_s: float = 0.0) -> int | None:
        """Return the steps of the coming epoch if they are known by now, else None: the same on all lock-step nodes.

        The driver answers once all of them have opened their dataset; ``patience_s`` is for those that never do.
        """
        feed, opening = self._next_feed(), reading.opening
        if feed.serving or feed.stream:
            return None
        with self._changed:
            self._changed.wait_for(
                lambda: opening in feed.steps or opening in feed.unknown or feed.aborted is not None, patience_s
            )
            steps = None if opening in feed.unknown else feed.steps.get(opening)
        if steps is not None:
            self._promised[opening] = steps
        return steps

    def _next_feed(self) -> Feed:
        """Return the feed that the next epoch reads; waits for it."""
        self._ask()
        while (feed := self._find_feed(_WAIT_STEP_S)) is None:
            pass
        return feed

    def _ask(self) -> None:
        """Tell the driver, once, that this node reads: it may not open a feed before it knows of each node."""
        if not self._asked:
            self._asked = True
            self._say(m.RowsWanted(seat=self._seat))

    def _find_feed(self, timeout_s: float, reading: Reading | None = None) -> Feed | None:
        """Return the feed that the next epoch (of ``reading``) reads, or None if there is none within this time.

        A feed is read ``epochs`` times before the next one; the last one may be read again and again once the driver
        has said that no other will come. An epoch that was left before its last step does not count.
        """
        with self._changed:
            for wait_s in (timeout_s, 0.0):
                unread = [feed for feed in self._feeds if feed.epochs_read < feed.epochs and feed.aborted is None]
                if unread:
                    if reading is None or not unread[0].is_undecided(reading):
                        return unread[0]
                elif self._serving is not None:
                    return self._serving
                elif self._ended:
                    return self._last_feed()
                self._changed.wait(wait_s)
            return None

    def _last_feed(self) -> Feed:
        if not self._feeds:
            raise FeedError(reason="this cluster is fed no rows: give the cell data=..., or call cluster.train(df)")
        if self._feeds[-1].aborted is not None:
            raise FeedError(reason=self._feeds[-1].aborted)
        return self._feeds[-1]

    def _wait(self, feed: Feed, predicate: Callable[[], bool]) -> None:
        while not self._holds(feed, predicate, _WAIT_STEP_S):
            pass

    def _holds(self, feed: Feed, predicate: Callable[[], bool], timeout_s: float) -> bool:
        """Whether the predicate holds within this time; raises if the feed has failed."""
        with self._changed:
            holds = self._changed.wait_for(lambda: predicate() or feed.aborted is not None, timeout_s)
            if holds and not predicate():
                raise FeedError(reason=str(feed.aborted))
            return holds

    # ---- reading ----------------------------------------------------------------------------------------------------

    def epoch(self, reading: Reading) -> Iterator[tuple[Columns, int] | None]:
        """Yield one epoch as ``(columns, real rows)``, and None now and then while there is nothing.

        Columns have ``batch_size`` rows or a multiple of it; in the last ones only the first ``real rows`` count, the
        others are zeros. A stream is one epoch, and so are all inferences.

        Whoever iterates may have lost interest while this waits: None is the occasion to notice.
        """
        while (feed := self._find_feed(_IDLE_S, reading)) is None:
            self._tell_of_stream()
            yield None
        if feed.serving:
            yield from self._serve(feed, reading)
            return
        yield from self._read(feed, reading)
        while feed.stream:
            self._tell_of_stream()
            following = yield from self._next_of_stream()
            if following is None:
                return
            feed = following
            yield from self._read(feed, reading)

    def _tell_of_stream(self) -> None:
        """Tell the driver what has been read of a stream: who asks for what follows is done with what came before."""
        for feed in self._feeds:
            if feed.stream and feed.epochs_read and not feed.told:
                feed.told = True
                self._say(m.FeedRead(seat=self._seat, feed=feed.number))

    def _next_of_stream(self) -> Generator[None, None, Feed | None]:
        """Wait for the next feed of a stream; None if there is none."""
        while True:
            with self._changed:
                unread = [feed for feed in self._feeds if feed.epochs_read < feed.epochs and feed.aborted is None]
                if unread:
                    return unread[0] if unread[0].stream else None
                if self._ended:
                    return None
                self._changed.wait(_IDLE_S)
            yield None

    def _serve(self, feed: Feed, reading: Reading) -> Iterator[tuple[Columns, int] | None]:
        most = reading.rows_at_once(feed)
        for item in self.answers.pieces(feed.specs, reading.batch_size, most, lambda: self._ended):
            if item is None:
                yield None
                continue
            piece, rows = item
            self._count(rows)
            yield pad_to(piece, math.ceil(rows / reading.batch_size) * reading.batch_size), rows

    def _read(self, feed: Feed, reading: Reading) -> Iterator[tuple[Columns, int] | None]:
        remainder = reading.remainder or feed.remainder

        def is_planned() -> bool:
            return reading.opening in feed.steps

        if remainder == "drop" or reading.shuffle:
            yield from self._until(feed, is_planned)
        step = 0
        for batch in in_multiples(self._batches(feed, reading), reading.batch_size, reading.rows_at_once(feed)):
            if batch is None:
                yield None
                continue
            rows = count_rows(batch)
            if rows < reading.batch_size or remainder == "drop":
                yield from self._until(feed, is_planned)
                rows = min(rows, (feed.steps[reading.opening] - step) * reading.batch_size)
                if not rows:
                    break
            for piece in self._pieces(feed, reading, step, slice_rows(batch, 0, rows)):
                rows = count_rows(piece)
                steps = math.ceil(rows / reading.batch_size)
                step += steps
                self._keep_promise(reading, step, more=True)
                self._mark(feed, reading, step, rows)
                yield pad_to(piece, steps * reading.batch_size), rows
        yield from self._until(feed, is_planned)
        self._keep_promise(reading, feed.steps[reading.opening], more=False)
        while step < feed.steps[reading.opening]:
            step += 1
            self._mark(feed, reading, step, 0)
            yield zeros(feed.specs, reading.batch_size), 0
        if feed.steps[reading.opening] == 0:
            feed.epochs_read += 1

    def _pieces(self, feed: Feed, reading: Reading, step: int, batch: Columns) -> Iterator[Columns]:
        """Yield rows as they are, but what may be an epoch's last step by itself.

        Whoever only looks at the first batches of a few has not read an epoch, though all lie ready for it.
        """
        rows, size = count_rows(batch), reading.batch_size
        steps = math.ceil(rows / size)
        if steps > 1 and feed.may_end(reading, step + steps):
            yield slice_rows(batch, 0, (steps - 1) * size)
            yield slice_rows(batch, (steps - 1) * size, rows)
        else:
            yield batch

    def _keep_promise(self, reading: Reading, steps: int, *, more: bool) -> None:
        """Raise if an epoch has, or will have, another number of steps than Keras and TensorFlow were told."""
        promised = self._promised.get(reading.opening, steps)
        if steps > promised or (steps < promised and not more):
            raise FeedError(
                reason=f"this dataset was made when its epochs had {promised} steps, and now one has "
                f"{'more' if more else steps}: call ctx.dataset anew for each cluster.train"
            )

    def _until(self, feed: Feed, predicate: Callable[[], bool]) -> Iterator[None]:
        """Yield None now and then until the predicate holds."""
        while not self._holds(feed, predicate, _IDLE_S):
            yield None

    def _batches(self, feed: Feed, reading: Reading) -> Iterator[Columns | None]:
        if reading.shuffle:
            seed = None if reading.seed is None else [reading.seed, self._seat, feed.epochs_read]
            rows = reading.rows_at_once(feed)
            yield from read_shuffled(feed.segments, feed.specs, rows, np.random.default_rng(seed))
            return
        index = 0
        while True:
            yield from self._until(feed, functools.partial(feed.has_come, index))
            if index >= len(feed.segments):
                return
            path, _ = feed.segments[index]
            last = feed.epochs_read >= feed.epochs - 1
            try:
                yield from self._segments.read(path, feed.specs, again=not last)
            except FileNotFoundError:
                raise FeedError(
                    reason="the rows cannot be read again, as the node's spool needed the room: say how often they are "
                    "read with epochs=..., or raise spool_bytes"
                ) from None
            if last:
                self._say(m.SegmentRead(seat=self._seat, path=path))
            index += 1

    def _mark(self, feed: Feed, reading: Reading, step: int, rows: int) -> None:
        """Count rows and, with the last step, the epoch."""
        with self._changed:
            is_read = feed.take_steps(reading.opening, step)
            feed.rows_taken += rows
        self._count(rows, report=is_read)

    def _count(self, rows: int, *, report: bool = False) -> None:
        with self._changed:
            self._rows_taken += rows
        if report or time.monotonic() - self._reported_s > _REPORT_INTERVAL_S:
            self.flush()

    def flush(self) -> None:
        """Tell the driver how many rows have been taken."""
        if self._feeds or self._serving:
            self._reported_s = time.monotonic()
            epoch = max((feed.epochs_read for feed in self._feeds), default=0)
            feeds = {feed.number: (feed.epochs_read, feed.rows_taken) for feed in self._feeds if not feed.stream}
            self._say(m.RowsTaken(seat=self._seat, rows=self._rows_taken, epoch=epoch, feeds=feeds))

    def stop(self) -> None:
        """Want no more rows."""
        self._say(m.FeedStopped(seat=self._seat))
