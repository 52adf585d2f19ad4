"""Rows to infer, in the process of the user's function: a queue's exchanges, and what answers them in batches.

`Answers` makes the batches of a dataset, and returns their results; `tfos_lab.node.feed.row_answers` has rows as Python
values. A batch holds rows of one Spark task only, so that a task's results never wait for another task's rows. Several
batches are handed out at once, and their results are returned together unless they take long. Results are matched to
rows by order: the first results that are put belong to the first rows that were taken.
"""

from __future__ import annotations

import io
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tfos_lab.core import messages as m
from tfos_lab.data.batches import to_arrow, to_numpy
from tfos_lab.data.rows import Array, Batch, count_rows, join_rows, slice_rows
from tfos_lab.data.schema import ColumnSpec
from tfos_lab.errors import FeedError
from tfos_lab.node.feed.segments import open_segment
from tfos_lab.texts import format_count

# Results are held back no longer than this.
_SEND_S = 0.25


@dataclass
class PendingExchange:
    """Rows of one task that were not handed out yet: in files, and those that a dataset has read but not taken."""

    objects: bool = False
    files: deque[m.ExchangeRows] = field(default_factory=deque)
    rows: deque[Batch] = field(default_factory=deque)
    count: int = 0
    ended: bool = False

    def take(self, count: int) -> Batch:
        """Take the first ``count`` rows of those that have been read."""
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


class ExchangePool:
    """The exchanges of one queue; ``changed`` guards them, and is notified after each message.

    ``exchanges`` has those that have rows, or may get more, by number: the one to be served next comes first.
    ``schema`` is Spark's, in JSON, of rows that are no Python objects.
    """

    def __init__(self, send: Callable[[m.FromAgent], None], changed: threading.Condition) -> None:
        self._send = send
        self.changed = changed
        self.exchanges: dict[int, PendingExchange] = {}
        self.schema = ""
        self._dropped: set[int] = set()
        self._sending = threading.Lock()
        self._held: list[tuple[int, pa.RecordBatch]] = []
        self._sent_s = 0.0

    def handle(self, message: m.ToAgent) -> None:
        """Apply a message; call it with the condition held."""
        match message:
            case m.InferenceOpen(objects=False, schema=schema):
                self.schema = schema
            case m.ExchangeRows(exchange=number, path=path) if number in self._dropped:
                Path(path).unlink(missing_ok=True)  # it was on its way
            case m.ExchangeRows(exchange=number, objects=objects):
                self.exchanges.setdefault(number, PendingExchange(objects)).files.append(message)
            case m.ExchangeEnded(exchange=number) if number in self.exchanges:
                self.exchanges[number].ended = True
            case m.ExchangeDropped(exchange=number):
                self._drop(number)

    def drop_all(self) -> None:
        """Drop all rows: nobody will take them."""
        with self.changed:
            for number in list(self.exchanges):
                self._drop(number)

    def _drop(self, number: int) -> None:
        self._dropped.add(number)
        files = self.exchanges.pop(number, PendingExchange()).files
        while files:
            Path(files.popleft().path).unlink(missing_ok=True)

    def move_to_end(self, number: int) -> None:
        """Let the other exchanges be served first, so that tasks share the node evenly."""
        self.exchanges[number] = self.exchanges.pop(number)

    def read_file(self, number: int, exchange: PendingExchange) -> list[pa.RecordBatch]:
        """Read the next file of an exchange, and remove it; nothing if the exchange was dropped meanwhile."""
        with self.changed:
            if not exchange.files:
                return []
            file = exchange.files.popleft()
        batches = open_segment(file.path)
        Path(file.path).unlink(missing_ok=True)
        self._send(m.ExchangeTaken(exchange=number))
        return batches

    # ---- results ----------------------------------------------------------------------------------------------------

    def hold(self, number: int, results: pa.RecordBatch) -> None:
        """Take results of an exchange; they are held back for a moment, so that many go at once."""
        with self._sending:
            self._held.append((number, results))

    @property
    def held_rows(self) -> int:
        """How many results are held back."""
        return sum(results.num_rows for _, results in self._held)

    @property
    def is_due(self) -> bool:
        """Whether results have been held back for long enough."""
        return time.monotonic() - self._sent_s > _SEND_S

    def flush(self) -> None:
        """Send the results that are held back: those of one exchange and of the same columns together."""
        with self._sending:
            held, self._held = self._held, []
            self._sent_s = time.monotonic()
            for (number, schema), run in itertools.groupby(held, lambda one: (one[0], one[1].schema)):
                with self.changed:
                    if number in self._dropped:
                        continue
                results = pa.Table.from_batches([results for _, results in run], schema)
                sink = io.BytesIO()
                with pa.ipc.new_stream(sink, schema) as stream:
                    stream.write_table(results.combine_chunks())
                self._send(m.ExchangeResults(exchange=number, rows=results.num_rows, data=sink.getvalue()))


