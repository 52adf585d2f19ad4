"""Inference by datasets: makes batches of the rows to infer, in the process of the function, and returns the results.

A batch holds rows of one Spark task only, so that a task's results never wait for another task's rows. Several batches
are handed out at once, and their results are returned together unless they take long. Results are matched to rows by
order: the first results that are put belong to the first rows that were taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tfos_lab.data.batches import to_arrow, to_numpy
from tfos_lab.data.rows import Batch, count_rows, slice_rows
from tfos_lab.data.schema import ColumnSpec
from tfos_lab.errors import FeedError
from tfos_lab.node.feed.exchange_pool import ExchangePool, PendingExchange, result_columns
from tfos_lab.texts import format_count

_IDLE_S = 0.2


@dataclass(frozen=True)
class _Unanswered:
    """A batch without results so far: ``rows`` of its ``batch_size`` are real; it may be the ``last`` of its piece."""

    exchange: int
    rows: int
    batch_size: int
    last: bool


class Answers:
    """Batches of the rows in a pool, and their results: tf.data's threads call `pieces`, the user `put`."""

    def __init__(self, pool: ExchangePool) -> None:
        self._pool = pool
        self._changed = pool.changed
        self._unanswered: deque[_Unanswered] = deque()

    def pieces(
        self, specs: tuple[ColumnSpec, ...], batch_size: int, most: int, is_over: Callable[[], bool]
    ) -> Iterator[tuple[Batch, int] | None]:
        """Yield ``(columns, rows)``, until ``is_over()`` and nothing is left.

        A piece has a multiple of ``batch_size`` rows and at most ``most``, or the last rows of a task. Yields None now
        and then while there is nothing.
        """
        while True:
            number = self._find_exchange(batch_size)
            if number is None:
                if is_over() and not self._pool.exchanges:
                    return
                yield None
                continue
            piece = self._cut(number, batch_size, most, specs)
            rows = count_rows(piece)
            if not rows:
                continue
            with self._changed:
                for start in range(0, rows, batch_size):
                    left = rows - start
                    self._unanswered.append(
                        _Unanswered(number, min(left, batch_size), batch_size, last=left <= batch_size)
                    )
            yield piece, rows

    def _find_exchange(self, rows: int) -> int | None:
        """Return the exchange to serve next, if any: one that has a whole batch, or its last rows."""
        with self._changed:
            for wait_s in (_IDLE_S, 0.0):
                for number, exchange in list(self._pool.exchanges.items()):
                    if exchange.files or exchange.count >= rows or (exchange.ended and exchange.count):
                        self._pool.move_to_end(number)
                        return number
                    if exchange.ended:
                        del self._pool.exchanges[number]
                self._changed.wait(wait_s)
            return None

    def _cut(self, number: int, batch_size: int, most: int, specs: tuple[ColumnSpec, ...]) -> Batch:
        """Read files until there are rows for a batch, and cut a piece; nothing if more rows are needed."""
        with self._changed:
            exchange = self._pool.exchanges.get(number)
        if exchange is None:
            return {}
        while exchange.count < batch_size and exchange.files:
            self._read_file(number, exchange, specs)
        if exchange.count < batch_size:
            return exchange.take(exchange.count) if exchange.ended else {}
        return exchange.take(min(exchange.count, most) // batch_size * batch_size)

    def _read_file(self, number: int, exchange: PendingExchange, specs: tuple[ColumnSpec, ...]) -> None:
        for batch in self._pool.read_file(number, exchange):
            exchange.rows.append(to_numpy(batch, specs))
            exchange.count += batch.num_rows

    def put(self, values: Any) -> None:
        """Add the results of the oldest batch that has none; see `NodeContext.put_results`."""
        columns = result_columns(values)
        given = count_rows(columns)
        with self._changed:
            if not self._unanswered:
                raise FeedError(
                    reason="put_results was called more often than ctx.dataset gave batches of an inference"
                )
            batch = self._unanswered[0]
            if given not in (batch.rows, batch.batch_size):
                raise FeedError(
                    reason=f"put_results got {format_count(given, 'result')} for a batch of "
                    f"{format_count(batch.rows, 'row')} (of {batch.batch_size} with those that fill it up); "
                    "put one result per row, once per batch"
                )
            self._unanswered.popleft()
        self._pool.hold(batch.exchange, to_arrow(slice_rows(columns, 0, batch.rows)))
        if batch.last or self._pool.is_due:
            self._pool.flush()
