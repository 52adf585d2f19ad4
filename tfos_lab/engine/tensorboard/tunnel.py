"""The driver's end of the tunnel: streams to the TensorBoard beside the chief, over the control channel.

The driver's server thread passes in the agent's messages (`handle`); the event loop of the unix sockets opens streams,
reads and writes. Each stream may have one window of bytes under way in each direction, so that logs and heartbeats
never wait behind a page.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from tfos_lab import messages as m
from tfos_lab.engine.state.instructions import Instruction, SendTo

WINDOW_BYTES = 1 << 18
CHUNK_BYTES = 1 << 16
# Further connections wait in the unix socket's queue.
MAX_STREAMS = 16

# Makes the server thread carry out the instructions that ``change(now_s)`` returns.
Request = Callable[[Callable[[float], list[Instruction]]], None]


class TunnelStream:
    """One stream to TensorBoard; used in the sockets' event loop only."""

    def __init__(self, tunnel: Tunnel, number: int) -> None:
        self._tunnel = tunnel
        self._number = number
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue()
        self._has_credit = asyncio.Event()
        self._send_credit = WINDOW_BYTES
        self._receive_window = WINDOW_BYTES
        self._sent = 0
        self._received = 0
        self.closed = False

    async def read(self) -> bytes:
        """Return the next bytes, or none at the end."""
        if self.closed and self._arrived.empty():
            return b""
        data = await self._arrived.get()
        if data:
            self._receive_window += len(data)
            rank = self._tunnel.rank
            self._tunnel.send(m.TunnelCredit(rank=rank, stream=self._number, size=len(data)))
        return data

    async def write(self, data: bytes) -> None:
        """Send bytes, as fast as TensorBoard takes them; does nothing once the stream is closed."""
        while data and not self.closed:
            while self._send_credit <= 0 and not self.closed:
                self._has_credit.clear()
                await self._has_credit.wait()
            size = min(self._send_credit, CHUNK_BYTES)
            piece, data = data[:size], data[size:]
            rank = self._tunnel.rank
            self._tunnel.send(m.TunnelData(rank=rank, stream=self._number, offset=self._sent, data=piece))
            self._sent += len(piece)
            self._send_credit -= len(piece)

    def close(self) -> None:
        """End the stream on both sides; may be called twice."""
        if not self.closed:
            self._tunnel.send(m.TunnelClosed(rank=self._tunnel.rank, stream=self._number))
        self.end()

    def handle(self, message: m.FromAgent) -> None:
        """Handle a message of the agent about this stream."""
        match message:
            case m.TunnelData(offset=offset, data=data):
                # A message was lost, or the agent exceeds its window.
                if offset != self._received or len(data) > self._receive_window:
                    self.close()
                    return
                self._received += len(data)
                self._receive_window -= len(data)
                self._arrived.put_nowait(data)
            case m.TunnelCredit(size=size):
                self._send_credit += size
                self._has_credit.set()
            case m.TunnelClosed():
                self.end()
            case _:
                pass

    def end(self) -> None:
        """Mark the stream as closed by the other end; bytes that have arrived can still be read."""
        if not self.closed:
            self.closed = True
            self._arrived.put_nowait(b"")
            self._has_credit.set()
            self._tunnel.forget(self._number)


class Tunnel:
    """The driver's view of the chief's TensorBoard, and the streams to it.

    Parameters
    ----------
    rank : int
        The chief's rank.
    request : callable
        The server's `request`.

    Attributes
    ----------
    ready : bool
        Whether TensorBoard serves.
    failure : str
        Why it does not, if it has failed.
    """

    def __init__(self, rank: int, request: Request) -> None:
        self.rank = rank
        self.ready = False
        self.failure = ""
        self._request = request
        self._numbers = itertools.count(1)
        self._streams: dict[int, TunnelStream] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    # ---- the server thread ------------------------------------------------------------------------------------------

    def handle(self, message: m.FromAgent) -> None:
        """Handle a message if it comes from the chief's agent and is about TensorBoard."""
        match message:
            case m.Reserve(rank=rank) if rank == self.rank:
                self._lose("")  # a new agent has taken the rank
            case m.TensorBoardReady(rank=rank) if rank == self.rank:
                self.ready, self.failure = True, ""
            case m.TensorBoardGone(rank=rank, reason=reason) if rank == self.rank:
                self._lose(reason)
            case m.TunnelData() | m.TunnelCredit() | m.TunnelClosed() if message.rank == self.rank:
                self._call_in_loop(lambda: self._dispatch(message))
            case _:
                pass

    def close(self) -> None:
        """End all streams: the cluster has ended, and its TensorBoard with it."""
        self._lose("")

    def _lose(self, failure: str) -> None:
        self.ready, self.failure = False, failure
        self._call_in_loop(self._end_all)

    def _call_in_loop(self, callback: Callable[[], None]) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(callback)

    # ---- the sockets' event loop ------------------------------------------------------------------------------------

    def open(self) -> TunnelStream:
        """Open a stream; it ends at once if TensorBoard is not ready."""
        self._loop = asyncio.get_running_loop()
        number = next(self._numbers)
        stream = self._streams[number] = TunnelStream(self, number)
        if self.ready:
            self.send(m.TunnelOpen(stream=number, window=WINDOW_BYTES))
        else:
            stream.end()
        return stream

    def send(self, message: m.ToAgent) -> None:
        """Send a message to the chief's agent."""
        self._request(lambda _now_s: [SendTo(self.rank, message)])

    def forget(self, number: int) -> None:
        """Drop a stream that has ended."""
        self._streams.pop(number, None)

    def _dispatch(self, message: m.TunnelData | m.TunnelCredit | m.TunnelClosed) -> None:
        stream = self._streams.get(message.stream)
        if stream is not None:
            stream.handle(message)

    def _end_all(self) -> None:
        for stream in list(self._streams.values()):
            stream.end()
