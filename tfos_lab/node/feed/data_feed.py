"""``ctx.data_feed``: rows as Python values, in batches that the user's function asks for.

A `DataFeed` cuts batches from the chunks of a `RowReader`; whether these are rows to train on or rows to be inferred is
the reader's business. Rows count as taken when they enter a batch, even if it has to wait for more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfos_lab.errors import ConfigError, FeedError
from tfos_lab.node.activity.steps import STEPS
from tfos_lab.node.feed import python_rows
from tfos_lab.node.feed.feed_queue import WAIT_STEP_S, FeedQueue
from tfos_lab.node.feed.node_feed import NodeFeed, ReadProgress
from tfos_lab.node.feed.row_answers import Chunk, RowAnswers
from tfos_lab.texts import format_count

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class Buffer:
    """Rows that a source has given and the function has not taken: `rows` from `at` on."""

    rows: list[Any] = field(default_factory=list)
    at: int = 0
    ends_batch: bool = False


class DataFeed:
    """The rows that are fed to this node, as Python values; made by ``ctx.data_feed``."""

    def __init__(
        self, source: RowReader, *, train_mode: bool = True, input_mapping: Mapping[str, str] | None = None
    ) -> None:
        self._source = source
        self._train_mode = train_mode
        self._tensors = None if input_mapping is None else [input_mapping[column] for column in sorted(input_mapping)]
        self._buffer = source.buffer
        self._is_over = False

    def next_batch(self, batch_size: int) -> Any:
        """Wait for rows, and return the next ones; fewer than asked for only at the end.

        Without ``train_mode``, a batch also ends with its partition.

        Parameters
        ----------
        batch_size : int
            The most rows wanted.

        Returns
        -------
        list, or dict of str to list
            The rows. With ``input_mapping``, lists of columns: the i-th value of each row goes to the tensor of the
            i-th column, in the order of the sorted names of columns. Empty if there are no more rows.

        Raises
        ------
        FeedError
            If the feed fails, or the batch before has been answered in part.
        """
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ConfigError([f"next_batch({batch_size!r}): a whole number of rows, at least 1, is needed"])
        self._source.check_answered()
        STEPS.take_batch()
        batch: list[Any] = []
        buffer = self._buffer
        while len(batch) < batch_size and self._has_rows(batch):
            part = buffer.rows[buffer.at : buffer.at + batch_size - len(batch)]
            buffer.at += len(part)
            self._source.count(len(part))
            batch = batch + part if batch else part
        return batch if self._tensors is None else self._columns(batch)

    def should_stop(self) -> bool:
        """Whether no row is left and none will come; waits until that is known."""
        self._source.check_answered()
        return not self._has_rows([])

    def batch_results(self, results: Iterable[Any]) -> None:
        """Return the results of an inference: one for each row, in the order in which the rows came.

        Parameters
        ----------
        results : iterable
            The results of the oldest rows that have none; they may come in parts.

        Raises
        ------
        FeedError
            If there are more results than rows.
        """
        self._source.put(list(results))

    def terminate(self) -> None:
        """Take no more rows: the feed ends early, on all nodes, and Spark's remaining partitions are skipped."""
        self._is_over = True
        self._buffer.rows, self._buffer.at = [], 0
        self._source.stop()

    def _has_rows(self, batch: list[Any]) -> bool:
        """Wait for a row, and return whether there is one that may follow those of the batch."""
        buffer = self._buffer
        while buffer.at == len(buffer.rows):
            if buffer.ends_batch and batch:
                return False
            chunk = None if self._is_over else self._source.take()
            if chunk is None:
                self._is_over = True
                return False
            buffer.rows, buffer.at = chunk.rows, 0
            buffer.ends_batch = chunk.ends_batch or (chunk.ends_partition and not self._train_mode)
        return True

    def _columns(self, batch: list[Any]) -> dict[str, list[Any]]:
        assert self._tensors is not None
        columns: list[Any] = list(zip(*batch, strict=False)) if batch else []
        if batch and len(columns) < len(self._tensors):
            width = min(len(row) for row in batch)
            raise FeedError(
                reason=f"input_mapping names {format_count(len(self._tensors), 'column')}, but a row has "
                f"{format_count(width, 'value')}: give each row one value for each column, in the order of "
                "their sorted names"
            )
        return {tensor: list(columns[index]) if batch else [] for index, tensor in enumerate(self._tensors)}


