"""From a Spark task to the batches of all nodes, through the driver's rules: rows and steps are even."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.instructions import sends
from tfos_lab import messages as m
from tfos_lab.engine.state.feed_state import FeedState
from tfos_lab.node.feed import epoch as epoch_module
from tfos_lab.node.feed import reader as reader_module
from tfos_lab.node.feed import task
from tfos_lab.node.feed.plan import FeedPlan
from tfos_lab.node.feed.reader import FeedReader
from tfos_lab.node.feed.segment_writer import SegmentWriter

SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]})


class Nodes:
    """Readers, and the feed state between them and the tasks; rows go into files, messages are passed by hand."""

    def __init__(self, count, folder, patch):
        self.folder = folder
        self.feed_state = FeedState({rank: f"worker:{rank}" for rank in range(count)}, lock_step=True)
        self.readers = [FeedReader(rank, self.receive) for rank in range(count)]
        self.writers = []
        # Readers that wait yield at once.
        patch.setattr(reader_module, "IDLE_S", 0.0)
        patch.setattr(epoch_module, "IDLE_S", 0.0)
        patch.setattr(task, "connect", lambda *_: SimpleNamespace(client=self))
        patch.setattr(task, "NodeWriter", self.writer)

    def writer(self, connection, ticket, schema):
        return FileWriter(self, ticket.partition, schema)

    def receive(self, message):
        self.handle(self.feed_state.handle(message, 0.0))

    def handle(self, instructions):
        for rank, message in sends(instructions):
            self.send_to(rank, message)

    def send_to(self, rank, message):
        if isinstance(message, m.Commit):
            path = self.folder / f"{message.partition}-{rank}.arrow"
            message = m.SegmentReady(
                feed=message.feed,
                path=str(path) if message.rows + message.leftover else "",
                rows=message.rows,
                partition=message.partition,
                leftover=message.leftover,
                shapes=message.shapes,
            )
        self.readers[rank].handle(message)

    def open(self, epochs, remainder):
        feed_open = m.FeedOpen(feed=-1, epochs=epochs, remainder=remainder, schema=SCHEMA, token="")
        self.handle(self.feed_state.open(feed_open))

    def send(self, partition, batches):
        """Run a feed task."""
        self.writers = []
        plan = FeedPlan(0, "", {rank: [str(rank)] for rank in range(len(self.readers))}, SCHEMA, b"")
        sender = task.PartitionSender(plan, partition, "a")
        for numbers in batches:
            sender.send(pa.RecordBatch.from_pydict({"x": pa.array(numbers, pa.int64())}))
        sender.commit()
        return sender.total_rows

    def do_action(self, action):
        ticket = task.msgspec.msgpack.decode(action.body.to_pybytes(), type=task.CommitTicket)
        self.receive(task.msgspec.structs.replace(ticket.stored, rank=0))
        return []


class FileWriter:
    """One node's file of a partition; made in the order of the ranks."""

    def __init__(self, nodes, partition, schema):
        self._segment = SegmentWriter(nodes.folder / f"{partition}-{len(nodes.writers)}.arrow")
        nodes.writers.append(self)

    def write(self, rows):
        self._segment.write(rows)

    def close(self):
        self._segment.close()


def batches_of(reader, reading):
    """Return an epoch's batches as ``[(numbers of real rows, rows in all, factor), …]``."""
    batches = []
    for piece in reader.epoch(reading):
        if piece is None:
            continue
        numbers = piece.columns["x"].tolist()
        for start in range(0, len(numbers), reading.batch_size):
            part = numbers[start : start + reading.batch_size]
            factor = piece.factor if isinstance(piece.factor, float) else float(piece.factor[start])
            batches.append((part[: max(0, piece.rows - start)], len(part), factor))
    return batches


@settings(deadline=None)
@given(
    partitions=st.lists(st.lists(st.integers(0, 70), max_size=3), min_size=1, max_size=9),
    nodes=st.integers(1, 4),
    batch_size=st.sampled_from([1, 2, 3, 16, 32]),
    remainder=st.sampled_from(["exact", "pad", "drop"]),
    shuffle=st.booleans(),
    read_early=st.booleans(),
)
@example(partitions=[[65]], nodes=2, batch_size=32, remainder="exact", shuffle=False, read_early=True)
@example(partitions=[[1]] * 9, nodes=2, batch_size=1, remainder="exact", shuffle=False, read_early=False)
@example(partitions=[[1], [], [1], [], [1]], nodes=2, batch_size=2, remainder="exact", shuffle=True, read_early=False)
def test_every_row_is_in_one_step_of_one_node_and_no_node_lacks_one(
    *, partitions, nodes, batch_size, remainder, shuffle, read_early
):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        rig = Nodes(nodes, Path(folder), patch)
        rig.open(2, remainder)
        readings = [r.open(batch_size, remainder, shuffle=shuffle, seed=1) for r in rig.readers] if read_early else []
        first = [reader.epoch(reading) for reader, reading in zip(rig.readers, readings, strict=bool(readings))]
        count = 0
        for partition, sizes in enumerate(partitions):
            begin = count
            for size in sizes:
                count += size
            numbers = iter(range(begin, count))
            assert rig.send(partition, [[next(numbers) for _ in range(size)] for size in sizes]) == count - begin
            for epoch in first:
                next(epoch, None)  # an early reader must not take what others will lack
        for epoch in first:
            epoch.close()
        rig.handle(rig.feed_state.job_done(0, count, len(partitions), 0.0))
        readings = readings or [r.open(batch_size, remainder, shuffle=shuffle, seed=1) for r in rig.readers]
        epochs = [batches_of(reader, reading) for reader, reading in zip(rig.readers, readings, strict=True)]
    check_epoch(epochs, count, nodes, batch_size, remainder)


def check_epoch(epochs, count, nodes, batch_size, remainder):
    assert len({len(batches) for batches in epochs}) == 1
    rows = sorted(number for batches in epochs for numbers, _, _ in batches for number in numbers)
    expected = count // (nodes * batch_size) * nodes * batch_size if remainder == "drop" else count
    assert len(rows) == len(set(rows)) == expected
    for step in zip(*epochs, strict=True):
        real = sum(len(numbers) for numbers, _, _ in step)
        counts = defaultdict(int)
        for numbers, size, factor in step:
            assert size == (batch_size if remainder != "exact" else max(1, len(numbers)))
            counts[bool(numbers)] += 1
            if numbers:
                assert factor == pytest.approx(nodes * size / real)
        assert counts[False] == max(0, nodes - real), "a node lacks a row only if there are too few for all"
