"""The agent's end of the tunnel: carries streams between the driver and the TensorBoard process of this node.

It works in the agent's poll loop and never blocks. Each stream may have one window of bytes under way in each
direction, so that logs and heartbeats never wait behind a page of TensorBoard.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from tfos_lab import messages as m
from tfos_lab.core.runtime_files import scratch_root
from tfos_lab.node.forkserver.client import ForkServerSpec
from tfos_lab.node.tensorboard.process import TensorBoardProcess
from tfos_lab.transport.poll_loop import PollLoop

CHUNK_BYTES = 1 << 16
# More than any page needs; further streams are refused.
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


class AgentTunnel:
    """The TensorBoard process of this node, and the streams to it.

    Parameters
    ----------
    rank : int
        The node's rank, for its messages.
    send : callable
        Sends a message to the driver.
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

    def start(self, fork_server: ForkServerSpec, log_dir: str, cwd: str) -> None:
        """Start TensorBoard for ``log_dir``; a message tells the driver when it serves, or why it does not."""
        try:
            self._path = str(scratch_root() / f"tensorboard-{os.getpid()}-{self._rank}.sock")
            self._tensorboard = TensorBoardProcess(fork_server, log_dir, self._path, cwd)
        except OSError as error:
            self._send(m.TensorBoardGone(rank=self._rank, reason=str(error)))
            return
        self._loop.watch(self._tensorboard.start_report, self._on_start_report)
        self._loop.watch(self._tensorboard.fork_server, self._on_fork_server)

    def _on_start_report(self) -> None:
        assert self._tensorboard is not None
        self._loop.unwatch(self._tensorboard.start_report)
        failure = self._tensorboard.wait_for_start()
        if failure:
            self._lose_tensorboard(failure)
        else:
            self._send(m.TensorBoardReady(rank=self._rank))

    def _on_fork_server(self) -> None:
        assert self._tensorboard is not None
        reason = self._tensorboard.exit_reason()
        if reason is not None:
            self._lose_tensorboard(reason)

    def _lose_tensorboard(self, reason: str) -> None:
        if self._tensorboard is not None:
            self._drop_tensorboard()
            self._send(m.TensorBoardGone(rank=self._rank, reason=reason))

    def _drop_tensorboard(self) -> None:
        if self._tensorboard is not None:
            self._loop.unwatch(self._tensorboard.start_report)
            self._loop.unwatch(self._tensorboard.fork_server)
            self._tensorboard.close()
            self._tensorboard = None

    # ---- streams ----------------------------------------------------------------------------------------------------

    def handle(self, message: m.ToAgent) -> None:
        """Handle the driver's message about a stream; ignored if the stream has ended."""
        match message:
            case m.TunnelOpen(stream=number, window=window):
                self._open(number, window)
            case m.TunnelData(stream=number) if number in self._streams:
                self._receive(number, message)
            case m.TunnelCredit(stream=number, size=size) if number in self._streams:
                self._streams[number].credit += size
                self._update_watch(number)
            case m.TunnelClosed(stream=number) if number in self._streams:
                self._close_stream(number)
            case _:
                pass

    def _open(self, number: int, window: int) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(0.0)  # do not wait for a TensorBoard that does not accept
        try:
            if self._tensorboard is None or len(self._streams) >= MAX_STREAMS or number in self._streams:
                raise ConnectionRefusedError
            sock.connect(self._path)
        except OSError:
            sock.close()
            self._send(m.TunnelClosed(rank=self._rank, stream=number))
            return
        self._streams[number] = _Stream(sock, window)
        self._update_watch(number)

    def _update_watch(self, number: int) -> None:
        """Read from TensorBoard only while the driver has given credit."""
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
            self._fail_stream(number)
            return
        self._send(m.TunnelData(rank=self._rank, stream=number, offset=stream.sent, data=data))
        stream.sent += len(data)
        stream.credit -= len(data)
        self._update_watch(number)

    def _receive(self, number: int, message: m.TunnelData) -> None:
        stream = self._streams[number]
        if message.offset != stream.received:
            self._fail_stream(number)  # a message was lost
            return
        stream.received += len(message.data)
        stream.unwritten += message.data
        self._write(number)

    def flush(self) -> None:
        """Continue writing to where TensorBoard was slow to read; called often."""
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
