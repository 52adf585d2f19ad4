"""Length-prefixed messages and file descriptors over a unix socket: how agents, children and fork servers talk."""

from __future__ import annotations

import select
import socket
import struct
from collections import deque
from typing import Self

_HEADER = struct.Struct("!I")
_MAX_FDS = 8


class ConnectionClosed(EOFError):
    """The other end has gone."""


class FrameSocket:
    """One end of a unix stream socket that carries whole frames, with file descriptors beside them.

    A thread of its own waits: for whole frames (`receive`), and until its own have gone (`send`). A poll loop must not
    wait: it takes what is there (`available`), and sends what does not go at once later (`post`, `flush`).
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = bytearray()
        self._fds: list[int] = []
        self._unsent: deque[memoryview] = deque()

    def fileno(self) -> int:
        """Return the file descriptor, for poll loops."""
        return self._sock.fileno()

    def send(self, data: bytes, fds: list[int] | None = None) -> None:
        """Send one frame; raises `ConnectionClosed` when nobody is there."""
        try:
            if fds:
                socket.send_fds(self._sock, [_HEADER.pack(len(data))], fds)
                self._sock.sendall(data)
            else:
                self._sock.sendall(_HEADER.pack(len(data)) + data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionClosed from error

    def post(self, data: bytes) -> None:
        """Send of one frame what the other end takes now, behind what was posted before; raises as `send` does."""
        self._unsent.append(memoryview(_HEADER.pack(len(data)) + data))
        self.flush()

    @property
    def has_unsent(self) -> bool:
        """Whether `flush` has something to send once the socket can be written to."""
        return bool(self._unsent)

    def flush(self) -> None:
        """Send what the other end takes now of what was posted; raises as `send` does."""
        try:
            while self._unsent:
                data = self._unsent.popleft()
                sent = self._sock.send(data, socket.MSG_DONTWAIT)
                if sent < len(data):
                    self._unsent.appendleft(data[sent:])
        except BlockingIOError:
            self._unsent.appendleft(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            self._unsent.clear()
            raise ConnectionClosed from error

    def receive(self) -> tuple[bytes, list[int]]:
        """Wait for one whole frame and the descriptors that came with it."""
        while True:
            frame = self._next_frame()
            if frame is not None:
                return frame
            self._read_some()

    def available(self, wait_s: float = 0.0) -> list[tuple[bytes, list[int]]]:
        """Read what is there, or comes within ``wait_s`` seconds, and return the frames that are now whole."""
        poller = select.poll()
        poller.register(self._sock, select.POLLIN)
        if poller.poll(wait_s * 1000):
            self._read_some()
        frames = []
        while (frame := self._next_frame()) is not None:
            frames.append(frame)
        return frames

    def _read_some(self) -> None:
        try:
            data, fds, _flags, _address = socket.recv_fds(self._sock, 1 << 18, _MAX_FDS)
        except ConnectionResetError as error:
            raise ConnectionClosed from error
        if not data:
            raise ConnectionClosed
        self._buffer += data
        self._fds += fds

    def _next_frame(self) -> tuple[bytes, list[int]] | None:
        if len(self._buffer) < _HEADER.size:
            return None
        (length,) = _HEADER.unpack_from(self._buffer)
        end = _HEADER.size + length
        if len(self._buffer) < end:
            return None
        data = bytes(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        fds, self._fds = self._fds, []
        return data, fds

    def close(self) -> None:
        """Close this end; may be called twice."""
        self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def frame_pair() -> tuple[FrameSocket, socket.socket]:
    """Return a connected pair: one end for this process, the raw other end to hand to a forked one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return FrameSocket(ours), theirs
