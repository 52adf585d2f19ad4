"""A node's side of a feed, between messages as from a driver and an agent, and its ``ctx``."""

import threading

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from tests.node.conftest import start_for
from tfos_lab import NodeContext
from tfos_lab.core import messages as m
from tfos_lab.node.feed.reader import FeedReader

NUMBERS = pa.schema({"x": pa.int64()})


def spark_schema(schema):
    """Return an Arrow schema as Spark writes it."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True).json()


SCHEMA = spark_schema(NUMBERS)


class FedNode:
    """The reader and the context of worker:0, of rank 2; all that it sends is recorded."""

    def __init__(self, folder):
        self.folder = folder
        self.sent = []
        self.read_anew()
        self._segments = 0

    def read_anew(self):
        self.reader = FeedReader(2, self.sent.append)
        start = start_for(print, rank=2)
        self.ctx = NodeContext(start, self.reader, self.sent.append, threading.Event(), scratch=self.folder)

    # ---- the driver and the agent ----------------------------------------------------------------------------------

    def open_feed(self, feed=0, *, epochs=1, remainder="pad", schema=SCHEMA, **fields):
        opened = m.FeedOpen(feed=feed, epochs=epochs, remainder=remainder, schema=schema, token="", **fields)
        self.reader.handle(opened)
        return self

    def segment(self, *batches, feed=0, shared=(), own=None):
        """Commit rows in record batches, followed by leftover rows, one of which may be the node's own."""
        parts = [part for part in (*batches, shared) if len(part)]
        parts = [pa.RecordBatch.from_pydict({"x": pa.array(np.array(part), pa.int64())}) for part in parts]
        return self._commit(parts, feed=feed, rows=sum(map(len, batches)), own_leftover=own, shapes={"x": []})

    def feed_table(self, batch, *, feed=0, shapes):
        """Open a feed of these columns, and commit these rows."""
        self.open_feed(feed, schema=spark_schema(batch.schema))
        return self._commit([batch], feed=feed, rows=batch.num_rows, shapes=shapes)

    def _commit(self, batches, **ready):
        path = self.folder / f"{self._segments}.arrow"
        self._segments += 1
        if batches:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batches[0].schema) as file:
                for batch in batches:
                    file.write_batch(batch)
        self.reader.handle(m.SegmentReady(path=str(path) if batches else "", **ready))
        return self

    def complete(self, rows, *, feed=0):
        self.reader.handle(m.FeedComplete(feed=feed))
        assert self.reader._queue.feeds[feed].rows == rows
        self.rows_fed = rows
        return self

    def plan(self, steps, *, feed=0, dataset_id=0, peers=(), batch_size=4):
        """Plan the steps with peers that have these numbers of rows, and the same batch size."""
        shares = [(rows, batch_size, 1) for rows in (self.rows_fed, *peers)]
        self.reader.handle(m.EpochPlan(feed=feed, dataset_id=dataset_id, steps=steps, shares=shares))
        return self

    def end(self):
        self.reader.handle(m.FeedsEnded())
        return self

    def sent_of(self, kind):
        return [message for message in list(self.sent) if isinstance(message, kind)]

    # ---- batches of a dataset --------------------------------------------------------------------------------------

    def open(self, batch_size=4, remainder=None, *, shuffle=False, seed=None):
        return self.reader.open(batch_size, remainder, shuffle=shuffle, seed=seed)

    def epoch(self, reading):
        """Return an epoch as ``[(numbers, real rows), …]``."""
        batches = []
        for item in self.reader.epoch(reading):
            if item is not None:
                numbers, rows = item.columns["x"].tolist(), item.rows
                for start in range(0, len(numbers), reading.batch_size):
                    batch = numbers[start : start + reading.batch_size]
                    batches.append((batch, min(len(batch), max(0, rows - start))))
        return batches

    def rows(self, reading):
        return [number for numbers, rows in self.epoch(reading) for number in numbers[:rows]]

    # ---- rows of a data feed ---------------------------------------------------------------------------------------

    def batches(self, size, **options):
        feed, got = self.ctx.data_feed(**options), []
        while not feed.should_stop():
            got.append(numbers(feed.next_batch(size)))
        return got


def numbers(batch):
    return [row.x for row in batch]


def in_thread(function):
    """Run ``function`` on a thread; returns it and the list that will hold its result or error."""
    results = []

    def run():
        try:
            results.append(function())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results
