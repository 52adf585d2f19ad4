"""Inference by ``ctx.data_feed``: hands out rows as Python values, and returns one result for each, in order.

Results are matched to rows by order, in whatever portions they come. They are held back for a moment, so that many go
at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tfos_lab.data.batches import to_arrow
from tfos_lab.errors import FeedError
from tfos_lab.node.feed import python_rows
from tfos_lab.node.feed.answers import ExchangePool, result_columns
from tfos_lab.texts import format_count

# A batch that has begun waits so long for the rest of its task's rows while other tasks have some: these may be what
# the rest is computed from.
_PATIENCE_S = 0.5
# No more results are held back than this.
_MOST_HELD = 4096


class Chunk(NamedTuple):
    """Some rows, in order, of one partition.

    ``ends_partition`` if they are its last ones; ``ends_batch`` if no batch may go on beyond them. Either may come
    later, with a chunk without rows.
    """

    rows: list[Any]
    ends_partition: bool = False
    ends_batch: bool = False


@dataclass
class _Given:
    """Rows of one exchange that were given in one batch; ``missing`` of them have no result."""

    batch: int
    exchange: int
    objects: bool
    missing: int


class RowAnswers:
    """The rows of a pool as Python values, and their results; read by a `RowReader` that has no rows to train on."""

    def __init__(self, pool: ExchangePool) -> None:
        self._pool = pool
        self._changed = pool.changed
        self._batch = 0
        self._has_begun = False
        self._current: int | None = None
        self._taken: deque[list[Any]] = deque()
        self._given: deque[_Given] = deque()
        self._counts: dict[int, list[int]] = {}
        # Who has put the last results, and whether there were none although rows waited for some.
        self._last_put = (0, False)

    # ---- rows -------------------------------------------------------------------------------------------------------

    def take(self, timeout_s: float) -> Chunk | None:
        """Return the next rows, or None if there are none within this time; a batch has rows of one task only."""
        with self._changed:
            number = self._choose()
        if number is None:
            self._pool.flush()  # the function waits, and so may somebody for its results
            with self._changed:
                self._changed.wait_for(lambda: self._choose() is not None, min(timeout_s, _PATIENCE_S))
                number = self._choose()
                others_have = any(exchange.files for exchange in self._pool.exchanges.values())
                if number is None and self._has_begun and others_have:
                    # End the batch, rather than let other tasks wait for this one's rows.
                    self._current = None
                    return Chunk([], ends_batch=True)
        return None if number is None else self._read(number)

    def _choose(self) -> int | None:
        """Return the exchange to serve next, if any: the one whose rows the batch has, once it has begun."""
        exchanges = self._pool.exchanges
        if self._has_begun and self._current is not None:
            current = exchanges.get(self._current)
            return self._current if current is None or current.files or current.ended else None
        for number, exchange in list(exchanges.items()):
            if exchange.files:
                return number
            if exchange.ended:
                del exchanges[number]
        return None

    def _read(self, number: int) -> Chunk:
        with self._changed:
            exchange = self._pool.exchanges.get(number)
            self._current = None
            if exchange is None:
                return Chunk([], ends_partition=True, ends_batch=True)
            self._pool.move_to_end(number)
        decode = python_rows.decoder(self._pool.schema, objects=exchange.objects)
        rows = [row for batch in self._pool.read_file(number, exchange) for row in decode(batch)]
        with self._changed:
            if rows:
                self._taken.append([number, exchange.objects, len(rows)])
            if exchange.ended and not exchange.files:
                self._pool.exchanges.pop(number, None)
                return Chunk(rows, ends_partition=True, ends_batch=True)
            self._current = number
        return Chunk(rows)

    def count(self, rows: int) -> None:
        """Record that the function has been given the next rows."""
        with self._changed:
            self._has_begun = True
            self._counts.setdefault(self._batch, [0, 0])[0] += rows
            while rows:
                number, objects, left = first = self._taken[0]
                part = min(rows, left)
                self._given.append(_Given(self._batch, number, objects, part))
                rows -= part
                first[2] -= part
                if not first[2]:
                    self._taken.popleft()

    def is_over(self) -> bool:
        """Whether no row is left."""
        with self._changed:
            return not self._pool.exchanges

    def stop(self) -> None:
        """Take no more rows; those that have been taken get no results any more."""
        self._pool.flush()
        self._pool.drop_all()
        with self._changed:
            self._taken.clear()
            self._given.clear()

    # ---- results ----------------------------------------------------------------------------------------------------

    def check_answered(self) -> None:
        """Begin another batch; a FeedError if this thread has answered the oldest one in part."""
        with self._changed:
            self._has_begun = False
            self._batch += 1
            thread, was_empty = self._last_put
            rows, answered = self._counts[self._given[0].batch] if self._given else (0, 0)
        if rows and (answered or was_empty) and thread == threading.get_ident():
            raise FeedError(
                reason=f"batch_results got {format_count(answered, 'result')} for a batch of "
                f"{format_count(rows, 'row')}: give one result per row, before the next batch is asked for"
            )

    def put(self, results: list[Any]) -> None:
        """Add one result for each of the oldest rows that have none; a FeedError if there are fewer such rows."""
        with self._changed:
            parts = list(self._match(len(results)))
        start = 0
        for number, objects, count in parts:
            part = results[start : start + count]
            results_of_part = python_rows.encode(part, what="a result") if objects else to_arrow(result_columns(part))
            self._pool.hold(number, results_of_part)
            start += count
        with self._changed:
            is_all = not self._given and not self._taken
        if is_all or self._pool.is_due or self._pool.held_rows >= _MOST_HELD:
            self._pool.flush()

    def _match(self, count: int) -> Iterator[tuple[int, bool, int]]:
        """Yield exchanges, and how many of the next results belong to each."""
        waiting = sum(given.missing for given in self._given)
        if count and not waiting:
            raise FeedError(reason="batch_results: there are no rows of an inference that wait for results")
        if count > waiting:
            raise FeedError(
                reason=f"batch_results got more results ({count}) than there are rows of an inference that wait for "
                f"one ({waiting}): give one result per row, after next_batch has returned it"
            )
        self._last_put = threading.get_ident(), not count and bool(self._given)
        missing = count
        while missing:
            given = self._given[0]
            part = min(missing, given.missing)
            missing -= part
            given.missing -= part
            self._counts[given.batch][1] += part
            if not given.missing:
                self._given.popleft()
            yield given.exchange, given.objects, part
        oldest = self._given[0].batch if self._given else None
        for batch in [batch for batch in self._counts if oldest is None or batch < oldest]:
            del self._counts[batch]
