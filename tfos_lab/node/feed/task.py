"""Runs inside Spark tasks: sends a partition's rows to the nodes, evenly, and asks the driver to commit them.

Every node gets exactly as many rows as the others, so that nodes in lock-step read at the same rate and none lacks a
row at the end, however uneven the partitions are. The surplus of an Arrow batch is held back until there is a row for
each node again. The last rows, fewer than there are nodes, go to all nodes; the driver deals them out as it commits
them, so no row has to move between nodes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

import msgspec
import pyarrow as pa

from tfos_lab.core.messages import AttemptStored
from tfos_lab.data.batches import measure
from tfos_lab.data.schema import column_specs
from tfos_lab.node.feed.python_rows import encoded
from tfos_lab.node.feed.segment_writer import SegmentWriter
from tfos_lab.node.feed.spool import not_written
from tfos_lab.node.feed.wire import Attempt, Commit, Connection, FeedPlan, connect

# Rows are held back until each node gets this many at once: sending a small piece costs more than its rows.
_HELD_BACK = 64
# Or until they take this much, if there is one for each node.
_MOST_HELD_BYTES = 64 << 20
# How many batches may be on their way to a node of another host, which takes one after another into its memory.
_AHEAD = 16


def feed_task(batches: Iterable[pa.RecordBatch], encoded_plan: bytes) -> Iterator[pa.RecordBatch]:
    """The body of a feed task; yields one row: partition, attempt and number of rows."""
    partition, attempt, rows = _send(batches, encoded_plan)
    yield pa.RecordBatch.from_pydict({"partition": [partition], "attempt": [attempt], "rows": [rows]})


def object_task(rows: Iterable[Any], encoded_plan: bytes) -> Iterator[int]:
    """The body of a task that feeds an RDD's partition, as it is; yields the number of its rows."""
    yield _send(encoded(rows), encoded_plan)[2]


def _send(batches: Iterable[pa.RecordBatch], encoded_plan: bytes) -> tuple[int, str, int]:
    """Send a partition; return its number, the attempt, and the number of rows."""
    from pyspark import TaskContext

    plan = msgspec.msgpack.decode(encoded_plan, type=FeedPlan)
    context = TaskContext.get()
    assert context is not None
    partition = context.partitionId()
    attempt = f"{context.stageId()}.{context.attemptNumber()}.{context.taskAttemptId()}"
    with PartitionSender(plan, partition, attempt) as sender:
        for batch in batches:
            sender.send(batch)
        sender.commit()
    return partition, attempt, sender.total_rows


class PartitionSender:
    """Sends one attempt of one partition to all nodes."""

    def __init__(self, plan: FeedPlan, partition: int, attempt: str) -> None:
        self._plan = plan
        self._partition = partition
        self._attempt = attempt
        self._ranks = sorted(plan.locations)
        self._connections = {rank: connect(plan.locations[rank], plan.token, plan.tls) for rank in self._ranks}
        self._writers: dict[int, NodeWriter] = {}
        self._each = 0
        self._size_bytes = 0
        self._specs = column_specs(plan.schema)
        self._held: list[pa.RecordBatch] = []
        self._leftover = 0

    @property
    def total_rows(self) -> int:
        """Rows sent, each counted once; complete with `commit`."""
        return self._each * len(self._ranks) + self._leftover

    def send(self, batch: pa.RecordBatch) -> None:
        """Send a record batch, an equal piece to each node."""
        if not batch.num_rows:
            return
        self._specs = measure(batch, self._specs)
        if not self._writers:
            for place, rank in enumerate(self._ranks):
                attempt = Attempt(self._plan.feed, self._partition, self._attempt, place, len(self._ranks))
                self._writers[rank] = NodeWriter(self._connections[rank], attempt)
        self._size_bytes += batch.nbytes
        each, left = divmod(batch.num_rows, len(self._ranks))
        self._deal(batch, each)
        if left:
            # A copy: a slice would keep its whole batch in memory.
            rest = pa.array(range(batch.num_rows - left, batch.num_rows))
            self._held.append(batch.take(rest) if each else batch)
            count = sum(rows.num_rows for rows in self._held)
            is_large = sum(rows.nbytes for rows in self._held) >= _MOST_HELD_BYTES
            if count >= len(self._ranks) * (1 if is_large else _HELD_BACK):
                self._deal_held()

    def _deal(self, rows: pa.RecordBatch | pa.Table, each: int) -> None:
        """Send ``each`` of the first rows to each node."""
        if not each:
            return
        for index, rank in enumerate(self._ranks):
            for piece in _joined(rows.slice(index * each, each)):
                self._writers[rank].write(piece)
        self._each += each

    def _deal_held(self) -> None:
        """Send the rows that were held back, but for those that are too few to give each node one."""
        rows = pa.Table.from_batches(self._held)  # not joined: all together, large ones may be too many for Arrow
        each = rows.num_rows // len(self._ranks)
        self._deal(rows, each)
        self._held = _joined(rows.slice(each * len(self._ranks)))

    def commit(self) -> None:
        """Wait until all nodes have stored their rows, then ask the driver to commit them."""
        if self._held:
            self._deal_held()
            for rest in self._held:  # too few to give each node one: they go to all nodes
                for writer in self._writers.values():
                    writer.write(rest)
                self._leftover += rest.num_rows
        while self._writers:
            _, writer = self._writers.popitem()
            writer.close()
        stored = AttemptStored(
            feed=self._plan.feed,
            partition=self._partition,
            attempt=self._attempt,
            rows=self._each,
            size_bytes=self._size_bytes,
            leftover=self._leftover,
            shapes={spec.name: [size or 0 for size in spec.shape] for spec in self._specs} if self.total_rows else {},
        )
        connection = self._connections[self._ranks[self._partition % len(self._ranks)]]
        connection.ask(Commit(stored))
        connection.wire.receive()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        for writer in self._writers.values():
            with contextlib.suppress(Exception):  # only the first error counts
                writer.end_file()
        for connection in self._connections.values():
            connection.wire.close()


def _joined(rows: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
    """Return rows as one record batch, or as several if they are too large for one."""
    return [rows] if isinstance(rows, pa.RecordBatch) else rows.combine_chunks().to_batches()


class NodeWriter:
    """Takes the rows of one attempt for one node."""

    def __init__(self, connection: Connection, attempt: Attempt) -> None:
        self._wire = connection.wire
        self._folder = connection.spool
        self._segment: SegmentWriter | None = None
        self._unanswered = 0
        if self._folder is not None:
            with self._explaining():
                self._segment = SegmentWriter(attempt.path(self._folder))
        connection.ask(attempt)

    def write(self, rows: pa.RecordBatch) -> None:
        """Store a record batch; what is sent is stored while the next ones are made."""
        self._unanswered += 1
        if self._segment is None:
            self._wire.send_batch(rows)
            self._hear(_AHEAD)
            return
        self._wire.send(str(rows.nbytes).encode())
        self._hear(0)
        with self._explaining():
            self._segment.write(rows)

    def _hear(self, ahead: int) -> None:
        """Wait until the node has answered all but so many batches; its error is raised here."""
        while self._unanswered > ahead:
            self._wire.receive()
            self._unanswered -= 1

    def close(self) -> None:
        """Wait until the node has all rows."""
        self._hear(0)
        self.end_file()
        self._wire.end()
        self._wire.receive()

    def end_file(self) -> None:
        """End the file that the task writes itself."""
        if self._segment is not None:
            with self._explaining():
                self._segment.close()

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise not_written(self._folder, error) from error
