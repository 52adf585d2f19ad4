"""The agent's end of the tunnel: carries streams between the driver and the TensorBoard process of this node.

Works inside the agent's poll loop and never blocks. Each stream may have one window of bytes under way in each
direction, so that logs and beats never wait behind a page of TensorBoard.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from tfos_lab import messages as m
from tfos_lab.core.runtime_files import scratch_root
from tfos_lab.node.tensorboard.process import TensorBoardProcess
from tfos_lab.transport.poll_loop import PollLoop

CHUNK_BYTES = 1 << 16
# More than any page needs; a driver that asks for more is refused the rest.
MAX_STREAMS = 64


class _Stream:
    """One connection to TensorBoard."""

    def __init__(self, sock: socket.socket, window: int) -> None:
        self.sock = sock
        self.credit = window
        self.sent = 0
        self.received = 0
        self.unwritten = bytearray()
        self.watched = False


class Tunnel:
    """TensorBoard beside the chief, and the streams to it.

    Parameters
    ----------
    rank : int
        The node's rank, which its messages bear.
    send : callable
        Says something to the driver.
    loop : PollLoop
        The agent's poll loop.
    """

    def __init__(self, rank: int, send: Callable[[m.FromAgent], None], loop: PollLoop) -> None:
        self._rank = rank
        self._send = send
        self._loop = loop
        self._path = ""
        self._tensorboard: TensorBoardProcess | None = None
        self._streams: dict[int, _Stream] = {}

    # ---- TensorBoard ------------------------------------------------------------------------------------------------

    def start(self, fork_server: tuple[str, str, dict[str, str], dict[str, str], int], log_dir: str, cwd: str) -> None:
        """Start TensorBoard for ``log_dir``; the driver hears when it serves, or why it does not."""
        try:
            self._path = str(scratch_root() / f"tensorboard-{os.getpid()}-{self._rank}.sock")
            self._tensorboard = TensorBoardProcess(fork_server, log_dir, self._path, cwd)
        except OSError as error:
            self._send(m.TensorBoardGone(rank=self._rank, reason=str(error)))
            return
        self._loop.watch(self._tensorboard.words.fileno(), self._on_tensorboard)
        self._loop.watch(self._tensorboard.fork_server.fileno(), self._on_fork_server)

    def _on_tensorboard(self) -> None:
        assert self._tensorboard is not None
        self._loop.unwatch(self._tensorboard.words.fileno())
        reason = self._tensorboard.word()
        if reason:
            self._lose_tensorboard(reason)
        else:
            self._send(m.TensorBoardReady(rank=self._rank))

    def _on_fork_server(self) -> None:
        assert self._tensorboard is not None
        reason = self._tensorboard.end()
        if reason is not None:
            self._lose_tensorboard(reason)

    def _lose_tensorboard(self, reason: str) -> None:
        if self._tensorboard is not None:
            self._drop_tensorboard()
            self._send(m.TensorBoardGone(rank=self._rank, reason=reason))

    def _drop_tensorboard(self) -> None:
        if self._tensorboard is not None:
            self._loop.unwatch(self._tensorboard.words.fileno())
            self._loop.unwatch(self._tensorboard.fork_server.fileno())
            self._tensorboard.close()
            self._tensorboard = None

    # ---- streams ----------------------------------------------------------------------------------------------------

    def handle(self, message: m.ToAgent) -> None:
        """Carry out what the driver says about a stream; those that are gone are not missed."""
        match message:
            case m.TunnelOpen(stream=number, window=window):
                self._open(number, window)
            case m.TunnelData(stream=number) if number in self._streams:
                self._take(number, message)
            case m.TunnelCredit(stream=number, size=size) if number in self._streams:
                self._streams[number].credit += size
                self._see_to(number)
            case m.TunnelClosed(stream=number) if number in self._streams:
                self._close_stream(number)
            case _:
                pass

    def _open(self, number: int, window: int) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(0.0)  # a TensorBoard that accepts nobody is not waited for
        try:
            if self._tensorboard is None or len(self._streams) >= MAX_STREAMS or number in self._streams:
                raise ConnectionRefusedError
            sock.connect(self._path)
        except OSError:
            sock.close()
            self._send(m.TunnelClosed(rank=self._rank, stream=number))
            return
        self._streams[number] = _Stream(sock, window)
        self._see_to(number)

    def _see_to(self, number: int) -> None:
        """Read from the stream only while the driver has room for what it says."""
        stream = self._streams[number]
        wanted = stream.credit > 0
        if wanted and not stream.watched:
            self._loop.watch(stream.sock.fileno(), lambda: self._read(number))
        elif stream.watched and not wanted:
            self._loop.unwatch(stream.sock.fileno())
        stream.watched = wanted

    def _read(self, number: int) -> None:
        stream = self._streams.get(number)
        if stream is None:
            return
        try:
            data = stream.sock.recv(min(CHUNK_BYTES, stream.credit))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close_stream(number)
            self._send(m.TunnelClosed(rank=self._rank, stream=number))
            return
        self._send(m.TunnelData(rank=self._rank, stream=number, offset=stream.sent, data=data))
        stream.sent += len(data)
        stream.credit -= len(data)
        self._see_to(number)

    def _take(self, number: int, message: m.TunnelData) -> None:
        stream = self._streams[number]
        if message.offset != stream.received:
            self._fail_stream(number)  # something was lost on the way
            return
        stream.received += len(message.data)
        stream.unwritten += message.data
        self._write(number)

    def flush(self) -> None:
        """Go on writing where TensorBoard was slow to read; called often."""
        for number in [number for number, stream in self._streams.items() if stream.unwritten]:
            self._write(number)

    def _write(self, number: int) -> None:
        stream = self._streams[number]
        try:
            written = stream.sock.send(stream.unwritten)
        except BlockingIOError:
            return
        except OSError:
            self._fail_stream(number)
            return
        del stream.unwritten[:written]
        self._send(m.TunnelCredit(rank=self._rank, stream=number, size=written))

    def _fail_stream(self, number: int) -> None:
        self._close_stream(number)
        self._send(m.TunnelClosed(rank=self._rank, stream=number))

    def _close_stream(self, number: int) -> None:
        stream = self._streams.pop(number)
        if stream.watched:
            self._loop.unwatch(stream.sock.fileno())
        stream.sock.close()

    def close(self) -> None:
        """Close all streams and end TensorBoard; may be called twice."""
        for number in list(self._streams):
            self._close_stream(number)
        self._drop_tensorboard()
