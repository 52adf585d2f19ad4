"""The rows of one file as a segment: read from the file itself, as often as they are needed, ahead and in order."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import pyarrow as pa

from tfos_lab.core.messages import FilePart, FilesDealt
from tfos_lab.data.batches import measure, to_numpy
from tfos_lab.data.rows import Batch
from tfos_lab.errors import FeedError
from tfos_lab.node.feed.files.opened import readable
from tfos_lab.node.feed.files.read import Piece, read_piece, rows_at_once
from tfos_lab.node.feed.node_feed import NodeFeed
from tfos_lab.node.feed.segment_writer import SegmentWriter
from tfos_lab.node.feed.segments import Segment
from tfos_lab.node.feed.spool import disk_full, free_bytes, left_to_others, too_small

T = TypeVar("T")
_Read = Callable[[pa.RecordBatch], T]


@dataclass(frozen=True, kw_only=True)
class FileSegment(Segment):
    """A node's part of one file; ``schema`` is that of its columns, as Spark writes it in JSON."""

    part: FilePart
    format: str
    schema: str
    batch_rows: int

    def stored(self) -> Iterator[pa.RecordBatch]:
        """Yield its rows; raises as `read_piece` does."""
        for piece in self.part.pieces:
            yield from read_piece(self.format, self.part, piece, self.schema, self.batch_rows)

    def read(self, piece: Piece, convert: _Read[T]) -> Iterator[T]:
        """Yield the rows of a piece; errors of ``convert`` name the file, too."""
        for batch in read_piece(self.format, self.part, piece, self.schema, self.batch_rows):
            with readable(self.part.file):
                converted = convert(batch)
            yield converted


def file_segments(dealt: FilesDealt, schema: str) -> list[FileSegment]:
    """Return a node's share as segments."""
    batch_rows = rows_at_once(schema, dealt.shapes)
    return [
        FileSegment(
            part.file.path,
            sum(rows for _, _, rows in part.pieces),
            part=part,
            format=dealt.format,
            schema=schema,
            batch_rows=batch_rows,
        )
        for part in dealt.parts
    ]


def read_files(feed: NodeFeed) -> Iterator[Batch | None]:
    """Yield a feed's rows in order, as columns of NumPy arrays; None now and then while there are none."""
    return _ahead(feed, lambda batch: to_numpy(batch, feed.specs))


def stored_files(feed: NodeFeed) -> Generator[None, None, list[Segment]]:
    """Return segments of the spool with a feed's rows, for reading them in a random order; yield None meanwhile."""
    if feed.stored is not None:
        return feed.stored
    assert feed.files is not None
    folder = Path(feed.files.folder)
    path = folder / f"{feed.opened.feed}-files.arrow"
    left_bytes, rows, size_bytes = left_to_others(folder), 0, 0

    def checked(batch: pa.RecordBatch) -> pa.RecordBatch:
        measure(batch, feed.specs)
        return batch

    with contextlib.closing(SegmentWriter(path)) as writer:
        for batch in _ahead(feed, checked):
            if batch is not None:
                free = free_bytes(folder)
                # Without a limit, they may take what leaves a part of the disk to others.
                limit_bytes = feed.files.spool_bytes or size_bytes + max(0, free - left_bytes)
                size_bytes += batch.nbytes
                if size_bytes > limit_bytes:
                    raise FeedError(reason=too_small(limit_bytes, folder, "are shuffled"))
                if batch.nbytes > free:
                    raise FeedError(reason=disk_full(free, folder))
                writer.write(batch)
                rows += batch.num_rows
            yield None
    feed.stored = [Segment(str(path), rows)] if rows else []
    return feed.stored


# ---- threads that read ahead -----------------------------------------------------------------------------------------

# A node shares its host's cores with training, and with other nodes.
_THREADS = max(1, min(4, (os.cpu_count() or 1) // 2))
# How many items a thread may be ahead.
_MOST_AHEAD = 8
_STEP_S = 0.2
_numbers = itertools.count()


def _ahead(feed: NodeFeed, convert: _Read[T]) -> Iterator[T | None]:
    """Yield a feed's rows in order, converted; threads read the pieces. None now and then while there is nothing."""
    segments = (segment for segment in feed.segments if isinstance(segment, FileSegment))
    waiting = ((segment, piece) for segment in segments for piece in segment.part.pieces)
    running: deque[_Source[T]] = deque()
    try:
        while True:
            while sum(not source.has_ended for source in running) < _THREADS and len(running) <= _THREADS:
                following = next(waiting, None)
                if following is None:
                    break
                segment, piece = following
                running.append(_Source(functools.partial(segment.read, piece, convert)))
            if not running:
                return
            yield from running[0].items()
            running.popleft().stop()
    finally:
        for source in running:
            source.stop()


class _Source(Generic[T]):
    """One source, and the thread that reads it."""

    def __init__(self, read: Callable[[], Iterator[T]]) -> None:
        self._read = read
        self._items: queue.Queue[T | BaseException | None] = queue.Queue(_MOST_AHEAD)
        self._stopped = threading.Event()
        self.has_ended = False
        self._thread = threading.Thread(target=self._run, name=f"tfos-files-{next(_numbers)}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._read():
                if not self._put(item):
                    return
        except BaseException as raised:  # noqa: BLE001 - raised again where the items are wanted
            error = raised
        finally:
            self.has_ended = True
            self._put(error)

    def _put(self, item: T | BaseException | None) -> bool:
        while not self._stopped.is_set():
            try:
                self._items.put(item, timeout=_STEP_S)
            except queue.Full:
                continue
            return True
        return False

    def items(self) -> Iterator[T | None]:
        """Yield its items; None now and then while there is none."""
        while True:
            try:
                item = self._items.get(timeout=_STEP_S)
            except queue.Empty:
                yield None
                continue
            if isinstance(item, BaseException):
                raise item
            if item is None:
                return
            yield item

    def stop(self) -> None:
        """Have the thread end with the item that it reads."""
        self._stopped.set()
