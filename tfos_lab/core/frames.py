"""Length-prefixed frames: over a unix socket, with file descriptors, between agents, children and fork servers.

Agents and driver send the same frames over TLS: `tfos_lab.core.link` and `tfos_lab.core.listener`.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Self

_HEADER = struct.Struct("!I")
_CREDENTIALS = struct.Struct("3i")  # pid, user and group
_MAX_FDS = 8
_MOST_BYTES = (1 << 32) - 1


class FrameTooLarge(ConnectionError):
    """The other end has announced more than this end takes: nothing that it sends can be understood any more."""


def framed(data: bytes) -> bytes:
    """Return one frame: its length, and the data."""
    return _HEADER.pack(len(data)) + data


class FrameBuffer:
    """Takes bytes as they come, and yields what is in the frames that are whole.

    A frame that says it is larger than ``max_bytes`` is not waited for: `take` raises `FrameTooLarge`.
    """

    def __init__(self, max_bytes: int = _MOST_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = bytearray()

    def take(self, data: bytes) -> Iterator[bytes]:
        """Add bytes, and yield what is whole now."""
        self._bytes += data
        while len(self._bytes) >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._bytes)
            if length > self._max_bytes:
                raise FrameTooLarge(f"a frame of {length:,} bytes, and at most {self._max_bytes:,} are taken")
            end = _HEADER.size + length
            if len(self._bytes) < end:
                return
            whole = bytes(self._bytes[_HEADER.size : end])
            del self._bytes[:end]
            yield whole


class Frame(NamedTuple):
    """One frame: its bytes, and the file descriptors that came with it."""

    data: bytes
    fds: list[int]


class FrameSocket:
    """One end of a unix stream socket that carries whole frames, and file descriptors beside them.

    `send` and `receive` block, for threads of their own. A poll loop must not block: `available` returns the frames
    that are there, `post` sends what the socket takes at once, and `flush` the rest later. A frame that says it is
    larger than ``max_bytes`` is not waited for: receiving raises `FrameTooLarge`.
    """

    def __init__(self, sock: socket.socket, *, max_bytes: int = _MOST_BYTES) -> None:
        self._sock = sock
        self._frames = FrameBuffer(max_bytes)
        self._received: deque[Frame] = deque()
        self._unsent: deque[memoryview] = deque()

    def fileno(self) -> int:
        """Return the file descriptor, for poll loops."""
        return self._sock.fileno()

    def send(self, data: bytes, fds: list[int] | None = None) -> None:
        """Send one frame; raises ConnectionError if the other end is gone.

        Descriptors go with the last byte: a receiver that is a fork server would otherwise hold them while it waits for
        the rest, and a process that it forks for another client meanwhile would keep copies of them.
        """
        whole = framed(data)
        if fds:
            self._sock.sendall(whole[:-1])
            socket.send_fds(self._sock, [whole[-1:]], fds)
        else:
            self._sock.sendall(whole)

    def post(self, data: bytes) -> None:
        """Queue one frame and send as much as the socket takes without blocking; raises as `send` does."""
        self._unsent.append(memoryview(framed(data)))
        self.flush()

    @property
    def has_unsent(self) -> bool:
        """Whether posted data waits until the socket can be written to."""
        return bool(self._unsent)

    def flush(self) -> None:
        """Send as much of the posted data as the socket takes without blocking; raises as `send` does."""
        try:
            while self._unsent:
                data = self._unsent.popleft()
                sent = self._sock.send(data, socket.MSG_DONTWAIT)
                if sent < len(data):
                    self._unsent.appendleft(data[sent:])
        except BlockingIOError:
            self._unsent.appendleft(data)
        except ConnectionError:
            self._unsent.clear()
            raise

    def receive(self) -> Frame:
        """Wait for one whole frame."""
        while not self._received:
            self._read_some()
        return self._received.popleft()

    def available(self, wait_s: float = 0.0) -> list[Frame]:
        """Return the whole frames that are there, after waiting up to ``wait_s`` seconds for the next bytes."""
        poller = select.poll()
        poller.register(self._sock, select.POLLIN)
        if poller.poll(wait_s * 1000):
            self._read_some()
        frames = list(self._received)
        self._received.clear()
        return frames

    def _read_some(self) -> None:
        data, fds, _flags, _address = socket.recv_fds(self._sock, 1 << 18, _MAX_FDS)
        if not data:
            raise ConnectionError("the other end has closed the connection")
        for whole in self._frames.take(data):
            self._received.append(Frame(whole, []))
        if self._received:  # the kernel ends a read behind the byte that descriptors come with
            self._received[-1].fds.extend(fds)
        else:
            close_all(fds)  # not sent by `send`

    def end_receiving(self) -> None:
        """Have a thread that receives find the end of what has been sent by now; from any thread."""
        with contextlib.suppress(OSError):  # it is closed
            self._sock.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """Close this end, and descriptors that nobody has taken; may be called twice."""
        self._sock.close()
        while self._received:
            close_all(self._received.popleft().fds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def frame_pair() -> tuple[FrameSocket, socket.socket]:
    """Return a connected pair: one end for this process, and the raw other end for a process that is forked."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return FrameSocket(ours), theirs


def peer_of(sock: socket.socket) -> int:
    """Return the process that listens at the other end of a unix socket, or has made the pair."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[0])


def close_all(fds: list[int]) -> None:
    """Close descriptors of a frame."""
    for fd in fds:
        os.close(fd)
