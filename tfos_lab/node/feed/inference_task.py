"""Runs inside Spark tasks: sends a partition's rows to a node, and yields them with their results, in order."""

from __future__ import annotations

import queue
import threading
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from tfos_lab.core.crossing import own_error_in
from tfos_lab.core.messages import INPUT_QUEUE, TlsIdentity
from tfos_lab.errors import FeedError, NodeUnreachable
from tfos_lab.node.feed.exchanges import note_of, write_rows
from tfos_lab.node.feed.python_rows import decode, encoded
from tfos_lab.node.feed.spool import not_written
from tfos_lab.node.feed.wire import Inference, Wire, connect, is_here, socket_of

# How many batches may wait for the node's function.
_AHEAD = 2
_WAIT_STEP_S = 1.0


class InferencePlan(msgspec.Struct, frozen=True):
    """Where the rows go, and what comes back.

    ``asked`` are the positions of the columns that go to the nodes, and ``names`` their names; the first ``kept``
    columns are returned beside the results. ``results`` is the Arrow schema of the results, or empty while that is
    being found out. ``inference`` counts the calls of `Cluster.inference`; -1 for the row that finds it out.
    ``objects``, ``queue`` and ``timeout_s`` as in `Inference`.
    """

    schema: str = ""
    asked: list[int] = []
    names: list[str] = []
    kept: int = 0
    results: bytes = b""
    objects: bool = False
    queue: str = INPUT_QUEUE
    timeout_s: float = 600.0
    inference: int = -1
    cluster: str = ""
    token: str = ""
    locations: dict[int, list[str]] = {}
    tls: TlsIdentity | None = None


def inference_task(batches: Iterator[pa.RecordBatch], encoded_plan: bytes) -> Iterator[pa.RecordBatch]:
    """The body of an inference task; yields record batches of the kept columns and the results."""
    plan = msgspec.msgpack.decode(encoded_plan, type=InferencePlan)
    wanted = pa.ipc.read_schema(pa.py_buffer(plan.results))
    for rows, results in _TaskExchange(plan, _partition()).run(batches):
        columns = [*rows.columns[: plan.kept], *_as_wanted(results, wanted)]
        yield pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(len(columns))])


def object_task(rows: Iterable[Any], encoded_plan: bytes) -> Iterator[Any]:
    """The body of a task that has Python objects answered; yields the results, in the order of the rows."""
    plan = msgspec.msgpack.decode(encoded_plan, type=InferencePlan)
    for _, results in _TaskExchange(plan, _partition()).run(encoded(rows)):
        yield from decode(results, what="a result", where="in Spark's Python worker")


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.partitionId() if context else 0


def probe_task(batches: Iterator[pa.RecordBatch], encoded_plan: bytes) -> Iterator[pa.RecordBatch]:
    """The body of the task that finds out the type of the results; yields their encoded schema."""
    plan = msgspec.msgpack.decode(encoded_plan, type=InferencePlan)
    for _, results in _TaskExchange(plan, 0).run(batches):
        yield pa.RecordBatch.from_pydict({"results": [results.schema.serialize().to_pybytes()]})


