"""``_read_data``: all rows, as often as the function wants, on a node that trains a model by itself.

The first pass reads what Spark feeds to the node, and keeps it in a file; further passes read the file.
"""

from __future__ import annotations

import pickle
import tempfile
import threading
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from tfos_lab.core.options import is_int
from tfos_lab.errors import ConfigError, FeedError

if TYPE_CHECKING:
    import keras

    from tfos_lab.node.context.context import NodeContext
    from tfos_lab.node.feed.data_feed import DataFeed

# Rows that are taken from the feed, and stored, at once.
_CHUNK_ROWS = 64


class RowCache:
    """The rows of a feed in chunks, which can be read again; safe to use from several threads."""

    def __init__(self, feed: DataFeed) -> None:
        self._feed = feed
        self._file = tempfile.TemporaryFile(prefix="tfos-rows-")  # noqa: SIM115 - closed by `close`
        self._ends = [0]
        self._complete = False
        self._lock = threading.Lock()

    def chunk(self, index: int) -> list[Any]:
        """Return some rows; none after the last ones.

        Raises
        ------
        FeedError
            If there is no room for them on this node's disk.
        """
        with self._lock:
            if index < len(self._ends) - 1:
                self._file.seek(self._ends[index])
                stored: list[Any] = pickle.loads(self._file.read(self._ends[index + 1] - self._ends[index]))  # noqa: S301
                return stored
            rows = [] if self._complete else self._feed.next_batch(_CHUNK_ROWS)
            if rows:
                self._store(rows)
            else:
                self._complete = True
            return rows

    def _store(self, rows: list[Any]) -> None:
        data = pickle.dumps(rows, pickle.HIGHEST_PROTOCOL)
        try:
            self._file.seek(self._ends[-1])
            self._file.write(data)
        except OSError as error:
            reason = f"rows cannot be kept in {tempfile.gettempdir()} for further passes: {error.strerror}"
            raise FeedError(reason=f"{reason}; make room there, or set TMPDIR") from None
        self._ends.append(self._ends[-1] + len(data))

    def stop(self) -> None:
        """Take no more rows of the feed."""
        if not self._complete:
            self._complete = True
            self._feed.terminate()

    def close(self) -> None:
        """Remove the file."""
        self._file.close()


class ReadData:
    """Reads all rows: ``for batch in _read_data(max_records=64)`` in batches, ``for row in _read_data`` one by one.

    Each loop begins with the first row, whether the one before has come to its end or not.

    Parameters
    ----------
    cache : RowCache
        The rows.
    context : NodeContext
        The node's own context.
    """

    def __init__(self, cache: RowCache, context: NodeContext) -> None:
        self._cache = cache
        self._context = context

    def __call__(
        self,
        max_records: int = 64,
        consume_threads: int = 1,
        print_consume_time: bool = False,  # noqa: FBT001, FBT002 - Spark Deep Learning's signature
    ) -> Iterator[list[Any]]:
        """Return an iterator over all rows, in lists.

        Parameters
        ----------
        max_records : int
            The most rows in a list. The last one may be shorter; no row is left out.
        consume_threads, print_consume_time
            Not needed here: they said how rows were read from Kafka.
        """
        del consume_threads, print_consume_time
        if not is_int(max_records) or max_records < 1:
            raise ConfigError([f"_read_data(max_records={max_records!r}): a whole number from 1 on is needed"])
        return self._batches(max_records)

    def _batches(self, size: int) -> Iterator[list[Any]]:
        rows = iter(self)
        while batch := list(islice(rows, size)):
            yield batch

    def __iter__(self) -> Iterator[Any]:
        index = 0
        while rows := self._cache.chunk(index):
            yield from rows
            index += 1

    def report(self, step: int | None = None, *, total_steps: int | None = None, **metrics: float) -> None:
        """Show progress and metrics in the live table; see `NodeContext.report`."""
        self._context.report(step, total_steps=total_steps, **metrics)

    def callbacks(self) -> list[keras.callbacks.Callback]:
        """Return Keras callbacks that show progress and metrics in the live table."""
        return self._context.callbacks()
