"""Inference in the agent: passes rows from Spark tasks to the child, and its results back, in order.

Each task has its own exchange. Rows are kept in files until the child takes them; a task on this host writes the files
itself. The task is notified of each file that was taken, and stays only a few files ahead, so memory use is bounded,
however large a partition is.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyarrow import flight

from tfos_lab import messages as m
from tfos_lab.data.batches import measure
from tfos_lab.data.schema import ColumnSpec
from tfos_lab.errors import FeedError
from tfos_lab.node import failure_note

# Sent to a task when the child has taken a file.
TAKEN = b"taken"
_WAIT_STEP_S = 1.0
# How often the driver is sent the number of rows answered.
_REPORT_S = 0.25


class Exchange:
    """One task's rows and results, shared by its Flight thread and the agent's loop."""

    def __init__(self, number: int, inference: int) -> None:
        self.number = number
        self.inference = inference
        self.messages: queue.SimpleQueue[m.ExchangeResults | m.ExchangeTaken | None] = queue.SimpleQueue()
        self.rows_in = 0
        self.all_in = False
        self.error: BaseException | None = None


class Exchanges:
    """All exchanges of a node. Flight's threads call `serve`; the agent's loop calls the rest.

    Parameters
    ----------
    spool : pathlib.Path
        Folder for the files of rows.
    post : callable
        Has the agent's loop call a function.
    send_to_child, send : callable
        Send a message to the child, and to the driver; for the agent's loop only.
    rank : int
        The node's.
    """

    def __init__(
        self,
        spool: Path,
        post: Callable[[Callable[[], None]], None],
        send_to_child: Callable[[m.ToAgent], None],
        send: Callable[[m.FromAgent], None],
        rank: int,
    ) -> None:
        self._spool = spool
        self._post = post
        self._send_to_child = send_to_child
        self._send = send
        self._rank = rank
        self._numbers = itertools.count()
        self._open: dict[int, Exchange] = {}
        self._closed = False
        self._failure: FeedError | None = None

    # ---- Flight's threads -------------------------------------------------------------------------------------------

    def serve(
        self,
        inference: int,
        specs: tuple[ColumnSpec, ...],
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        """Receive a task's rows until it has no more, and send the results of all of them."""
        exchange = Exchange(next(self._numbers), inference)
        self._post(lambda: self._begin(exchange))
        feeder = threading.Thread(
            target=self._receive_rows, args=(exchange, specs, reader), name="tfos-exchange", daemon=True
        )
        feeder.start()
        try:
            self._answer(exchange, writer)
        finally:
            exchange.all_in = True
            self._post(lambda: self._drop(exchange))

    def _receive_rows(
        self, exchange: Exchange, specs: tuple[ColumnSpec, ...], reader: flight.MetadataRecordBatchReader
    ) -> None:
        try:
            for index, chunk in enumerate(reader):
                if chunk.data is None:
                    path = self._spool / Path(chunk.app_metadata.to_pybytes().decode()).name
                    rows = _read(path)
                else:
                    path = self._spool / f"exchange-{exchange.number}-{index}.arrow"
                    rows = chunk.data
                    write_rows(path, rows)
                specs = measure(rows, specs)
                shapes = {spec.name: [size or 0 for size in spec.shape] for spec in specs}
                exchange.rows_in += rows.num_rows
                self._post_to_child(
                    m.ExchangeRows(exchange=exchange.number, path=str(path), rows=rows.num_rows, shapes=shapes)
                )
        except BaseException as error:  # noqa: BLE001 - the thread that answers raises it
            exchange.error = error
            exchange.messages.put(None)
            return
        exchange.all_in = True
        self._post_to_child(m.ExchangeEnded(exchange=exchange.number))
        exchange.messages.put(None)

    def _post_to_child(self, message: m.ToAgent) -> None:
        self._post(lambda: self._send_to_child(message))

    def _answer(self, exchange: Exchange, writer: flight.MetadataRecordBatchWriter) -> None:
        answered, schema = 0, None
        reported, reported_s = 0, time.monotonic()
        self._report(exchange, 0)
        while not (exchange.all_in and answered == exchange.rows_in):
            try:
                message = exchange.messages.get(timeout=_WAIT_STEP_S)
            except queue.Empty:
                if self._closed:
                    raise FeedError(reason="the node has ended before it gave all results") from None
                continue
            if exchange.error is not None:
                raise exchange.error
            if message is None:
                continue
            if isinstance(message, m.ExchangeTaken):
                writer.write_metadata(TAKEN)
                continue
            answered += message.rows
            for batch in pa.ipc.open_stream(message.data):
                if schema is None:
                    schema = batch.schema
                    writer.begin(schema)
                _require_same(schema, batch.schema)
                writer.write_batch(batch)
            if time.monotonic() - reported_s > _REPORT_S:
                self._report(exchange, answered - reported)
                reported, reported_s = answered, time.monotonic()
        self._report(exchange, answered - reported, last=True)

    def _report(self, exchange: Exchange, rows: int, *, last: bool = False) -> None:
        if exchange.inference >= 0:
            message = m.RowsAnswered(rank=self._rank, inference=exchange.inference, rows=rows, last=last)
            self._post(lambda: self._send(message))

    # ---- the agent's loop -------------------------------------------------------------------------------------------

    def on_child_message(self, message: m.ExchangeTaken | m.ExchangeResults) -> None:
        """Pass a message of the child on to its exchange."""
        exchange = self._open.get(message.exchange)
        if exchange is not None:
            exchange.messages.put(message)

    def _begin(self, exchange: Exchange) -> None:
        self._open[exchange.number] = exchange
        if self._failure is not None:
            self._end(exchange, self._failure)

    def _end(self, exchange: Exchange, error: FeedError) -> None:
        exchange.error = exchange.error or error
        exchange.messages.put(None)

    def _drop(self, exchange: Exchange) -> None:
        self._open.pop(exchange.number, None)
        self._send_to_child(m.ExchangeDropped(exchange=exchange.number))

    def fail(self, reason: str) -> None:
        """End every exchange with this reason, and those to come; only the first reason counts."""
        if self._failure is None:
            self._failure = FeedError(reason=failure_note.sentence(reason))
            for exchange in self._open.values():
                self._end(exchange, self._failure)

    def close(self) -> None:
        """End every exchange with an error."""
        self._closed = True


def _require_same(first: pa.Schema, then: pa.Schema) -> None:
    if first != then:
        was, now = (", ".join(f"{field.name}: {field.type}" for field in schema) for schema in (first, then))
        raise FeedError(
            reason=f"put_results gave ({was}) for the first rows and ({now}) for later ones: give the same columns, of "
            "the same types, for all rows"
        )


def write_rows(path: Path, rows: pa.RecordBatch) -> None:
    """Write a file of rows."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as file:
        file.write_batch(rows)


def _read(path: Path) -> pa.RecordBatch:
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).get_batch(0)
