"""The child's part of a feed: knows which rows are here, how many steps to take, and reads them epoch by epoch.

What an inference asks about comes as a feed, too: one that is read as long as the cluster lives (`answers`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

from tfos_lab import messages as m
from tfos_lab.data.rows import fill_to
from tfos_lab.data.schema import ColumnSpec, column_specs
from tfos_lab.errors import FeedError
from tfos_lab.node.feed.answers import Answers
from tfos_lab.node.feed.epoch import IDLE_S, Epoch, Piece
from tfos_lab.node.feed.schedule import Schedule
from tfos_lab.node.feed.segments import Segment, Segments
from tfos_lab.node.feed.state import NodeFeed, Reading

_REPORT_INTERVAL_S = 0.25
_WAIT_STEP_S = 1.0


class FeedReader:
    """All feeds of this node. The session's thread calls `take`; tf.data's threads iterate over `epoch`."""

    def __init__(self, rank: int, say: Callable[[m.FromAgent], None]) -> None:
        self._rank = rank
        self._send = say
        self._changed = threading.Condition()
        self._feeds: list[NodeFeed] = []
        self._segments = Segments()
        self._serving: NodeFeed | None = None
        self._ended = False
        self.answers = Answers(rank, say, self._changed)
        self._opened = 0
        self._promised: dict[int, int] = {}
        self._rows_taken = 0
        self._asked = False
        self._reported_s = 0.0

    # ---- what comes -------------------------------------------------------------------------------------------------

    def take(self, message: m.ToAgent) -> None:
        """Take in what the driver or the agent says about rows."""
        with self._changed:
            match message:
                case m.InferenceOpen(schema=schema):
                    self._serving = self._serving or NodeFeed(-1, 1, "pad", column_specs(schema), serving=True)
                case m.ExchangeRows() | m.ExchangeEnded() | m.ExchangeDropped():
                    if isinstance(message, m.ExchangeRows):
                        self._resolve(self._serving, message.shapes)
                    self.answers.take(message)
                case m.FeedsEnded():
                    self._ended = True
                case m.EpochPlan(feed=number):
                    self._feeds[number].plans.setdefault(message.dataset_id, message)
                case _:
                    self._take_feed(message)
            self._changed.notify_all()

    def _take_feed(self, message: m.ToAgent) -> None:
        match message:
            case m.FeedOpen():
                specs = column_specs(message.schema)
                feed = NodeFeed(message.feed, message.epochs, message.remainder, specs, stream=message.stream)
                self._feeds.append(feed)
            case m.SegmentReady():
                self._add_segment(self._feeds[message.feed], message)
            case m.FeedComplete(feed=number, rows=rows, leftovers=leftovers):
                self._feeds[number].rows, self._feeds[number].leftovers = rows, leftovers
            case m.PlanLater(feed=number, dataset_id=dataset_id, alike=alike):
                self._feeds[number].unknown.add(dataset_id)
                if not alike:
                    self._feeds[number].unlike.add(dataset_id)
            case m.FeedAborted(feed=number, reason=reason):
                self._feeds[number].aborted = reason

    def _add_segment(self, feed: NodeFeed, message: m.SegmentReady) -> None:
        self._resolve(feed, message.shapes)
        if message.rows + message.leftover:
            feed.segments.append(Segment(message.path, message.rows, message.partition, message.leftover))

    def _resolve(self, feed: NodeFeed | None, shapes: dict[str, list[int]]) -> None:
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
            dataset_id, self._opened = self._opened, self._opened + 1
        self._send(
            m.DatasetOpened(
                rank=self._rank, dataset_id=dataset_id, batch_size=batch_size, remainder=remainder, shuffle=shuffle
            )
        )
        return Reading(dataset_id, batch_size, remainder, shuffle, seed)

    def specs(self) -> tuple[ColumnSpec, ...]:
        """Return what the columns become, with their shapes; waits for the first rows."""
        feed = self._next_feed()
        self._wait(feed, lambda: feed.resolved or feed.complete or (feed.serving and self._ended))
        return feed.specs

    def known_schedule(self, reading: Reading, patience_s: float = 0.0) -> Schedule | None:
        """Return the steps of the coming epoch if they are known by now, else None: the same on all lock-step nodes.

        The driver answers once all of them have opened their dataset; ``patience_s`` is for those that never do.
        """
        feed, dataset_id = self._next_feed(), reading.dataset_id
        if feed.serving or feed.stream:
            return None
        with self._changed:
            self._changed.wait_for(
                lambda: dataset_id in feed.plans or dataset_id in feed.unknown or feed.aborted is not None, patience_s
            )
            schedule = None if dataset_id in feed.unknown else feed.schedule(reading)
        if schedule is not None:
            self._promised[dataset_id] = schedule.steps
        return schedule

    def _next_feed(self) -> NodeFeed:
        """Return the feed that the next epoch reads; waits for it."""
        self._ask()
        while (feed := self._find_feed(_WAIT_STEP_S)) is None:
            pass
        return feed

    def _ask(self) -> None:
        """Tell the driver, once, that this node reads: it may not open a feed before it knows of each node."""
        if not self._asked:
            self._asked = True
            self._send(m.RowsWanted(rank=self._rank))

    def _find_feed(self, timeout_s: float) -> NodeFeed | None:
        """Return the feed that the next epoch reads, or None if there is none within this time.

        A feed is read ``epochs`` times before the next one; the last one may be read again and again once the driver
        has said that no other will come. An epoch that was left before its last step does not count.
        """
        with self._changed:
            for wait_s in (timeout_s, 0.0):
                unread = [feed for feed in self._feeds if feed.epochs_read < feed.epochs and feed.aborted is None]
                if unread:
                    return unread[0]
                if self._serving is not None:
                    return self._serving
                if self._ended:
                    return self._last_feed()
                self._changed.wait(wait_s)
            return None

    def _last_feed(self) -> NodeFeed:
        if not self._feeds:
            raise FeedError(reason="this cluster is fed no rows: give the cell data=..., or call cluster.train(df)")
        if self._feeds[-1].aborted is not None:
            raise FeedError(reason=self._feeds[-1].aborted)
        return self._feeds[-1]

    def _wait(self, feed: NodeFeed, predicate: Callable[[], bool]) -> None:
        while not self._holds(feed, predicate, _WAIT_STEP_S):
            pass

    def _holds(self, feed: NodeFeed, predicate: Callable[[], bool], timeout_s: float) -> bool:
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
        while (feed := self._find_feed(IDLE_S)) is None:
            self._send_stream_read()
            yield None
        if feed.serving:
            yield from self._serve(feed, reading)
            return
        yield from self._read(feed, reading)
        while feed.stream:
            self._send_stream_read()
            following = yield from self._next_of_stream()
            if following is None:
                return
            feed = following
            yield from self._read(feed, reading)

    def _send_stream_read(self) -> None:
        """Tell the driver what has been read of a stream: who asks for what follows is done with what came before."""
        for feed in self._feeds:
            if feed.stream and feed.epochs_read and not feed.told:
                feed.told = True
                self._send(m.FeedRead(rank=self._rank, feed=feed.number))

    def _next_of_stream(self) -> Generator[None, None, NodeFeed | None]:
        """Wait for the next feed of a stream; None if there is none."""
        while True:
            with self._changed:
                unread = [feed for feed in self._feeds if feed.epochs_read < feed.epochs and feed.aborted is None]
                if unread:
                    return unread[0] if unread[0].stream else None
                if self._ended:
                    return None
                self._changed.wait(IDLE_S)
            yield None

    def _serve(self, feed: NodeFeed, reading: Reading) -> Iterator[Piece | None]:
        most = reading.rows_at_once(feed)
        for item in self.answers.pieces(feed.specs, reading.batch_size, most, lambda: self._ended):
            if item is None:
                yield None
                continue
            piece, rows = item
            self._count(rows)
            yield Piece(fill_to(piece, math.ceil(rows / reading.batch_size) * reading.batch_size), rows)

    def _read(self, feed: NodeFeed, reading: Reading) -> Iterator[Piece | None]:
        seed = None if reading.seed is None else [reading.seed, self._rank, feed.epochs_read]
        epoch = Epoch(feed, reading, self._segments, self._holds, self._send_segment_read, seed=seed)
        for piece in epoch.pieces():
            if piece is not None:
                self._keep_promise(reading, piece.step, more=True)
                self._mark(feed, reading, piece)
            yield piece
        self._keep_promise(reading, epoch.steps, more=False)
        if epoch.steps == 0:
            feed.epochs_read += 1

    def _keep_promise(self, reading: Reading, steps: int, *, more: bool) -> None:
        """Raise if an epoch has, or will have, another number of steps than Keras and TensorFlow were told."""
        promised = self._promised.get(reading.dataset_id, steps)
        if steps > promised or (steps < promised and not more):
            raise FeedError(
                reason=f"this dataset was made when its epochs had {promised} steps, and now one has "
                f"{'more' if more else steps}: call ctx.dataset anew for each cluster.train"
            )

    def _mark(self, feed: NodeFeed, reading: Reading, piece: Piece) -> None:
        """Count rows and, with the last step, the epoch."""
        with self._changed:
            is_read = feed.take_steps(reading, piece.step)
            feed.rows_taken += piece.rows
        self._count(piece.rows, report=is_read)

    def _send_segment_read(self, path: str) -> None:
        self._send(m.SegmentRead(rank=self._rank, path=path))

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
            self._send(m.RowsTaken(rank=self._rank, rows=self._rows_taken, epoch=epoch, feeds=feeds))

    def stop(self) -> None:
        """Want no more rows."""
        self._send(m.FeedStopped(rank=self._rank))
