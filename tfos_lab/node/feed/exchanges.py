"""Inference in the agent: passes rows from Spark tasks to the child, and its results back, in order.

Each task has its own exchange. Rows are kept in files until the child takes them; a task on this host writes the files
itself. The task is notified of each file that was taken, and stays only a few files ahead, so memory use is bounded,
however large a partition is.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from tfos_lab.core import messages as m
from tfos_lab.core.messages import INPUT_QUEUE
from tfos_lab.core.runtime_files import kept_for_a_day
from tfos_lab.data.batches import measure
from tfos_lab.data.schema import ColumnSpec
from tfos_lab.errors import FeedError, FeedTimeout, NodeUnreachable
from tfos_lab.node.feed.endpoint import explained
from tfos_lab.node.feed.segments import open_segment
from tfos_lab.node.feed.wire import LET_GO_S, Inference, Wire

# Sent to a task when the child has taken a file.
TAKEN = b"taken"
_WAIT_STEP_S = 1.0
# How often the driver is sent the number of rows answered.
_REPORT_S = 0.25
_STOPPED = (
    "the node's function wants no more rows: it has called terminate() or ctx.stop_feed() before all rows of this "
    "inference had their results"
)
_RETURNED = (
    "the node's function has returned before it gave all results: have it loop until should_stop() (or over its "
    "dataset) to the end, and give one result per row"
)


class Exchange:
    """One task's rows and results, shared by the thread that serves it and the agent's loop."""

    def __init__(self, number: int, request: Inference) -> None:
        self.number = number
        self.request = request
        self.messages: queue.SimpleQueue[m.ExchangeResults | m.ExchangeTaken | FeedError | None]
        self.messages = queue.SimpleQueue()
        self.rows_in = 0
        self.answered = 0
        self.all_in = False
        self.has_failed = False
        self.error: BaseException | None = None
        self.no_reader: FeedError | None = None
        self.moved_s = time.monotonic()

    @property
    def is_done(self) -> bool:
        """Whether all rows have come, and all have results."""
        return self.all_in and self.answered == self.rows_in

    def check(self) -> None:
        """Raise if rows wait for results, and none will come, or none has for too long."""
        if self.error is not None:
            raise self.error
        if self.rows_in == self.answered:
            self.moved_s = time.monotonic()  # Spark is slow, not the node
        elif self.no_reader is not None:
            raise self.no_reader
        elif time.monotonic() - self.moved_s > self.request.timeout_s:
            request, how = self.request, "calls ctx.put_results for every batch of ctx.dataset"
            of_queue = "" if request.queue == INPUT_QUEUE else f" of queue '{request.queue}'"
            if request.objects:
                how = f"reads ctx.data_feed({of_queue and f'queue={request.queue!r}'}) and calls its batch_results"
            raise FeedTimeout(
                reason=f"{self.rows_in - self.answered} rows{of_queue} wait for their results, and none has come for "
                f"{request.timeout_s:g} s: see whether the node's function {how}, or raise timeout of cluster.inference"
            )


class Exchanges:
    """All exchanges of a node. Tasks' threads call `serve`; the agent's loop calls the rest."""

    def __init__(
        self,
        spool: Path,
        post: Callable[[Callable[[], None]], None],
        send_to_child: Callable[[m.ToAgent], None],
        send: Callable[[m.FromAgent], None],
    ) -> None:
        self._spool = spool
        self._post = post
        self._send_to_child = send_to_child
        self._send = send
        self._numbers = itertools.count()
        self._open: dict[int, Exchange] = {}
        self._closed = False
        self._failure: FeedError | None = None
        self._no_reader: FeedError | None = None
        self._feeds_ended = False

    # ---- tasks' threads ---------------------------------------------------------------------------------------------

    def serve(self, request: Inference, specs: tuple[ColumnSpec, ...], wire: Wire) -> None:
        """Receive a task's rows until it has no more, and send the results of all of them; or why there are none."""
        exchange = Exchange(next(self._numbers), request)
        self._post(lambda: self._begin(exchange))
        feeder = threading.Thread(
            target=self._receive_rows, args=(exchange, specs, wire), name="tfos-exchange", daemon=True
        )
        feeder.start()
        try:
            self._answer(exchange, wire)
            wire.end()
        except Exception as error:  # noqa: BLE001 - the task raises it
            exchange.has_failed = True
            wire.fail(explained(error, self._spool))
            feeder.join(LET_GO_S)
            wire.hang_up()
        finally:
            feeder.join()
            self._post(lambda: self._drop(exchange))

    def _receive_rows(self, exchange: Exchange, specs: tuple[ColumnSpec, ...], wire: Wire) -> None:
        try:
            for index in itertools.count():
                if (sent := wire.receive()) is None:
                    break
                if exchange.has_failed:
                    continue  # until the task lets go of it
                if isinstance(sent, bytes):
                    path = self._spool / Path(sent.decode()).name
                    (rows,) = open_segment(str(path))
                else:
                    path = self._spool / f"exchange-{exchange.number}-{index}.arrow"
                    rows = sent
                    write_rows(path, rows)
                specs = measure(rows, specs)
                exchange.rows_in += rows.num_rows
                self._post_to_child(_rows_message(exchange, path, rows.num_rows, specs))
        except BaseException as error:  # noqa: BLE001 - the thread that answers raises it
            exchange.error = exchange.error or error
            exchange.messages.put(None)
            return
        exchange.all_in = True
        self._post_to_child(m.ExchangeEnded(exchange=exchange.number))
        exchange.messages.put(None)

    def _post_to_child(self, message: m.ToAgent) -> None:
        self._post(lambda: self._send_to_child(message))

    def _answer(self, exchange: Exchange, wire: Wire) -> None:
        schema = None
        reported, reported_s = 0, time.monotonic()
        self._report(exchange, 0)
        while not exchange.is_done:
            message = self._next_message(exchange)
            if isinstance(message, m.ExchangeTaken):
                wire.send(TAKEN)
            if not isinstance(message, m.ExchangeResults):
                continue
            exchange.answered += message.rows
            for batch in pa.ipc.open_stream(message.data):
                if schema is None:
                    schema = batch.schema
                _require_same(schema, batch.schema)
                wire.send_batch(batch)
            if time.monotonic() - reported_s > _REPORT_S:
                self._report(exchange, exchange.answered - reported)
                reported, reported_s = exchange.answered, time.monotonic()
        self._report(exchange, exchange.answered - reported, last=True)

    def _next_message(self, exchange: Exchange) -> m.ExchangeResults | m.ExchangeTaken | None:
        """Wait a moment for the child's next message; raise what has ended the exchange."""
        try:
            message = exchange.messages.get(timeout=min(_WAIT_STEP_S, exchange.request.timeout_s))
        except queue.Empty:
            if self._closed:
                raise self._failure or _has_gone() from None
            exchange.check()
            return None
        if isinstance(message, FeedError):
            # It comes after all results that the node has given.
            exchange.no_reader, message = message, None
        else:
            exchange.moved_s = time.monotonic()
        exchange.check()
        return message

    def _report(self, exchange: Exchange, rows: int, *, last: bool = False) -> None:
        inference = exchange.request.inference
        if inference >= 0:
            message = m.RowsAnswered(inference=inference, rows=rows, last=last)
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
        elif self._no_reader is not None and self._feeds_ended:
            self._end(exchange, _has_gone())
        elif self._no_reader is not None:
            exchange.messages.put(self._no_reader)

    def _end(self, exchange: Exchange, error: FeedError) -> None:
        exchange.error = exchange.error or error
        exchange.messages.put(None)

    def _drop(self, exchange: Exchange) -> None:
        self._open.pop(exchange.number, None)
        self._send_to_child(m.ExchangeDropped(exchange=exchange.number))

    def fail(self, reason: str) -> None:
        """End every exchange with this reason, and those to come; only the first reason counts."""
        if self._failure is None:
            text = f"the cluster has failed: {reason} (cluster.wait() raises it with its traceback)"
            _leave_note(self._spool.parent, text)
            self._failure = FeedError(reason=text)
            for exchange in self._open.values():
                self._end(exchange, self._failure)

    def stop(self) -> None:
        """End every exchange, and those to come: the node's function takes no more of the rows that it has begun."""
        if self._open:
            self._leave(_STOPPED)

    def child_returned(self) -> None:
        """End every exchange, and those to come, after the results that have been given: the function has returned."""
        self._leave(_RETURNED)

    def end_feeds(self) -> None:
        """Take note that the cluster's user has come to an end, too: who asks a node that has returned is late."""
        self._feeds_ended = True

    def _leave(self, reason: str) -> None:
        if self._no_reader is None:
            self._no_reader = FeedError(reason=reason)
            if self._open:
                _leave_note(self._spool.parent, reason)
            for exchange in self._open.values():
                exchange.messages.put(self._no_reader)

    def close(self) -> None:
        """End every exchange with an error."""
        self._closed = True