class _TaskExchange:
    """One partition's exchange with one node."""

    def __init__(self, plan: InferencePlan, partition: int) -> None:
        self._plan = plan
        self._partition = partition
        self._spool: Path | None = None
        self._ahead = threading.Semaphore(_AHEAD)
        self._over = False
        self._answers: queue.SimpleQueue[pa.RecordBatch | Exception | None] = queue.SimpleQueue()
        self._held: deque[pa.RecordBatch] = deque()
        self._results: list[pa.RecordBatch] = []
        self._count = 0
        self._rows_error: Exception | None = None

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Yield each batch of rows with its results, in order; send further rows meanwhile."""
        batches = self._watched(batches)
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        wire = self._begin()
        thread = threading.Thread(target=self._receive, args=(wire,), name="tfos-answers", daemon=True)
        thread.start()
        try:
            self._send(wire, first)
            for batch in batches:
                if batch.num_rows:
                    self._send(wire, batch)
                yield from self._ready(wait=False)
            wire.end()
            yield from self._ready(wait=True)
        except Exception as error:
            if error is self._rows_error:
                raise
            raise self._explained(error) from error
        finally:
            # As after `rdd.take(3)`: nobody may want the rest, and both ends would wait for each other.
            wire.hang_up()
            thread.join()
            wire.close()

    def _watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass rows on, and remember the error if computing them fails: it is not one of the nodes."""
        try:
            yield from batches
        except Exception as error:
            self._rows_error = error
            raise

    def _begin(self) -> Wire:
        """Ask one of the nodes on this host, or any node where there is none."""
        plan = self._plan
        everywhere = [plan.locations[rank] for rank in sorted(plan.locations)]
        nodes = [locations for locations in everywhere if is_here(locations[0])] or everywhere
        try:
            connection = connect(nodes[self._partition % len(nodes)], plan.token, plan.tls)
            connection.ask(Inference(plan.schema, plan.inference, plan.objects, plan.queue, plan.timeout_s))
        except Exception as error:
            raise self._explained(error) from error
        self._spool = connection.spool
        return connection.wire

    def _send(self, wire: Wire, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        asked = pa.RecordBatch.from_arrays([batch.column(i) for i in self._plan.asked], names=self._plan.names)
        while not self._ahead.acquire(timeout=_WAIT_STEP_S) and not self._over:
            pass
        if self._over:
            return  # `_ready` raises the reason
        if self._spool is None:
            wire.send_batch(asked)
            return
        path = self._spool / f"exchange-{uuid.uuid4().hex}.arrow"
        try:
            write_rows(path, asked)
        except OSError as error:
            raise not_written(self._spool, error) from error
        wire.send(path.name.encode())

    def _receive(self, wire: Wire) -> None:
        try:
            while (answer := wire.receive()) is not None:
                if isinstance(answer, bytes):
                    self._ahead.release()  # the node's function has taken a file
                else:
                    self._answers.put(answer)
            self._answers.put(None)
        except Exception as error:  # noqa: BLE001 - the thread that waits for answers raises it
            self._answers.put(error)
        finally:
            self._over = True
            self._ahead.release()

    def _ready(self, *, wait: bool) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Yield the batches whose results are all there; wait for all of them, or for none."""
        while self._held:
            while self._count >= self._held[0].num_rows:
                batch = self._held.popleft()
                yield batch, self._take(batch.num_rows)
                if not self._held:
                    return
            try:
                answer = self._answers.get(block=wait)
            except queue.Empty:
                return
            if isinstance(answer, Exception):
                raise answer
            if answer is None:
                raise FeedError(reason="the node ended the exchange before it gave all results")
            self._results.append(answer)
            self._count += answer.num_rows

    def _take(self, rows: int) -> pa.RecordBatch:
        """Cut off the first ``rows`` results."""
        table = pa.Table.from_batches(self._results)
        self._results = table.slice(rows).to_batches()
        self._count -= rows
        return table.slice(0, rows).combine_chunks().to_batches()[0]

    def _explained(self, error: Exception) -> Exception:
        """Return the error to raise: users of a lazy DataFrame cannot know that the nodes have ended."""
        own = own_error_in(error)
        if own is not None and not isinstance(own, NodeUnreachable):
            return own
        sockets = (socket_of(locations[0]) for locations in self._plan.locations.values())
        if words := next(filter(None, (note_of(socket.parent) for socket in sockets)), None):
            return FeedError(reason=words)
        return FeedError(
            reason=f"no node of cluster '{self._plan.cluster}' answers: results of cluster.inference(...) are computed "
            f"when they are used (collect, write), and the cluster has to live until then; if it has failed, "
            f"cluster.wait() says why ({type(error).__name__})"
        )


def _as_wanted(results: pa.RecordBatch, wanted: pa.Schema) -> list[pa.Array]:
    """Return the results' columns in the order and of the types that the DataFrame promises."""
    missing = [name for name in wanted.names if name not in results.schema.names]
    if missing:
        has = ", ".join(results.schema.names)
        raise FeedError(reason=f"put_results gave no '{missing[0]}' for some rows, only {has}")
    columns = []
    for field in wanted:
        column = results.column(field.name)
        try:
            columns.append(column.cast(field.type))
        except Exception as error:
            raise FeedError(
                reason=f"put_results gave {column.type} in '{field.name}', which does not become {field.type}: {error}"
            ) from error
    return columns
