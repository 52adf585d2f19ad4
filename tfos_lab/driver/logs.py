"""Writes the nodes' logs into the run's folder, whole, and passes them on as text without noise.

A full disk costs log and nothing else: the nodes go on, their text is shown, and the file says how many bytes it lacks.
What comes later is counted. Its end is kept in memory and written when the file is closed: the last lines are those
that say why a node has failed.
"""

from __future__ import annotations

import codecs
import io
import math
import os
import re
import shutil
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from tfos_lab.core.messages import LogRecord
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.driver.state.events import LogText

# What is read at once of a log.
_MOST_BYTES = 256 << 20
# Where its last lines are looked for.
_TAIL_BYTES = 1 << 20


class LogWriter:
    """One file per node; bytes are kept as they came, events carry them as text.

    ``notify`` is called once with a sentence if files cannot be written.
    """

    def __init__(self, run_dir: RunDir, notify: Callable[[str], None]) -> None:
        self._run_dir = run_dir
        self._notify = notify
        self._notified = False
        self._files: dict[str, LogFile] = {}
        self._streams: defaultdict[tuple[str, str], _Stream] = defaultdict(_Stream)

    def write(self, node: str, records: list[LogRecord]) -> list[LogText]:
        """Append the records to the node's file, and return them as text, one event for each run of the same stream."""
        self._append(node, b"".join(record.data for record in records))
        events: list[LogText] = []
        for record in records:
            text = self._streams[node, record.stream].take(record.data)
            if events and events[-1].stream == record.stream:
                last = events.pop()
                events.append(LogText(time_s=last.time_s, node=node, stream=record.stream, text=last.text + text))
            elif text:
                events.append(LogText(time_s=record.time_s, node=node, stream=record.stream, text=text))
        return events

    def _append(self, node: str, data: bytes) -> None:
        if node not in self._files:
            self._files[node] = LogFile(self._run_dir.log(node))
        reason = self._files[node].write(data)
        if reason and not self._notified:
            self._notified = True
            path = self._run_dir.log(node)
            self._notify(f"logs cannot be written to {path} ({reason}): nodes go on, files say how much is missing")

    def close(self) -> None:
        """Close the files; may be called twice."""
        for file in self._files.values():
            file.close()


class _Stream:
    """Makes text of one stream of one node, which arrives in pieces."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._noise = NoiseFilter()

    def take(self, data: bytes) -> str:
        """Return the text without misleading lines."""
        return self._noise.take(self._decoder.decode(data))


def read_log(path: Path, tail: int | None = None) -> str:
    """Return a node's log as text, the end of a very large one, or its last ``tail`` lines without noise."""
    if not path.exists() or (tail is not None and tail <= 0):
        return ""
    with path.open("rb") as file:
        # This process might have no memory for the whole of it.
        left_out = file.seek(0, 2) - (_MOST_BYTES if tail is None else _TAIL_BYTES)
        file.seek(max(0, left_out))
        text = file.read(_MOST_BYTES).decode(errors="replace")
    if tail is not None:
        return "\n".join(NoiseFilter().take(text).removesuffix("\n").split("\n")[-tail:])
    return f"… {left_out:,} bytes before this are in {path} …\n{text}" if left_out > 0 else text


def read_logs(paths: Mapping[str, Path], tail: int | None = None) -> str:
    """Return the logs of several nodes as text, with their names before each line."""
    return "\n".join(f"[{node}] {line}" for node, path in paths.items() for line in read_log(path, tail).splitlines())


# A substring of each line, which is quick to look for, and the line.
_NOISE = (
    # The dataset of `ctx.dataset(shuffle=True)` is shuffled in each epoch; it is `fit` whose default is ignored.
    ("`shuffle=True` was passed", re.compile(r"UserWarning: `shuffle=True` was passed, but will be ignored since")),
    # There is no driver (303) or no GPU (100), and the user asked for none. Other CUDA errors are shown.
    ("cuInit", re.compile(r"failed call to cuInit: .*(\(303\)|CUDA_ERROR_NO_DEVICE|no CUDA-capable device)")),
    ("cuda drivers", re.compile(r"Could not find cuda drivers on your machine, GPU will not be used")),
    # This is the generator that reads the node's spool; there is nothing to optimize in it.
    ("GeneratorDatasetOp", re.compile(r"Input of GeneratorDatasetOp::Dataset will not be optimized because")),
    # Nobody may take part in collectives with a node that has returned: one that waits raises this itself, and where
    # none does, nothing is wrong.
    ("StartAbort", re.compile(r"StartAbort FAILED_PRECONDITION: FeedError: .*\[tfos_lab:FeedError:")),
)
# Python's warnings are followed by the line of source that caused them.
_SHOWS_SOURCE = "UserWarning"