def _has_gone() -> NodeUnreachable:
    """Return the error that a task gets from a node that is ending."""
    return NodeUnreachable(reason="the node has ended before it gave all results")


def _rows_message(exchange: Exchange, path: Path, rows: int, specs: tuple[ColumnSpec, ...]) -> m.ExchangeRows:
    request = exchange.request
    shapes = {} if request.objects else {spec.name: [size or 0 for size in spec.shape] for spec in specs}
    return m.ExchangeRows(
        exchange=exchange.number,
        path=str(path),
        rows=rows,
        shapes=shapes,
        objects=request.objects,
        queue=request.queue,
    )


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


# ---- notes of why a node gives no more results, for tasks that come when it has ended --------------------------------

# Spark computes an inference when its results are used, and retries a failed task. The last try, whose error is the one
# that users see, finds no node any more. Notes stay for a day: for as long as Spark may still compute.
_NOTES = "failed"


def _leave_note(scratch: Path, reason: str) -> None:
    """Write a note, one sentence, on the node with this folder; the first one counts."""
    with contextlib.suppress(OSError):
        path = kept_for_a_day(scratch.parent, _NOTES) / scratch.name
        with path.open("x", encoding="utf-8") as file:
            file.write(reason)


def note_of(scratch: Path) -> str | None:
    """Return the note that the node with this folder has left, if any."""
    with contextlib.suppress(OSError):
        return (scratch.parent / _NOTES / scratch.name).read_text(encoding="utf-8")
    return None
