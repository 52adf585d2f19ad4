"""The child's part of an inference: makes batches of the rows that Spark tasks ask about, and gives results back.

A batch holds rows of one task only, so that a task's answers never wait for another task's rows. Results are matched to
rows by order: the first ones that are put belong to the first rows that were taken.
"""

from __future__ import annotations

import io
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tfos_lab import messages as m
from tfos_lab.data.batches import count_rows, join_rows, slice_rows, to_arrow
from tfos_lab.data.schema import ColumnSpec
from tfos_lab.errors import FeedError
from tfos_lab.node.segments import read_in_order

Columns = dict[str, np.ndarray]

# The column of results that have no name of their own.
RESULT_COLUMN = "prediction"
_IDLE_S = 0.2


class _Exchange:
    """What has come from one task and was not handed out yet."""

    def __init__(self) -> None:
        self.files: deque[m.ExchangeRows] = deque()
        self.rows: deque[Columns] = deque()
        self.count = 0
        self.ended = False


class Answers:
    """All exchanges of this node. The station's thread calls `take`; tf.data's threads `batches`; the user `put`."""

    def __init__(self, seat: int, say: Callable[[m.FromAgent], None], changed: threading.Condition) -> None:
        self._seat = seat
        self._say = say
        self._changed = changed
        self._exchanges: dict[int, _Exchange] = {}
        self._dropped: set[int] = set()
        self._unanswered: deque[tuple[int, int, int]] = deque()

    def take(self, message: m.ToAgent) -> None:
        """Take in what comes; called with the condition held."""
        match message:
            case m.ExchangeRows(exchange=number):
                self._exchanges.setdefault(number, _Exchange()).files.append(message)
            case m.ExchangeEnded(exchange=number):
                self._exchanges.setdefault(number, _Exchange()).ended = True
            case m.ExchangeDropped(exchange=number):
                self._exchanges.pop(number, None)
                self._dropped.add(number)

    def batches(
        self, specs: tuple[ColumnSpec, ...], rows: int, is_over: Callable[[], bool]
    ) -> Iterator[tuple[Columns, int] | None]:
        """Yield ``(columns, count)`` with at most ``rows`` rows each, until ``is_over()`` and nothing is left.

        Yields None now and then while there is nothing.
        """
        while True:
            number = self._find_exchange(rows)
            if number is None:
                if is_over() and not self._exchanges:
                    return
                yield None
                continue
            batch = self._cut(number, rows, specs)
            count = count_rows(batch)
            if not count:
                continue
            with self._changed:
                self._unanswered.append((number, count, rows))
            yield batch, count

    def _find_exchange(self, rows: int) -> int | None:
        """Return the exchange to serve next: one with a whole batch, or with the rest of its rows; None for none."""
        with self._changed:
            for wait_s in (_IDLE_S, 0.0):
                for number, exchange in list(self._exchanges.items()):
                    if exchange.files or exchange.count >= rows or (exchange.ended and exchange.count):
                        # The next one is served next time, so that tasks share the node evenly.
                        self._exchanges[number] = self._exchanges.pop(number)
                        return number
                    if exchange.ended:
                        del self._exchanges[number]
                self._changed.wait(wait_s)
            return None

    def _cut(self, number: int, rows: int, specs: tuple[ColumnSpec, ...]) -> Columns:
        """Take files in until there are rows for a batch, and cut it; nothing if more have to come first."""
        with self._changed:
            exchange = self._exchanges.get(number)
        if exchange is None:
            return {}
        while exchange.count < rows and exchange.files:
            self._take_file(number, exchange, specs)
        if exchange.count < rows and not exchange.ended:
            return {}
        parts, missing = [], rows
        while missing and exchange.rows:
            part = exchange.rows.popleft()
            have = count_rows(part)
            if have > missing:
                exchange.rows.appendleft(slice_rows(part, missing, have))
                part, have = slice_rows(part, 0, missing), missing
            parts.append(part)
            missing -= have
        exchange.count -= rows - missing
        return join_rows(parts) if parts else {}

    def _take_file(self, number: int, exchange: _Exchange, specs: tuple[ColumnSpec, ...]) -> None:
        file = exchange.files.popleft()
        for part in read_in_order(file.path, specs):
            exchange.rows.append(part)
            exchange.count += count_rows(part)
        Path(file.path).unlink(missing_ok=True)
        self._say(m.ExchangeTaken(seat=self._seat, exchange=number))

    def put(self, values: Any) -> None:
        """Give results for the oldest batch that has none; see `NodeContext.put_results`."""
        columns = _as_columns(values)
        given = count_rows(columns)
        with self._changed:
            if not self._unanswered:
                raise FeedError(
                    reason="put_results was called more often than ctx.dataset gave batches of an inference"
                )
            number, count, batch_size = self._unanswered[0]
            if given not in (count, batch_size):
                raise FeedError(
                    reason=f"put_results got {given} results for a batch of {count} rows (of {batch_size} with those "
                    "that fill it up); put one result per row, once per batch"
                )
            self._unanswered.popleft()
            dropped = number in self._dropped
        if not dropped:
            data = _encode(to_arrow(slice_rows(columns, 0, count)))
            self._say(m.ExchangeResults(seat=self._seat, exchange=number, rows=count, data=data))


def _as_columns(values: Any) -> Columns:
    if isinstance(values, Mapping):
        return {str(name): _as_array(name, column) for name, column in values.items()}
    return {RESULT_COLUMN: _as_array(RESULT_COLUMN, values)}


def _as_array(name: Any, values: Any) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim == 0:
        raise FeedError(reason=f"put_results needs one result per row, but '{name}' is a single value: {values!r:.80}")
    return array


def _encode(batch: pa.RecordBatch) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue()
