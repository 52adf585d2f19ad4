"""The child's part of a feed: knows which rows are here, how many steps to take, and reads them epoch by epoch.

What an inference asks about comes as a feed, too: one that is read as long as the cluster lives (`answers`).
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace

import numpy as np

from tfos_lab import messages as m
from tfos_lab.data.batches import count_rows, fill_to, in_multiples, join_rows, slice_rows, zeros
from tfos_lab.data.schema import ColumnSpec, column_specs
from tfos_lab.errors import FeedError
from tfos_lab.node.feed.answers import Answers
from tfos_lab.node.feed.schedule import Schedule, per_row
from tfos_lab.node.feed.segments import Segment, Segments, read_shuffled
from tfos_lab.node.feed.state import Feed, Reading

Columns = dict[str, np.ndarray]

_REPORT_INTERVAL_S = 0.25
_WAIT_STEP_S = 1.0
# So long may it take until an iterator that is waited with can be thrown away.
_IDLE_S = 0.2


@dataclass(frozen=True)
class Piece:
    """Some batches of an epoch.

    Attributes
    ----------
    columns : dict of str to numpy.ndarray
        Column to ``(n, …)``. ``n`` is a multiple of the batch size, unless this is one ``short`` batch.
    rows : int
        How many of these rows count, the first ones; the others only fill up.
    factor : float or numpy.ndarray
        What the weights of the rows are multiplied by, float64 ``(n,)`` if not alike (`Schedule.factors`).
    short : bool
        Whether this is a batch of fewer rows than the batch size.
    """

    columns: Columns
    rows: int
    factor: float | np.ndarray = 1.0
    short: bool = False


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
                case m.EpochPlan(feed=number):
                    is_read = self._feeds[number].plan(message)
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
            case m.FeedComplete(feed=number, rows=rows, leftovers=leftovers):
                self._feeds[number].rows, self._feeds[number].leftovers = rows, leftovers
            case m.PlanLater(feed=number, opening=opening, alike=alike):
                self._feeds[number].unknown.add(opening)
                if not alike:
                    self._feeds[number].unlike.add(opening)
            case m.FeedAborted(feed=number, reason=reason):
                self._feeds[number].aborted = reason

    def _add_segment(self, feed: Feed, message: m.SegmentReady) -> None:
        self._resolve(feed, message.shapes)
        if message.rows + message.leftover:
            feed.segments.append(Segment(message.path, message.rows, message.partition, message.leftover))

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

    @property
    def remainder(self) -> str:
        """How epochs of the current feed end, if nothing else is asked for; waits for it to begin."""
        return self._next_feed().remainder

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

    def known_schedule(self, reading: Reading, patience_s: float = 0.0) -> Schedule | None:
        """Return the steps of the coming epoch if they are known by now, else None: the same on all lock-step nodes.

        The driver answers once all of them have opened their dataset; ``patience_s`` is for those that never do.
        """
        feed, opening = self._next_feed(), reading.opening
        if feed.serving or feed.stream:
            return None
        with self._changed:
            self._changed.wait_for(
                lambda: opening in feed.plans or opening in feed.unknown or feed.aborted is not None, patience_s
            )
            schedule = None if opening in feed.unknown else feed.schedule(reading)
        if schedule is not None:
            self._promised[opening] = schedule.steps
        return schedule

    def _next_feed(self) -> Feed:
        """Return the feed that the next epoch reads; waits for it."""
        while (feed := self._find_feed(_WAIT_STEP_S)) is None:
            pass
        return feed

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

    def epoch(self, reading: Reading) -> Iterator[Piece | None]:
        """Yield one epoch, and None now and then while there is nothing.

        A stream is one epoch, and so are all inferences.

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

    def _serve(self, feed: Feed, reading: Reading) -> Iterator[Piece | None]:
        most = reading.rows_at_once(feed)
        for item in self.answers.pieces(feed.specs, reading.batch_size, most, lambda: self._ended):
            if item is None:
                yield None
                continue
            piece, rows = item
            self._count(rows)
            yield Piece(fill_to(piece, math.ceil(rows / reading.batch_size) * reading.batch_size), rows)

    def _read(self, feed: Feed, reading: Reading) -> Iterator[Piece | None]:
        remainder = reading.remainder or feed.remainder
        size = reading.batch_size
        if remainder == "drop" or reading.shuffle or reading.opening in feed.unlike:
            yield from self._scheduled(feed, reading)
        step = blind = 0
        rest: list[Columns] = []
        for batch in in_multiples(self._batches(feed, reading), size, reading.rows_at_once(feed)):
            if batch is None:
                yield None
                continue
            start, rows = 0, 0 if rest else count_rows(batch)
            while count := (yield from self._full_batches(feed, reading, step, (rows - start) // size)):
                for columns in self._pieces(feed, reading, step, slice_rows(batch, start, start + count * size)):
                    batches = count_rows(columns) // size
                    schedule = feed.schedule(reading)
                    factors = _factors(schedule, step, step + batches, padded=remainder == "pad")
                    step += batches
                    blind = step if schedule is None else blind
                    self._keep_promise(reading, step, more=True)
                    self._mark(feed, reading, step, batches * size)
                    yield Piece(columns, batches * size, per_row(factors, size))
                start += count * size
                if start == rows:
                    break
            if remainder == "drop" and start < rows:
                break
            if start < count_rows(batch):
                rest.append(slice_rows(batch, start, count_rows(batch)))
        schedule = yield from self._scheduled(feed, reading)
        self._keep_promise(reading, schedule.steps, more=False)
        _check_blind(schedule, blind)
        yield from self._short_batches(feed, reading, schedule, step, rest, padded=remainder == "pad")
        if schedule.steps == 0:
            feed.epochs_read += 1

    def _short_batches(
        self, feed: Feed, reading: Reading, schedule: Schedule, step: int, rest: list[Columns], *, padded: bool
    ) -> Iterator[Piece]:
        """Yield the batches with which an epoch ends, one by one."""
        columns, start = join_rows(rest) if rest else {}, 0
        for at in range(step, schedule.steps):
            (factor,) = schedule.factors(at, at + 1, padded=padded)
            rows = schedule.rows_at(at)
            batch = slice_rows(columns, start, start + rows) if rows else self._filler(feed, columns)
            start += rows
            self._mark(feed, reading, at + 1, rows)
            wanted = reading.batch_size if padded else max(rows, 1)
            yield Piece(fill_to(batch, wanted), rows, factor, short=wanted < reading.batch_size)

    def _filler(self, feed: Feed, columns: Columns) -> Columns:
        """Return a row for a step of which this node has none: a copy of any that it has, else zeros."""
        if count_rows(columns):
            return slice_rows(columns, 0, 1)
        with contextlib.suppress(FileNotFoundError):
            if row := self._segments.read_leftovers(feed.segments, (0, 1), feed.specs):
                return row
        for segment in feed.segments:
            with contextlib.suppress(FileNotFoundError):
                for batch in self._segments.read(segment, feed.specs, again=True):
                    return slice_rows(batch, 0, 1)
        return zeros(feed.specs, 1)

    def _full_batches(self, feed: Feed, reading: Reading, step: int, most: int) -> Generator[None, None, int]:
        """Return how many of so many batches surely are full ones of the epoch; wait until some are, or none."""
        while (schedule := feed.schedule(reading)) is None:
            # A row stays for the step that may follow: every node has one for it then.
            rows = feed.rows_come
            count = min(most, (rows - 1) // reading.batch_size - step)
            if count > 0:
                return count
            yield from self._until(feed, functools.partial(self._knows_more, feed, reading, rows if most else None))
        return max(0, min(most, schedule.full - step))

    def _knows_more(self, feed: Feed, reading: Reading, rows: int | None) -> bool:
        """Whether the steps are known by now, or more rows have come."""
        return feed.schedule(reading) is not None or (rows is not None and feed.rows_come > rows)

    def _scheduled(self, feed: Feed, reading: Reading) -> Generator[None, None, Schedule]:
        """Wait until the steps are known."""
        yield from self._until(feed, lambda: feed.schedule(reading) is not None)
        schedule = feed.schedule(reading)
        assert schedule is not None
        return schedule

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
            rng = np.random.default_rng(seed)
            yield from read_shuffled(feed.segments, feed.leftovers, feed.specs, reading.rows_at_once(feed), rng)
            return
        index = 0
        try:
            while True:
                yield from self._until(feed, functools.partial(feed.has_come, index))
                if index >= len(feed.segments):
                    break
                segment = feed.segments[index]
                last = feed.epochs_read >= feed.epochs - 1
                yield from self._segments.read(segment, feed.specs, again=not last)
                if last:
                    self._say(m.SegmentRead(seat=self._seat, path=segment.path))
                index += 1
            if leftovers := self._segments.read_leftovers(feed.segments, feed.leftovers, feed.specs):
                yield leftovers
        except FileNotFoundError:
            raise FeedError(
                reason="the rows cannot be read again, as the node's spool needed the room: say how often they are "
                "read with epochs=..., or raise spool_bytes"
            ) from None

    def _mark(self, feed: Feed, reading: Reading, step: int, rows: int) -> None:
        """Count rows and, with the last step, the epoch."""
        with self._changed:
            is_read = feed.take_steps(reading.opening, step)
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
            self._say(m.RowsTaken(seat=self._seat, rows=self._rows_taken, epoch=epoch))

    def stop(self) -> None:
        """Want no more rows."""
        self._say(m.FeedStopped(seat=self._seat))


def _check_blind(schedule: Schedule, steps: int) -> None:
    """Raise if steps were taken, before anybody knew how many rows each node has, that were not full on all nodes."""
    if steps > schedule.even_steps or (steps and schedule.factors(0, 1) != [1.0]):
        sizes = ", ".join(sorted({str(size) for _, size, _ in schedule.peers}))
        raise FeedError(
            reason=f"this node read rows before the others had called ctx.dataset, and now their batches (of {sizes} "
            "rows) do not fit together: give all nodes the same batch_size, or call ctx.dataset on all before reading"
        )


def _factors(schedule: Schedule | None, start: int, stop: int, *, padded: bool) -> list[float]:
    """Return the factors of full batches. As long as nobody knows the steps, all nodes have full ones."""
    return [1.0] * (stop - start) if schedule is None else schedule.factors(start, stop, padded=padded)