# ---- batches of a dataset, and their results -------------------------------------------------------------------------

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
            for batch in self._pool.read_file(number, exchange):
                exchange.rows.append(to_numpy(batch, specs))
                exchange.count += batch.num_rows
        if exchange.count < batch_size:
            return exchange.take(exchange.count) if exchange.ended else {}
        return exchange.take(min(exchange.count, most) // batch_size * batch_size)

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


# ---- results as columns whose types Spark has ------------------------------------------------------------------------

# The column of results that were put without a name.
RESULT_COLUMN = "prediction"


def result_columns(values: Any) -> Batch:
    """Return results as columns: a dict as it is, and anything else as the one column `RESULT_COLUMN`."""
    if isinstance(values, Mapping):
        return {str(name): as_array(name, column) for name, column in values.items()}
    return {RESULT_COLUMN: as_array(RESULT_COLUMN, values)}


# Types that Spark lacks, and the next wider type that it has; mixed precision yields bfloat16 and float16.
_WIDER = {"bfloat16": "float32", "float16": "float32", "uint8": "int16", "uint16": "int32", "uint32": "int64"}


def as_array(name: Any, values: Any) -> Array:
    """Return a column as an array of a type that Spark has; a FeedError if that would lose types or values."""
    listed = values.tolist() if isinstance(values, np.ndarray) and values.dtype == object else values
    if isinstance(listed, list | tuple) and len(_kinds_in(listed)) > 1:
        row = next((value for value in listed if isinstance(value, list | tuple) and len(_kinds_in(value)) > 1), listed)
        raise FeedError(
            reason=f"put_results: '{name}' mixes {' and '.join(sorted(_kinds_in(row)))} ({row!r:.60}), and a column of "
            "Spark holds values of one type; give each type a column of its own, as in ctx.put_results({'label': "
            "['a', 'b'], 'score': [0.1, 0.9]})"
        )
    array = np.asarray(values)
    if array.ndim == 0:
        raise FeedError(reason=f"put_results needs one result per row, but '{name}' is a single value: {values!r:.80}")
    if array.dtype == np.uint64:
        if array.size and array.max() > np.iinfo(np.int64).max:
            raise FeedError(reason=f"put_results: '{name}' has {array.max()}, which no integer of Spark holds")
        return array.astype(np.int64)
    return array.astype(_WIDER.get(array.dtype.name, array.dtype), copy=False)


# NumPy silently converts values of two of these kinds to one kind.
_KINDS: dict[str, tuple[type, ...]] = {
    "true and false": (bool, np.bool_),
    "text": (str,),
    "bytes": (bytes, bytearray),
    "numbers": (int, float, np.number),
}


def _kinds_in(values: list[Any] | tuple[Any, ...]) -> set[str]:
    """Return which of the kinds a list holds, including the lists and tuples within it."""
    found = set(map(type, values))
    kinds = {next((kind for kind, types in _KINDS.items() if issubclass(one, types)), "") for one in found} - {""}
    if any(issubclass(one, list | tuple) for one in found):
        kinds = kinds.union(*(_kinds_in(value) for value in values if isinstance(value, list | tuple)))
    return kinds
