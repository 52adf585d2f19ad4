"""The rows to infer that wait in the process of the user's function: the exchanges of one queue.

Two readers take from a pool: `tfos_lab.node.feed.answers` for datasets, and `tfos_lab.node.feed.row_answers` for rows
as Python values.
"""

from __future__ import annotations

import io
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from tfos_lab.core import messages as m
from tfos_lab.data.rows import Batch, count_rows, join_rows, slice_rows
from tfos_lab.node.feed.segments import open_segment


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
    """The exchanges of one queue.

    Parameters
    ----------
    send : callable
        Sends a message to the agent.
    changed : threading.Condition
        Guards the exchanges; notified after each message.

    Attributes
    ----------
    exchanges : dict of int to PendingExchange
        Those that have rows, or may get more, by number: the one to be served next comes first.
    schema : str
        Spark's, in JSON, of rows that are no Python objects.
    """

    def __init__(self, send: Callable[[m.FromAgent], None], changed: threading.Condition) -> None:
        self._send = send
        self.changed = changed
        self.exchanges: dict[int, PendingExchange] = {}
        self.schema = ""
        self._dropped: set[int] = set()

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

    def send_results(self, number: int, results: list[pa.RecordBatch]) -> None:
        """Return results of the same columns."""
        with self.changed:
            if number in self._dropped:
                return
        table = pa.Table.from_batches(results).combine_chunks()
        data = _encode(table)
        self._send(m.ExchangeResults(exchange=number, rows=table.num_rows, data=data))


def _encode(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()
