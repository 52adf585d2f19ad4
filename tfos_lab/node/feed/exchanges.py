"""The agent's part of an inference: carries rows from Spark tasks to the child, and its results back, in order.

Each task has an exchange of its own. Rows lie in files until the child takes them; a task on this host writes them
itself. It is told of each file that was taken and goes only a few ahead, so that memory holds a bounded part of a
partition, however large it is.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tfos_lab import messages as m
from tfos_lab.data.batches import measure
from tfos_lab.data.schema import ColumnSpec
from tfos_lab.errors import FeedError
from tfos_lab.node import failure_note

# What a task is told when the child has taken a file.
TAKEN = b"taken"
_WAIT_STEP_S = 1.0
# The driver hears so often how many rows were answered.
_TELL_S = 0.25


class Exchange:
    """One task's conversation, as its Flight thread and the agent's loop share it."""

    def __init__(self, number: int, inference: int) -> None:
        self.number = number
        self.inference = inference
        self.heard: queue.SimpleQueue[m.ExchangeResults | m.ExchangeTaken | None] = queue.SimpleQueue()
        self.rows_in = 0
        self.all_in = False
        self.error: BaseException | None = None


class Exchanges:
    """All exchanges of a node. Flight's threads call `serve`; the agent's loop calls the rest.

    Parameters
    ----------
    spool : pathlib.Path
        Folder for rows on their way.
    post : callable
        Has a function called by the agent's loop.
    send_to_child, send : callable
        For the agent's loop only; the latter says something to the driver.
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

    def serve(self, inference: int, specs: tuple[ColumnSpec, ...], reader: Any, writer: Any) -> None:
        """Take a task's rows until it has no more, and answer all of them."""
        exchange = Exchange(next(self._numbers), inference)
        self._post(lambda: self._begin(exchange))
        feeder = threading.Thread(
            target=self._take_rows, args=(exchange, specs, reader), name="tfos-exchange", daemon=True
        )
        feeder.start()
        try:
            self._answer(exchange, writer)
        finally:
            exchange.all_in = True
            self._post(lambda: self._drop(exchange))

    def _take_rows(self, exchange: Exchange, specs: tuple[ColumnSpec, ...], reader: Any) -> None:
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
                self._pass_on(
                    m.ExchangeRows(exchange=exchange.number, path=str(path), rows=rows.num_rows, shapes=shapes)
                )
        except BaseException as error:  # noqa: BLE001 - told by the thread that answers
            exchange.error = error
            exchange.heard.put(None)
            return
        exchange.all_in = True
        self._pass_on(m.ExchangeEnded(exchange=exchange.number))
        exchange.heard.put(None)

    def _pass_on(self, message: m.ToAgent) -> None:
        self._post(lambda: self._send_to_child(message))

    def _answer(self, exchange: Exchange, writer: Any) -> None:
        answered, schema = 0, None
        told, told_s = 0, time.monotonic()
        self._send_rows(exchange, 0)
        while not (exchange.all_in and answered == exchange.rows_in):
            try:
                message = exchange.heard.get(timeout=_WAIT_STEP_S)
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
            if time.monotonic() - told_s > _TELL_S:
                self._send_rows(exchange, answered - told)
                told, told_s = answered, time.monotonic()
        self._send_rows(exchange, answered - told, last=True)

    def _send_rows(self, exchange: Exchange, rows: int, *, last: bool = False) -> None:
        if exchange.inference >= 0:
            message = m.RowsAnswered(rank=self._rank, inference=exchange.inference, rows=rows, last=last)
            self._post(lambda: self._send(message))

    # ---- the agent's loop -------------------------------------------------------------------------------------------

    def on_child_message(self, message: m.ExchangeTaken | m.ExchangeResults) -> None:
        """Pass on what the child has done."""
        exchange = self._open.get(message.exchange)
        if exchange is not None:
            exchange.heard.put(message)

    def _begin(self, exchange: Exchange) -> None:
        self._open[exchange.number] = exchange
        if self._failure is not None:
            self._end(exchange, self._failure)

    def _end(self, exchange: Exchange, error: FeedError) -> None:
        exchange.error = exchange.error or error
        exchange.heard.put(None)

    def _drop(self, exchange: Exchange) -> None:
        self._open.pop(exchange.number, None)
        self._send_to_child(m.ExchangeDropped(exchange=exchange.number))

    def fail(self, reason: str) -> None:
        """Have every exchange end with this reason, those to come, too; the first one counts."""
        if self._failure is None:
            self._failure = FeedError(reason=failure_note.sentence(reason))
            for exchange in self._open.values():
                self._end(exchange, self._failure)

    def close(self) -> None:
        """Have every exchange end with an error."""
        self._closed = True


def _require_same(first: pa.Schema, then: pa.Schema) -> None:
    if first != then:
        was, now = (", ".join(f"{field.name}: {field.type}" for field in schema) for schema in (first, then))
        raise FeedError(
            reason=f"put_results gave ({was}) for the first rows and ({now}) for later ones: give the same columns, of "
            "the same types, for all rows"
        )


def write_rows(path: Path, rows: pa.RecordBatch) -> None:
    """Write a file of rows on their way."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as file:
        file.write_batch(rows)


def _read(path: Path) -> pa.RecordBatch:
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).get_batch(0)
