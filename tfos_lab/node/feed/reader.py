"""Reads a node's rows, epoch by epoch, in the process that runs the user's function.

`FeedQueue` knows the feeds and their rows, `Epoch` reads one of them once, and `ReadProgress` reports what was read.
Rows to be inferred come as a feed, too: an endless one (`tfos_lab.node.feed.answers`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from tfos_lab.core import messages as m
from tfos_lab.core.messages import INPUT_QUEUE
from tfos_lab.data.rows import fill_to
from tfos_lab.data.schema import ColumnSpec
from tfos_lab.errors import FeedError
from tfos_lab.node.feed import row_files
from tfos_lab.node.feed.answers import Answers, ExchangePool
from tfos_lab.node.feed.data_feed import RowReader
from tfos_lab.node.feed.epoch import IDLE_S, ROWS_ARE_GONE, Epoch, Piece
from tfos_lab.node.feed.feed_queue import WAIT_STEP_S, FeedQueue
from tfos_lab.node.feed.node_feed import NodeFeed, Reading, ReadProgress
from tfos_lab.node.feed.row_answers import RowAnswers
from tfos_lab.node.feed.schedule import Schedule

_NO_FILES = (
    "rows of a stream or of an inference have no end, so they are not written to files: read them with ctx.dataset or "
    "ctx.data_feed"
)


class FeedReader:
    """All feeds of this node. The session's thread calls `handle`; tf.data's threads iterate over `epoch`."""

    def __init__(self, rank: int, send: Callable[[m.FromAgent], None]) -> None:
        self._rank = rank
        self._send = send
        self._queue = FeedQueue()
        self._progress = ReadProgress(self._queue.feeds, send)
        self._pools: dict[str, ExchangePool] = {}
        self.answers = Answers(self._pool(INPUT_QUEUE))
        self._row_answers: dict[str, RowAnswers] = {}
        self._datasets = 0
        self._promised_steps: dict[int, int] = {}
        self._has_asked = False
        self._kind: bool | None = None
        self._row_readers: dict[str, RowReader] = {}
        self._files: dict[tuple[int, str], list[str]] = {}

    def handle(self, message: m.ToAgent) -> None:
        """Apply a message about rows, of the driver or of the agent."""
        with self._queue.changed:
            self._queue.handle(message)
            match message:
                case m.InferenceOpen(queue=queue) | m.ExchangeRows(queue=queue):
                    self._pool(queue).handle(message)
                case m.ExchangeEnded() | m.ExchangeDropped():
                    for pool in self._pools.values():
                        pool.handle(message)
            self._queue.changed.notify_all()

    def give_up(self) -> None:
        """End all waiting with an error: no more messages will come."""
        with self._queue.changed:
            self._queue.give_up()
            self._queue.changed.notify_all()

    def _pool(self, queue: str) -> ExchangePool:
        """Return the rows to infer of a queue; call it with the condition held."""
        if queue not in self._pools:
            self._pools[queue] = ExchangePool(self._send, self._queue.changed)
        return self._pools[queue]

    # ---- what a dataset asks before it reads ------------------------------------------------------------------------

    @property
    def epochs(self) -> int:
        """How often the current feed is to be read; waits for it to begin."""
        return self._next_feed().opened.epochs

    def is_stream(self, queue: str) -> bool:
        """Whether a queue's current feed is part of a stream; waits for it to begin."""
        return self._next_feed(queue).opened.stream

    def open(
        self, batch_size: int, remainder: str | None, *, shuffle: bool, seed: int | None, queue: str = INPUT_QUEUE
    ) -> Reading:
        """Register a dataset, and report its batch size to the driver.

        Without a ``remainder``, its epochs end as the queue's current feed says; waits for that to begin.
        """
        remainder = remainder or self._next_feed(queue).opened.remainder
        with self._queue.changed:
            dataset_id, self._datasets = self._datasets, self._datasets + 1
        self._send(
            m.DatasetOpened(
                dataset_id=dataset_id,
                batch_size=batch_size,
                remainder=remainder,
                shuffle=shuffle,
                queue=queue,
            )
        )
        return Reading(dataset_id, batch_size, remainder, shuffle, seed, queue)

    def specs(self, queue: str = INPUT_QUEUE) -> tuple[ColumnSpec, ...]:
        """Return what the columns become, with their shapes; waits for the first rows.

        Rows that are Python objects raise a FeedError with advice.
        """
        self._ask(objects=False)
        feed = self._next_feed(queue)
        if feed.opened.objects:
            raise FeedError(reason=feed.opened.advice)
        self._queue.wait_for(feed, lambda: feed.resolved or feed.complete or (feed.serving and self._queue.ended))
        return feed.specs

    def known_schedule(self, reading: Reading, patience_s: float = 0.0) -> Schedule | None:
        """Return the steps of the coming epoch if they are known by now, else None: the same on all lock-step nodes.

        The driver answers once all of them have opened their dataset; ``patience_s`` is for those that never do.
        """
        feed, dataset_id = self._next_feed(reading.queue), reading.dataset_id
        if feed.serving or feed.opened.stream:
            return None
        with self._queue.changed:
            self._queue.changed.wait_for(
                lambda: dataset_id in feed.plans or dataset_id in feed.unplanned or feed.aborted is not None, patience_s
            )
            schedule = None if dataset_id in feed.unplanned else feed.schedule(reading)
        if schedule is not None:
            self._promised_steps[dataset_id] = schedule.steps
        return schedule

    def _next_feed(self, queue: str = INPUT_QUEUE) -> NodeFeed:
        self._ask(objects=None)
        while (feed := self._queue.find_next(WAIT_STEP_S, queue)) is None:
            pass
        return feed

    def _ask(self, *, objects: bool | None) -> None:
        """Report which kind of rows the function wants: objects, columns, or any."""
        # The driver may open no feed before it knows, of each node, whether it reads, and what.
        if not self._has_asked or objects not in (None, self._kind):
            self._has_asked, self._kind = True, objects if objects is not None else self._kind
            self._send(m.RowsWanted(objects=objects))

    # ---- reading ----------------------------------------------------------------------------------------------------

    def epoch(self, reading: Reading) -> Iterator[Piece | None]:
        """Yield one epoch, and None now and then while there is nothing.

        A stream is one epoch, and so are all inferences. None gives the iterating thread a chance to stop while
        this waits.
        """
        while (feed := self._queue.find_next(IDLE_S, reading.queue)) is None:
            self._progress.report_stream_read()
            yield None
        if feed.serving:
            yield from self._serve(feed, reading)
            return
        yield from self._read(feed, reading)
        while feed.opened.stream:
            self._progress.report_stream_read()
            following = yield from self._next_of_stream()
            if following is None:
                return
            feed = following
            yield from self._read(feed, reading)

    def _next_of_stream(self) -> Generator[None, None, NodeFeed | None]:
        """Wait for the next feed of a stream; None if there is none."""
        while not self._queue.stream_is_over():
            feed = self._queue.find_next_of_stream(IDLE_S)
            if feed is not None:
                return feed
            yield None
        return None

    def _serve(self, feed: NodeFeed, reading: Reading) -> Iterator[Piece | None]:
        most = reading.rows_at_once(feed)
        for item in self.answers.pieces(feed.specs, reading.batch_size, most, lambda: self._queue.ended):
            if item is None:
                yield None
                continue
            piece, rows = item
            self._progress.count(rows)
            yield Piece(fill_to(piece, math.ceil(rows / reading.batch_size) * reading.batch_size), rows)

    def _read(self, feed: NodeFeed, reading: Reading) -> Iterator[Piece | None]:
        seed = None if reading.seed is None else [reading.seed, self._rank, feed.epochs_read]
        progress = self._progress
        epoch = Epoch(feed, reading, self._queue.holds, progress.report_segment_read, seed=seed)
        for piece in epoch.pieces():
            if piece is not None:
                self._check_promise(reading, piece.step, more=True)
                with self._queue.changed:
                    is_read = feed.is_last(reading, piece.step)
                    feed.epochs_read += is_read
                    feed.rows_taken += piece.rows
                if not feed.kept:
                    progress.count(piece.rows, report=is_read)
            yield piece
        self._check_promise(reading, epoch.steps, more=False)
        if epoch.steps == 0:
            feed.epochs_read += 1

    def _check_promise(self, reading: Reading, steps: int, *, more: bool) -> None:
        """Raise if an epoch has, or will have, another number of steps than Keras and TensorFlow were given."""
        promised = self._promised_steps.get(reading.dataset_id, steps)
        if steps > promised or (steps < promised and not more):
            raise FeedError(
                reason=f"this dataset was made when its epochs had {promised} steps, and now one has "
                f"{'more' if more else steps}: call ctx.dataset anew for each cluster.train"
            )

    # ---- rows as Python values --------------------------------------------------------------------------------------

    def rows(self, queue: str) -> RowReader:
        """Return the rows of a queue as Python values; those who ask for the same queue share them."""
        self._ask(objects=True)
        if queue not in self._row_readers:
            with self._queue.changed:
                answers = self._row_answers[queue] = RowAnswers(self._pool(queue))
            self._row_readers[queue] = RowReader(queue, self._queue, self._progress, answers, self.stop)
        return self._row_readers[queue]

    # ---- rows as files ----------------------------------------------------------------------------------------------

    def files(self, folder: Path, file_format: str) -> list[str]:
        """Write this node's rows of the next feed as files below a folder, and return their paths; waits for the feed.

        Raises FeedError if the rows are no columns or have no end, and if there is no room for the files.
        """
        self._ask(objects=False)
        feed = self._next_feed()
        if feed.opened.objects or feed.opened.stream or feed.serving:
            raise FeedError(reason=feed.opened.advice if feed.opened.objects else _NO_FILES)
        if (feed.opened.feed, file_format) in self._files:
            return list(self._files[feed.opened.feed, file_format])
        self._queue.wait_for(feed, lambda: feed.complete)
        schema, batches = row_files.rows_of(feed, self._progress.report_segment_read)
        try:
            paths = row_files.write_files(schema, batches, folder / f"feed-{feed.opened.feed}", file_format)
        except FileNotFoundError:
            raise FeedError(reason=ROWS_ARE_GONE) from None
        except OSError as error:
            raise FeedError(reason=f"the rows cannot be written to files in {folder}: {error}") from None
        # All rows of all epochs count as taken: the function has them now, and reads them as often as it likes.
        with self._queue.changed:
            epochs, feed.epochs_read = feed.opened.epochs - feed.epochs_read, max(feed.opened.epochs, feed.epochs_read)
            rows = (feed.rows or 0) * max(0, epochs)
            feed.rows_taken += rows
        self._progress.count(rows, report=True)
        self._files[feed.opened.feed, file_format] = paths
        return list(paths)

    def count_rows(self) -> int:
        """Return how many rows the function has taken so far."""
        return self._progress.rows

    # ---- the end ----------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send the results that are held back, and how many rows have been taken, if there have been any feeds."""
        for pool in self._pools.values():
            pool.flush()
        if self._queue.feeds or self._queue.serving:
            self._progress.flush()

    def stop(self) -> None:
        """Report that this node wants no more rows."""
        self._send(m.FeedStopped())
