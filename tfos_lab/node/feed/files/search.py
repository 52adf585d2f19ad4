"""The agent's part in a feed of files: sees whether its host finds them, and counts rows where files do not say."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO

from tfos_lab.core import messages as m
from tfos_lab.core.messages import DataFile
from tfos_lab.data.tfrecords.framing import broken_record, read_chunk, starts_with_frame
from tfos_lab.data.tfrecords.paths import is_compressed
from tfos_lab.errors import TfosError
from tfos_lab.node.feed.files.lines import LineFile
from tfos_lab.node.feed.files.opened import TFRECORD, check_file, open_stream, readable

_THREADS = 4
_REPORT_INTERVAL_S = 0.25
_Blocks = list[tuple[int, int]]


class FileSearch:
    """Looks at the files of one feed, on threads of its own, which call ``report`` now and then, and at the end."""

    def __init__(self, asked: m.FilesAsked, report: Callable[[m.FilesFound], None]) -> None:
        self._asked = asked
        self._report = report
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name=f"tfos-file-search-{asked.feed}", daemon=True).start()

    def stop(self) -> None:
        """Look at no further file."""
        self._stopped.set()

    def _run(self) -> None:
        found: dict[int, _Blocks] = {}
        reported_s, problem = time.monotonic(), ""
        try:
            for number, blocks in self._look():
                found[number] = blocks
                if time.monotonic() - reported_s > _REPORT_INTERVAL_S:
                    self._tell(found)
                    found, reported_s = {}, time.monotonic()
        except TfosError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - the driver waits for an answer
            problem = f"{type(error).__name__}: {error}"
        if not self._stopped.is_set():
            self._tell(found, done=True, problem=problem)

    def _tell(self, found: dict[int, _Blocks], *, done: bool = False, problem: str = "") -> None:
        self._report(
            m.FilesFound(
                feed=self._asked.feed,
                blocks=found,
                done=done,
                problem=problem,
                host=socket.gethostname(),
            )
        )

    def _look(self) -> Iterator[tuple[int, _Blocks]]:
        with ThreadPoolExecutor(_THREADS, "tfos-file-search") as pool:
            try:
                looks = pool.map(self._look_at, self._asked.files)
                yield from zip(self._asked.numbers, looks, strict=True)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _look_at(self, file: m.DataFile) -> _Blocks:
        if self._stopped.is_set():
            return []
        check_file(file)
        return count_rows(self._asked.count_as, file) if self._asked.count_as and file.size_bytes else []


# ---- rows of files that do not say how many they have ----------------------------------------------------------------

_LENGTH = struct.Struct("<Q")
_HEADER_BYTES, _FRAME_BYTES = 12, 16
_CHUNK_BYTES = 8 << 20
# A node that begins within a block skips its first records, which have to be found one by one.
_BLOCK_BYTES = 32 << 20


def count_rows(format_: str, file: DataFile) -> list[tuple[int, int]]:
    """Return a file's blocks of rows: where each begins, in bytes, and how many rows it has."""
    blocks: list[tuple[int, int]] = []
    begin, rows = 0, 0
    with readable(file), open_stream(file) as stream:
        # In a compressed file, reading can begin at the beginning only.
        one_block = is_compressed(stream)
        runs = _runs(stream, file.path) if format_ == TFRECORD else LineFile(format_, file).runs()
        for end, records in runs:
            rows += records
            if end - begin >= _BLOCK_BYTES and not one_block:
                blocks.append((begin, rows))
                begin, rows = end, 0
    return [*blocks, (begin, rows)] if rows else blocks


def _runs(stream: IO[bytes], path: str) -> Iterator[tuple[int, int]]:
    """Yield where runs of whole records end, and how many records each has."""
    at, rest = 0, b""
    size = _CHUNK_BYTES
    while True:
        data = rest + read_chunk(stream, size, path, at)
        if len(data) == len(rest):
            break
        used, records, needed = _walk(data)
        if needed > _CHUNK_BYTES and not starts_with_frame(data[used : used + _HEADER_BYTES]):
            raise broken_record(path, at + used, "its length does not fit the length's CRC: the file is damaged")
        rest = data[used:]
        at += used
        size = max(_CHUNK_BYTES, needed - len(rest))
        if records:
            yield at, records
    if rest:
        raise broken_record(path, at, f"the file ends {len(rest)} bytes into it: it was cut off")


def _walk(data: bytes) -> tuple[int, int, int]:
    """Return the bytes of the first whole records, their number, and the size of the next where it is known."""
    at, records, size = 0, 0, len(data)
    unpack = _LENGTH.unpack_from
    while at + _HEADER_BYTES <= size:
        end = at + _FRAME_BYTES + unpack(data, at)[0]
        if end > size:
            return at, records, end - at
        at = end
        records += 1
    return at, records, 0
