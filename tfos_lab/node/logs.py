"""A node's log: the child's output is stored whole on disk, and sent as fast as the driver takes it."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, Literal

from tfos_lab.core import messages as m
from tfos_lab.core.messages import LogRecord

_HEADER = struct.Struct("!dBI")
_STREAMS: tuple[Literal["stdout"], Literal["stderr"]] = ("stdout", "stderr")
_READ_SIZE = 1 << 16
_MOST_AT_ONCE_BYTES = 1 << 20
# `print` writes a line in pieces: an unfinished line waits this long for its end, so that the other stream does not
# split it.
LINE_PATIENCE_S = 0.05
_MAX_HELD_BYTES = 1 << 14
# How much that was read may remain in the file.
_KEPT_BYTES = 1 << 24


def _frame(stream: str, data: bytes) -> bytes:
    return _HEADER.pack(time.time(), _STREAMS.index(stream), len(data)) + data


class LogSpool:
    """A file of timestamped records, appended from the child's pipes and read by the sender.

    The reader may lag behind by as much as the disk can hold; the writer never waits for it. What was read is removed
    now and then.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: BinaryIO = path.open("wb", buffering=0)
        # Unbuffered: what it would read ahead may be written anew.
        self._reader: BinaryIO = path.open("rb", buffering=0)
        self._end = self._unread = 0
        self._has_told = False
        self.lost_bytes = 0
        self.appended_at = 0.0

    def append(self, stream: str, data: bytes) -> None:
        """Append one record; if the disk is full, count its bytes as lost and let the child go on."""
        self.appended_at = time.monotonic()
        if not self._write(_frame(stream, data)):
            self.lost_bytes += len(data)

    def tell_lost(self) -> None:
        """Append a line, once, that says how many bytes were lost."""
        text = f"… {self.lost_bytes:,} bytes of this log are missing: the disk of the node's host was full …\n"
        if self.lost_bytes and not self._has_told:
            self._has_told = self._write(_frame("stderr", text.encode()))

    def _write(self, frames: bytes) -> bool:
        """Append frames, all of them or none; return whether there was space."""
        try:
            if self._writer.write(frames) == len(frames):
                self._end += len(frames)
                self._unread += len(frames)
                return True
            self._writer.truncate(self._end)
            self._writer.seek(self._end)
        except OSError:
            pass
        return False

    @property
    def has_unread(self) -> bool:
        """Whether there are records that `read` has not returned yet."""
        return self._unread > 0

    def read(self, max_bytes: int = 1 << 18) -> list[LogRecord]:
        """Return the next records in order, up to about ``max_bytes``."""
        records = []
        size = 0
        while self._unread and size < max_bytes:
            time_s, stream, length = _HEADER.unpack(self._reader.read(_HEADER.size))
            data = self._reader.read(length)
            self._unread -= _HEADER.size + length
            size += length
            records.append(LogRecord(time_s, _STREAMS[stream], data))
        if not self._unread and self._end > _KEPT_BYTES:  # begin the file anew
            self._end = 0
            self._writer.truncate(0)
            self._writer.seek(0)
            self._reader.seek(0)
        return records

    def close(self) -> None:
        """Close and remove the file."""
        self._writer.close()
        self._reader.close()
        self._path.unlink(missing_ok=True)


class Pipe:
    """One of the child's output streams, as the agent reads it."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.read_fd, False)
        self.open = True
        self._held = b""
        self._held_since = 0.0
        self._is_amid_line = False

    @property
    def holds(self) -> bool:
        """Whether an unfinished line waits for its end."""
        return bool(self._held)

    def close_write_end(self) -> None:
        """Close the end that the child has inherited."""
        if self.write_fd >= 0:
            os.close(self.write_fd)
            self.write_fd = -1

    def pump(self, spool: LogSpool, *, beside: Sequence[Pipe] = ()) -> None:
        """Move the pipe's contents into the spool, as whole lines if possible; close at the end of the stream.

        A line that one of the pipes beside it has begun is ended first, if its end was written before.
        """
        moved = 0
        while self.open and moved < _MOST_AT_ONCE_BYTES and (data := self._read()) is not None:
            if not data:
                self.release(spool)
                self.close()
                return
            for pipe in beside:
                pipe.end_line(spool)
            self._append_lines(spool, data)
            moved += len(data)

    def end_line(self, spool: LogSpool) -> None:
        """Move the end of the line of which a part is in the spool already, if it has come."""
        while self.open and self._is_amid_line and (data := self._read()):
            self._append_lines(spool, data)

    def _read(self) -> bytes | None:
        """Return what has come; None if that is nothing, b"" at the end of the stream."""
        try:
            return os.read(self.read_fd, _READ_SIZE)
        except BlockingIOError:
            return None

    def _append_lines(self, spool: LogSpool, data: bytes) -> None:
        since = self._held_since if self._held else time.monotonic()
        data, self._held = self._held + data, b""
        line_end = data.rfind(b"\n") + 1
        end = max(line_end, data.rfind(b"\r", line_end) + 1)
        if len(data) - end > _MAX_HELD_BYTES:
            end = len(data)
        if end:
            self._append(spool, data[:end])
            since = time.monotonic()
        self._held, self._held_since = data[end:], since

    def release(self, spool: LogSpool, after_s: float = 0.0) -> None:
        """Move an unfinished line into the spool, if it has waited for ``after_s`` seconds."""
        if self._held and time.monotonic() - self._held_since >= after_s:
            self._append(spool, self._held)
            self._held = b""

    def _append(self, spool: LogSpool, data: bytes) -> None:
        spool.append(self.stream, data)
        self._is_amid_line = not data.endswith((b"\n", b"\r"))

    def close(self) -> None:
        """Close both ends; may be called twice."""
        self.close_write_end()
        if self.open:
            self.open = False
            os.close(self.read_fd)


# How many batches the driver may not have written to its files yet.
_IN_FLIGHT = 8
# Lines that come close together travel together.
_INTERVAL_S = 0.02


class LogSender:
    """Sends one node's log; used in the agent's poll loop only."""

    def __init__(self, spool: LogSpool, send: Callable[[m.FromAgent], None]) -> None:
        self._spool = spool
        self._send = send
        self._in_flight = 0
        self._sent_s = 0.0

    @property
    def can_send(self) -> bool:
        """Whether there is something to send, and the driver has acknowledged enough batches."""
        return self._spool.has_unread and self._in_flight < _IN_FLIGHT

    def take_credit(self) -> None:
        """The driver has written a batch."""
        self._in_flight -= 1

    def send_due(self) -> None:
        """Send what is there, unless a batch was sent a moment ago; called often."""
        if self._spool.has_unread and time.monotonic() - self._sent_s >= _INTERVAL_S:
            self._sent_s = time.monotonic()
            self.send_all()

    def send_all(self) -> None:
        """Send as much as may be unacknowledged."""
        while self.can_send:
            self._send(m.Logs(records=self._spool.read()))
            self._in_flight += 1
