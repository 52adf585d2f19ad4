"""Inference in the process of the user's function: makes batches of the rows to infer, and returns the results.

A batch holds rows of one Spark task only, so that a task's results never wait for another task's rows. Several batches
are handed out at once, and their results are returned together unless they take long. Results are matched to rows by
order: the first results that are put belong to the first rows that were taken.
"""

from __future__ import annotations

import io
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tfos_lab import messages as m
from tfos_lab.data.batches import to_arrow
from tfos_lab.data.rows import Batch, count_rows, join_rows, slice_rows
from tfos_lab.data.schema import ColumnSpec
from tfos_lab.errors import FeedError
from tfos_lab.node.feed.results import result_columns
from tfos_lab.node.feed.segments import read_in_order

_IDLE_S = 0.2
# Results are held back no longer than this.
_SEND_S = 0.25


class _PendingRows:
    """Rows of one task that were not handed out yet."""

    def __init__(self) -> None:
        self.files: deque[m.ExchangeRows] = deque()
        self.rows: deque[Batch] = deque()
        self.count = 0
        self.ended = False

    def take(self, count: int) -> Batch:
        """Take the first ``count`` rows."""
        parts, missing = [], count
        while missing:
            part = self.rows.popleft()
            have = count_rows(part)
            if have > missing:
                self.rows.appendleft(slice_rows(part, missing, have))
                part, have = slice_rows(part, 0, missing), missing
            parts.append(part)
            missing -= have
        self.count -= count
        return join_rows(parts) if parts else {}


@dataclass(frozen=True)
class _Unanswered:
    """A batch without results so far: ``rows`` of its ``batch_size`` are real; it may be the ``last`` of its piece."""

    exchange: int
    rows: int
    batch_size: int
    last: bool


class Answers:
    """All exchanges of this node. The session's thread calls `handle`, tf.data's threads `pieces`, the user `put`."""

    def __init__(self, rank: int, send: Callable[[m.FromAgent], None], changed: threading.Condition) -> None:
        self._rank = rank
        self._send = send
        self._changed = changed
        self._exchanges: dict[int, _PendingRows] = {}
        self._dropped: set[int] = set()
        self._unanswered: deque[_Unanswered] = deque()
        self._results: list[pa.RecordBatch] = []
        self._sent_s = 0.0

    def handle(self, message: m.ToAgent) -> None:
        """Apply a message; call it with the condition held."""
        match message:
            case m.ExchangeRows(exchange=number):
                self._exchanges.setdefault(number, _PendingRows()).files.append(message)
            case m.ExchangeEnded(exchange=number):
                self._exchanges.setdefault(number, _PendingRows()).ended = True
            case m.ExchangeDropped(exchange=number):
                self._dropped.add(number)
                for file in self._exchanges.pop(number, _PendingRows()).files:
                    Path(file.path).unlink(missing_ok=True)

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
                if is_over() and not self._exchanges:
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
                for number, exchange in list(self._exchanges.items()):
                    if exchange.files or exchange.count >= rows or (exchange.ended and exchange.count):
                        # Moved to the end, so that tasks share the node evenly.
                        self._exchanges[number] = self._exchanges.pop(number)
                        return number
                    if exchange.ended:
                        del self._exchanges[number]
                self._changed.wait(wait_s)
            return None

    def _cut(self, number: int, batch_size: int, most: int, specs: tuple[ColumnSpec, ...]) -> Batch:
        """Read files until there are rows for a batch, and cut a piece; nothing if more rows are needed."""
        with self._changed:
            exchange = self._exchanges.get(number)
        if exchange is None:
            return {}
        while exchange.count < batch_size and exchange.files:
            self._read_file(number, exchange, specs)
        if exchange.count < batch_size:
            return exchange.take(exchange.count) if exchange.ended else {}
        return exchange.take(min(exchange.count, most) // batch_size * batch_size)

    def _read_file(self, number: int, exchange: _PendingRows, specs: tuple[ColumnSpec, ...]) -> None:
        file = exchange.files.popleft()
        for part in read_in_order(file.path, specs):
            exchange.rows.append(part)
            exchange.count += count_rows(part)
        Path(file.path).unlink(missing_ok=True)
        self._send(m.ExchangeTaken(rank=self._rank, exchange=number))

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
                    reason=f"put_results got {given} results for a batch of {batch.rows} rows (of {batch.batch_size} "
                    "with those that fill it up); put one result per row, once per batch"
                )
            self._unanswered.popleft()
        results = to_arrow(slice_rows(columns, 0, batch.rows))
        if self._results and results.schema != self._results[0].schema:
            self._send_results(batch.exchange)
        self._results.append(results)
        if batch.last or time.monotonic() - self._sent_s > _SEND_S:
            self._send_results(batch.exchange)

    def _send_results(self, exchange: int) -> None:
        """Return the results that are held back."""
        table = pa.Table.from_batches(self._results).combine_chunks()
        self._results = []
        self._sent_s = time.monotonic()
        with self._changed:
            dropped = exchange in self._dropped
        if not dropped:
            message = m.ExchangeResults(rank=self._rank, exchange=exchange, rows=table.num_rows, data=_encode(table))
            self._send(message)


def _encode(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()
