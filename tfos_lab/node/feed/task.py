"""Runs inside Spark tasks: sends a partition's rows to the nodes, evenly, and asks for them to be committed.

Each Arrow batch is cut into as many even pieces as there are nodes, so that nodes in lock-step get rows at the same
pace, however uneven the partitions are; the piece that is larger by a row goes round.
"""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Any, Self

import msgspec

from tfos_lab.data.batches import measure
from tfos_lab.data.schema import column_specs
from tfos_lab.errors import FeedError
from tfos_lab.node.feed.flight_endpoint import CommitTicket, PutTicket
from tfos_lab.node.feed.lane import Lane
from tfos_lab.node.feed.plan import FeedPlan, connect, words_of_node


def feed_task(batches: Any, encoded_plan: bytes) -> Any:
    """The body of a feed task; yields one record: partition, attempt and rows."""
    import pyarrow as pa
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
    yield pa.RecordBatch.from_pydict({"partition": [partition], "attempt": [attempt], "rows": [sender.total_rows]})


class PartitionSender:
    """Sends one attempt of one partition to all nodes."""

    def __init__(self, plan: FeedPlan, partition: int, attempt: str) -> None:
        self._plan = plan
        self._partition = partition
        self._attempt = attempt
        self._seats = sorted(plan.locations)
        self._connections = {seat: connect(plan.locations[seat], plan.certificate) for seat in self._seats}
        self._lanes: dict[int, Lane] = {}
        self._rows = dict.fromkeys(self._seats, 0)
        self._size_bytes = 0
        self._specs = column_specs(plan.schema)
        self._turn = partition

    @property
    def total_rows(self) -> int:
        """Rows sent so far."""
        return sum(self._rows.values())

    def send(self, batch: Any) -> None:
        """Send a record batch, a piece to each node."""
        if not batch.num_rows:
            return
        self._specs = measure(batch, self._specs)
        if not self._lanes:
            ticket = PutTicket(self._plan.token, self._plan.feed, self._partition, self._attempt)
            for seat in self._seats:
                self._lanes[seat] = Lane(self._connections[seat], ticket, batch.schema)
        self._size_bytes += batch.nbytes
        count = len(self._seats)
        bounds = [batch.num_rows * i // count for i in range(count + 1)]
        for i in range(count):
            seat = self._seats[(i + self._turn) % count]
            piece = batch.slice(bounds[i], bounds[i + 1] - bounds[i])
            if piece.num_rows:
                self._lanes[seat].write(piece)
                self._rows[seat] += piece.num_rows
        self._turn += 1

    def commit(self) -> None:
        """Wait until all nodes have stored their rows, then ask the driver to let them count."""
        from pyarrow import flight

        while self._lanes:
            _, lane = self._lanes.popitem()
            lane.close()
        ticket = CommitTicket(
            token=self._plan.token,
            feed=self._plan.feed,
            partition=self._partition,
            attempt=self._attempt,
            rows=self._rows,
            size_bytes=self._size_bytes,
            shapes={spec.name: [size or 0 for size in spec.shape] for spec in self._specs} if self.total_rows else {},
        )
        connection = self._connections[self._seats[self._partition % len(self._seats)]]
        list(connection.client.do_action(flight.Action("commit", msgspec.msgpack.encode(ticket))))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        for lane in self._lanes.values():
            with contextlib.suppress(Exception):  # the first error is the one that counts
                lane.close()
        for connection in self._connections.values():
            connection.client.close()
        if error is not None and not isinstance(error, FeedError) and (reason := words_of_node(error)):
            raise FeedError(reason=reason) from error
