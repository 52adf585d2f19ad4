"""Reads the spool as record batches, in order: for rows that become Python values.

As in `tfos_lab.node.feed.segments`, a segment holds rows of this node, followed by leftover rows that are on every
node. Which of these belong to this node is known when the feed is complete, and the file may be gone by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tfos_lab.node.feed.segments import Segment, own_rows, shared_rows


class RowSegments:
    """A node's segments; keeps copies of the leftover rows of those that it has read."""

    def __init__(self) -> None:
        self._leftovers: dict[str, list[pa.RecordBatch]] = {}

    def read(self, segment: Segment) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of a segment that belong to this node for certain.

        Raises
        ------
        FileNotFoundError
            If the segment is gone.
        """
        batches = segment.batches()
        if segment.leftover and segment.path not in self._leftovers:
            shared = shared_rows(segment, batches)
            self._leftovers[segment.path] = [rows.take(pa.array(range(rows.num_rows))) for rows in shared]
        yield from own_rows(segment, batches)

    def read_leftovers(self, segments: Sequence[Segment], part: tuple[int, int]) -> Iterator[pa.RecordBatch]:
        """Yield a part of all leftover rows of segments that have been read, partition by partition."""
        begin = 0
        for segment in sorted(segments, key=lambda segment: segment.partition):
            for batch in self._leftovers.get(segment.path, ()):
                start, stop = max(part[0] - begin, 0), min(part[1] - begin, batch.num_rows)
                if start < stop:
                    yield batch.slice(start, stop - start)
                begin += batch.num_rows

    def forget(self, segments: Sequence[Segment]) -> None:
        """Drop the copies of segments that are not read again."""
        for segment in segments:
            self._leftovers.pop(segment.path, None)
