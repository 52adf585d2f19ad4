"""One epoch of a feed, as one dataset reads it: every row of this node once, in the steps that were agreed on.

Full batches are yielded as soon as all nodes have the rows for them, leftover rows aside, but one row is always held
back for the step that may follow. So no node takes a step that another node cannot take, whatever the number of rows
turns out to be, and no node takes an epoch's last step before all nodes know that it is the last. Epochs of files, in a
random order, without short batches, or in batches that differ between nodes begin once their steps are known.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tfos_lab.data.batches import shuffled, to_numpy
from tfos_lab.data.rows import Array, Batch, count_rows, fill_to, join_rows, slice_rows, zeros
from tfos_lab.errors import FeedError
from tfos_lab.node.feed.files.segment import read_files, stored_files
from tfos_lab.node.feed.node_feed import NodeFeed, Reading
from tfos_lab.node.feed.schedule import Schedule, per_row

# An iterator that waits for rows can be discarded after this time at the latest.
IDLE_S = 0.2
ROWS_ARE_GONE = (
    "the rows cannot be read again, as the node's spool needed the room: say how often they are read with epochs=..., "
    "or raise spool_bytes"
)


@dataclass(frozen=True)
class Piece:
    """Some batches of an epoch."""

    # Column to ``(n, …)``. ``n`` is a multiple of the batch size, unless this is one ``short`` batch.
    columns: Batch
    # How many of these rows, counted from the first, are real; the others are filler.
    rows: int
    # How many steps of the epoch have been taken, including these.
    step: int = 0
    # What the weights of the rows are multiplied by: float64 ``(n,)`` if they differ (`Schedule.factors`).
    factor: float | np.ndarray = 1.0
    # Whether this is a batch of fewer rows than the batch size.
    short: bool = False


class Epoch:
    """Reads a node's rows once.

    ``holds(feed, predicate, timeout_s)`` waits until the predicate holds, and returns whether it does.
    ``on_segment_read`` is called with the path of a file that is not read again, once all its rows have been taken.
    ``seed`` seeds the permutation of shuffled rows.
    """

    def __init__(
        self,
        feed: NodeFeed,
        reading: Reading,
        holds: Callable[[NodeFeed, Callable[[], bool], float], bool],
        on_segment_read: Callable[[str], None],
        *,
        seed: list[int] | None,
    ) -> None:
        self._feed = feed
        self._reading = reading
        self._holds = holds
        self._on_segment_read = on_segment_read
        self._seed = seed
        self._step = 0
        self._taken_unplanned = 0
        self._first_row: Batch = {}

    @property
    def steps(self) -> int:
        """How many steps it has; known when it ends, at the latest."""
        return self._feed.steps(self._reading) or 0

    def pieces(self) -> Iterator[Piece | None]:
        """Yield its batches, and None now and then while there are none."""
        reading, feed = self._reading, self._feed
        may_differ = feed.opened.files or reading.dataset_id in feed.mixed_sizes
        if reading.remainder == "drop" or reading.shuffle or may_differ:
            yield from self._scheduled()
        waiting: list[Batch] = []
        for batch in in_multiples(self._rows(), reading.batch_size, reading.rows_at_once(feed)):
            if batch is None:
                yield None
            else:
                waiting.append(batch)
                if not self._first_row:
                    self._first_row = {name: values[:1].copy() for name, values in batch.items()}
            waiting = yield from self._take_full(waiting)
            if waiting and reading.remainder == "drop":
                break
        schedule = yield from self._scheduled()
        self._check_unplanned(schedule)
        waiting = yield from self._take_full(waiting)
        if reading.remainder != "drop":
            yield from self._short_batches(schedule, join_rows(waiting) if waiting else {})

    # ---- full batches -----------------------------------------------------------------------------------------------

    def _take_full(self, waiting: list[Batch]) -> Generator[Piece, None, list[Batch]]:
        """Yield what are certainly full batches of the epoch; return the rest."""
        size = self._reading.batch_size
        while waiting and (count := self._count_full(count_rows(waiting[0]) // size)):
            first = waiting.pop(0)
            yield from self._cut(slice_rows(first, 0, count * size))
            if count * size < count_rows(first):
                waiting.insert(0, slice_rows(first, count * size, count_rows(first)))
        return waiting

    def _count_full(self, most: int) -> int:
        schedule = self._feed.schedule(self._reading)
        if schedule is None:
            return max(0, min(most, (self._feed.rows_come - 1) // self._reading.batch_size - self._step))
        return max(0, min(most, schedule.full - self._step))

    def _cut(self, columns: Batch) -> Iterator[Piece]:
        """Yield full batches together, but the epoch's last step by itself.

        A function that looks at the first batches only has then not read the epoch, although all batches are ready.
        """
        rows, size = count_rows(columns), self._reading.batch_size
        if rows > size and self._feed.is_last(self._reading, self._step + rows // size):
            yield self._full(slice_rows(columns, 0, rows - size))
            columns = slice_rows(columns, rows - size, rows)
        yield self._full(columns)

    def _full(self, columns: Batch) -> Piece:
        start, size = self._step, self._reading.batch_size
        self._step += count_rows(columns) // size
        schedule = self._feed.schedule(self._reading)
        if schedule is None:
            # Until the steps are known, the batches of all nodes are full.
            self._taken_unplanned = self._step
            return Piece(columns, count_rows(columns), self._step)
        factors = schedule.factors(start, self._step, padded=self._reading.remainder == "pad")
        return Piece(columns, count_rows(columns), self._step, per_row(factors, size))

    def _check_unplanned(self, schedule: Schedule) -> None:
        """Raise if a step taken before the rows of each node were known turns out not to be full on all nodes."""
        steps = self._taken_unplanned
        if steps > schedule.even_steps or (steps and schedule.factors(0, 1) != [1.0]):
            sizes = ", ".join(sorted({str(size) for _, size, _ in schedule.peers}))
            raise FeedError(
                reason=f"this node read rows before the others had called ctx.dataset, and their batches (of {sizes} "
                "rows) do not fit together: give all nodes the same batch_size, or call ctx.dataset on all nodes first"
            )

    # ---- short batches ----------------------------------------------------------------------------------------------

    def _short_batches(self, schedule: Schedule, rest: Batch) -> Iterator[Piece]:
        """Yield the short batches that end the epoch, one by one."""
        start, size, padded = 0, self._reading.batch_size, self._reading.remainder == "pad"
        for step in range(self._step, schedule.steps):
            (factor,) = schedule.factors(step, step + 1, padded=padded)
            rows = schedule.rows_at(step)
            batch = slice_rows(rest, start, start + rows) if rows else self._filler()
            start += rows
            wanted = size if padded else max(rows, 1)
            yield Piece(fill_to(batch, wanted), rows, step + 1, factor, short=wanted < size)

    def _filler(self) -> Batch:
        """Return a row for a step for which this node has none: a copy of any row that it can read, else zeros."""
        if self._first_row:
            return self._first_row
        specs = self._feed.specs
        for segment in self._feed.segments:
            with contextlib.suppress(FileNotFoundError):
                for batch in segment.stored():
                    return slice_rows(to_numpy(batch, specs), 0, 1)
        return zeros(specs, 1)

    # ---- rows -------------------------------------------------------------------------------------------------------

    def _rows(self) -> Iterator[Batch | None]:
        feed = self._feed
        if self._reading.shuffle:
            segments = (yield from stored_files(feed)) if feed.files else feed.segments
            at_once = self._reading.rows_at_once(feed)
            rng = np.random.default_rng(self._seed)
            batches = [batch for segment in segments for batch in segment.batches()]
            yield from shuffled(batches, feed.specs, at_once, rng)
            return
        if feed.files:
            yield from read_files(feed)
            return
        try:
            for index in itertools.count():
                yield from self._until(functools.partial(feed.has_come, index))
                if index >= len(feed.segments):
                    break
                segment = feed.segments[index]
                for batch in segment.batches():
                    yield to_numpy(batch, feed.specs)
                if feed.epochs_read >= feed.opened.epochs - 1:
                    self._on_segment_read(segment.path)
        except FileNotFoundError:
            raise FeedError(reason=ROWS_ARE_GONE) from None

    # ---- waiting ----------------------------------------------------------------------------------------------------

    def _scheduled(self) -> Generator[None, None, Schedule]:
        """Wait until the steps are known, and return them."""
        yield from self._until(lambda: self._feed.schedule(self._reading) is not None)
        schedule = self._feed.schedule(self._reading)
        assert schedule is not None
        return schedule

    def _until(self, predicate: Callable[[], bool]) -> Iterator[None]:
        """Yield None now and then until the predicate holds."""
        while not self._holds(self._feed, predicate, IDLE_S):
            yield None


def in_multiples(batches: Iterable[Mapping[str, Array] | None], rows: int, most: int) -> Iterator[Batch | None]:
    """Cut a stream of batches of any size into pieces of whole multiples of ``rows`` rows, at most ``most`` rows each.

    Rows keep their order; only the last piece may have fewer than ``rows`` of them. Almost all pieces are views. None,
    which means that the stream has nothing yet, is passed on.

    Examples
    --------
    >>> import numpy as np
    >>> [batch["x"].tolist() for batch in in_multiples([{"x": np.arange(3)}, {"x": np.arange(3, 10)}], 2, 4)]
    [[0, 1], [2, 3], [4, 5, 6, 7], [8, 9]]
    """
    held: list[Batch] = []
    missing = rows
    for batch in batches:
        if batch is None:
            yield None
            continue
        total, start = count_rows(batch), 0
        if held:
            start = min(total, missing)
            held.append(slice_rows(batch, 0, start))
            missing -= start
            if not missing:
                yield join_rows(held)
                held, missing = [], rows
        while total - start >= rows:
            stop = start + min((total - start) // rows * rows, max(rows, most // rows * rows))
            yield slice_rows(batch, start, stop)
            start = stop
        if start < total:
            held.append(slice_rows(batch, start, total))
            missing -= total - start
    if held:
        yield join_rows(held)