class NoiseFilter:
    """Removes misleading lines from one stream of one node, which arrives in pieces; only whole lines are removed."""

    def __init__(self) -> None:
        self._within_line = False
        self._source_follows = False

    def take(self, text: str) -> str:
        """Return the text without misleading lines."""
        if not text:
            return text
        quiet = not self._source_follows and not any(word in text for word, _ in _NOISE)
        shown = text if quiet else "".join(self._worth_showing(text.splitlines(keepends=True)))
        self._within_line = not text.endswith("\n")
        return shown

    def _worth_showing(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            is_source, self._source_follows = self._source_follows and line.startswith("  "), False
            whole = not self._within_line and line.endswith("\n")
            self._within_line = not line.endswith("\n")
            if whole and (is_source or _is_noise(line)):
                self._source_follows = not is_source and _SHOWS_SOURCE in line
            else:
                yield line


def _is_noise(line: str) -> bool:
    return any(word in line and pattern.search(line) for word, pattern in _NOISE)


# ---- one node's file -------------------------------------------------------------------------------------------------


# What logs and output leave free of the disk, so that notebooks can still be saved: this, or this part of a small disk.
_FREE_BYTES = 1 << 30
_FREE_PART = 20
# How much is written until the disk is looked at again.
_LOOK_BYTES = 1 << 24
_END_BYTES = 1 << 16


class LogFile:
    """Appends to one file, which is opened with the first bytes; never raises."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: io.FileIO | None = None
        self._size = self._missing = 0
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._looks_at = 0
        self._cut = ""

    def write(self, data: bytes) -> str:
        """Append bytes; return why some of them could not be written, or ''."""
        grown = self._size + len(data)
        if not self._cut and grown >= self._looks_at:
            self._looks_at = grown + _LOOK_BYTES
            if self._size >= _LOOK_BYTES and room_on_disk(self._path.parent) <= _LOOK_BYTES:
                self._cut = "the disk is nearly full"
        if not self._cut:
            return self._append(data)
        self._missing += len(data)
        self._tail.append(data[-_END_BYTES:])
        self._tail_bytes += len(self._tail[-1])
        while self._tail_bytes - len(self._tail[0]) >= _END_BYTES:
            self._tail_bytes -= len(self._tail.popleft())
        return self._cut

    def _append(self, data: bytes) -> str:
        """Append bytes, after a line that says how many are missing before them."""
        missing, self._missing = self._missing, 0
        gap = f"\n… {missing:,} bytes are missing here …\n".encode() if missing else b""
        try:
            if self._file is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._file = io.FileIO(os.open(self._path, flags, 0o600), "ab")
            written = self._file.write(gap + data) - len(gap)
            reason = "the disk is full"
        except OSError as error:
            written, reason = -len(gap), error.strerror or str(error)
        self._size += max(0, written)
        if written == len(data):
            return ""
        self._missing = len(data) - written if written >= 0 else missing + len(data)
        return reason

    def close(self) -> None:
        """Write what was kept of the end, and close; may be called twice."""
        if self._tail:
            end, self._missing = b"".join(self._tail), self._missing - self._tail_bytes
            self._tail.clear()
            self._append(end)
        if self._file is not None:
            self._file.close()
            self._file = None


def room_on_disk(folder: Path) -> float:
    """Return how many bytes may still be written to the disk of a folder."""
    try:
        disk = shutil.disk_usage(folder)
    except OSError:  # writing says why
        return math.inf
    return disk.free - min(_FREE_BYTES, disk.total // _FREE_PART)
