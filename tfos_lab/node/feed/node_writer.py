"""Writes one attempt's rows to one node: directly into its spool on the same host, through Flight from another.

On the node's own host a row is written once, by the task that has it, after the node has granted the space. This takes
a quarter of the CPU time that Flight takes for the same rows (seen: 0.03 s and 0.13 s for 126 MB).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec
import pyarrow as pa
from pyarrow import flight

from tfos_lab.errors import FeedError
from tfos_lab.node.feed.flight_endpoint import PutTicket, segment_path
from tfos_lab.node.feed.plan import Connection
from tfos_lab.node.feed.segment_writer import SegmentWriter
from tfos_lab.node.feed.spool import not_written


class NodeWriter:
    """Takes the rows of one attempt for one node.

    Parameters
    ----------
    connection : Connection
        To the node.
    ticket : PutTicket
        The attempt.
    schema : pyarrow.Schema
        Of the rows.
    """

    def __init__(self, connection: Connection, ticket: PutTicket, schema: pa.Schema) -> None:
        self._folder = connection.spool
        self._segment: SegmentWriter | None = None
        if self._folder is not None:
            ticket = msgspec.structs.replace(ticket, beside=True)
            path = segment_path(self._folder, ticket)
            with self._explaining():
                self._segment = SegmentWriter(path)
        descriptor = flight.FlightDescriptor.for_command(msgspec.msgpack.encode(ticket))
        self._stream, self._replies = connection.client.do_put(descriptor, schema)

    def write(self, rows: pa.RecordBatch) -> None:
        """Store a record batch."""
        if self._segment is None:
            self._stream.write_batch(rows)
            return
        self._stream.write_metadata(str(rows.nbytes).encode())
        if self._replies.read() is None:
            self._stream.close()  # raises the node's error
            raise FeedError(reason="the node ended the feed before it had stored all rows")
        with self._explaining():
            self._segment.write(rows)

    def close(self) -> None:
        """Wait until the node has all rows."""
        try:
            if self._segment is not None:
                with self._explaining():
                    self._segment.close()
        finally:
            self._stream.close()

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise not_written(self._folder, error) from error