class RowReader:
    """The rows of one queue, across partitions, epochs and feeds; data feeds of one reader share its ``buffer``.

    Rows to be inferred are ``served``; ``stop`` reports to the driver that no more rows are wanted.
    """

    def __init__(
        self, name: str, queue: FeedQueue, progress: ReadProgress, served: RowAnswers, stop: Callable[[], None]
    ) -> None:
        self._name = name
        self._queue = queue
        self._progress = progress
        self._served = served
        self._stop = stop
        self._epoch: _Epoch | None = None
        self._serves = False
        self.buffer = Buffer()

    def take(self) -> Chunk | None:
        """Return the next rows; wait for them, across epochs and feeds. None once no more will come."""
        while True:
            if self._epoch is not None:
                if (chunk := self._take_of(self._epoch)) is not None:
                    return chunk
                continue
            feed = self._next_feed()
            if feed is None:
                return None
            if feed.serving != self._serves:
                self._serves = feed.serving
                return Chunk([], ends_batch=True)  # no batch has rows of both kinds
            if not feed.serving:
                self._epoch = _Epoch(feed, self._progress.report_segment_read)
            elif (chunk := self._served.take(WAIT_STEP_S)) is not None:
                return chunk
            elif self._nothing_follows():
                return None

    def _nothing_follows(self) -> bool:
        """Whether there are no more rows to infer, and none to train on came while those were waited for."""
        if not self._queue.ended or not self._served.is_over():
            return False
        feed = self._queue.find_rows(self._name, 0.0)
        return feed is None or feed.serving

    def count(self, rows: int) -> None:
        """Record that the function has taken the next rows."""
        if self._epoch is None:
            self._served.count(rows)
        else:
            with self._queue.changed:
                self._epoch.feed.rows_taken += rows
        self._progress.count(rows)

    def put(self, results: list[Any]) -> None:
        """Return results of an inference."""
        self._served.put(results)

    def check_answered(self) -> None:
        """Raise if a batch of an inference has been answered in part."""
        self._served.check_answered()

    def stop(self) -> None:
        """Report that this node wants no more rows."""
        self._progress.flush()
        self._served.stop()
        self._stop()

    def _next_feed(self) -> NodeFeed | None:
        if (feed := self._queue.find_rows(self._name, 0.0)) is not None:
            return feed
        # The driver may wait for this before it feeds more.
        self._progress.flush()
        self._progress.report_stream_read()
        while (feed := self._queue.find_rows(self._name, WAIT_STEP_S)) is None:
            if self._queue.is_over(self._name):
                return None
        return feed

    def _take_of(self, epoch: _Epoch) -> Chunk | None:
        """Return the next rows of an epoch, or None at its end."""
        feed = epoch.feed
        if not epoch.has_ended:
            if not self._queue.holds(feed, epoch.can_go_on, 0.0):
                self._progress.flush()
                self._queue.wait_for(feed, epoch.can_go_on)
            return epoch.take()
        self._epoch = None
        with self._queue.changed:
            feed.epochs_read += 1
        self._progress.flush()
        return Chunk([], ends_batch=True) if feed.opened.stream else None


class _Epoch:
    """One pass over the rows of a feed, a record batch at a time.

    ``on_segment_read`` is called with the path of a file that is not read again, once all its rows have been taken.
    """

    def __init__(self, feed: NodeFeed, on_segment_read: Callable[[str], None]) -> None:
        self.feed = feed
        self.has_ended = False
        self._on_segment_read = on_segment_read
        self._decode = python_rows.decoder(feed.opened.schema, objects=feed.opened.objects)
        self._next = 0
        self._batches: Iterator[pa.RecordBatch] | None = None

    def can_go_on(self) -> bool:
        """Whether `take` has something to read."""
        return self._batches is not None or self.feed.has_come(self._next)

    def take(self) -> Chunk:
        """Return the rows of the next record batch; none at the end of a segment, and of all."""
        feed = self.feed
        if self._next == len(feed.segments):
            self.has_ended = True
            return Chunk([])
        segment = feed.segments[self._next]
        self._batches = self._batches or segment.batches()
        batch = next(self._batches, None)
        if batch is not None:
            return Chunk(self._decode(batch))
        if feed.epochs_read >= feed.opened.epochs - 1:
            self._on_segment_read(segment.path)
        self._batches = None
        self._next += 1
        return Chunk([], ends_partition=True)
