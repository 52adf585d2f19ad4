"""The driver's end of the tunnel: streams to the TensorBoard beside the chief, carried by the control channel.

The server's thread hands in what the agent says (`handle`); the sockets' loop opens streams, reads and writes. Each
stream may have one window of bytes under way in each direction, so that logs and beats never wait behind a page.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from tfos_lab import messages as m
from tfos_lab.engine.state.instructions import Instruction, SendTo

WINDOW_BYTES = 1 << 18
CHUNK_BYTES = 1 << 16
# Further connections wait in the socket's queue.
MAX_STREAMS = 16

# Has the server's thread carry out what ``change(now_s)`` returns.
Request = Callable[[Callable[[float], list[Instruction]]], None]


class TunnelStream:
    """One stream to TensorBoard; used within the sockets' loop only."""

    def __init__(self, tunnel: Tunnel, number: int) -> None:
        self._tunnel = tunnel
        self._number = number
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue()
        self._room = asyncio.Event()
        self._credit = WINDOW_BYTES
        self._allowed = WINDOW_BYTES
        self._sent = 0
        self._received = 0
        self.closed = False

    async def read(self) -> bytes:
        """Return the next bytes, or none at the end."""
        if self.closed and self._arrived.empty():
            return b""
        data = await self._arrived.get()
        if data:
            self._allowed += len(data)
            rank = self._tunnel.rank
            self._tunnel.say(m.TunnelCredit(rank=rank, stream=self._number, size=len(data)))
        return data

    async def write(self, data: bytes) -> None:
        """Send bytes, as fast as TensorBoard takes them; silence when the stream is closed."""
        while data and not self.closed:
            while self._credit <= 0 and not self.closed:
                self._room.clear()
                await self._room.wait()
            piece, data = data[: min(self._credit, CHUNK_BYTES)], data[min(self._credit, CHUNK_BYTES) :]
            rank = self._tunnel.rank
            self._tunnel.say(m.TunnelData(rank=rank, stream=self._number, offset=self._sent, data=piece))
            self._sent += len(piece)
            self._credit -= len(piece)

    def close(self) -> None:
        """End the stream on both sides; may be called twice."""
        if not self.closed:
            self._tunnel.say(m.TunnelClosed(rank=self._tunnel.rank, stream=self._number))
        self.end()

    def take(self, message: m.FromAgent) -> None:
        """Take in what the agent says of this stream."""
        match message:
            case m.TunnelData(offset=offset, data=data):
                # Something was lost on the way, or the agent does not keep to its window.
                if offset != self._received or len(data) > self._allowed:
                    self.close()
                    return
                self._received += len(data)
                self._allowed -= len(data)
                self._arrived.put_nowait(data)
            case m.TunnelCredit(size=size):
                self._credit += size
                self._room.set()
            case m.TunnelClosed():
                self.end()
            case _:
                pass

    def end(self) -> None:
        """The other end is gone: what has arrived can still be read."""
        if not self.closed:
            self.closed = True
            self._arrived.put_nowait(b"")
            self._room.set()
            self._tunnel.forget(self._number)


class Tunnel:
    """What the driver knows of the chief's TensorBoard, and the streams to it.

    Parameters
    ----------
    rank : int
        The chief's.
    request : callable
        The server's `request`.
    """

    def __init__(self, rank: int, request: Request) -> None:
        self.rank = rank
        self.ready = False
        self.trouble = ""
        self._request = request
        self._numbers = itertools.count(1)
        self._streams: dict[int, TunnelStream] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    # ---- the server's thread ----------------------------------------------------------------------------------------

    def handle(self, message: m.FromAgent) -> None:
        """Take in what the chief's agent says, if it is about TensorBoard."""
        match message:
            case m.Reserve(rank=rank) if rank == self.rank:
                self._lose("")  # a new agent has taken the rank
            case m.TensorBoardReady(rank=rank) if rank == self.rank:
                self.ready, self.trouble = True, ""
            case m.TensorBoardGone(rank=rank, reason=reason) if rank == self.rank:
                self._lose(reason)
            case m.TunnelData() | m.TunnelCredit() | m.TunnelClosed() if message.rank == self.rank:
                self._in_loop(lambda: self._pass_on(message))
            case _:
                pass

    def close(self) -> None:
        """The cluster is over: TensorBoard goes with it."""
        self._lose("")

    def _lose(self, trouble: str) -> None:
        self.ready, self.trouble = False, trouble
        self._in_loop(self._end_all)

    def _in_loop(self, act: Callable[[], None]) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(act)

    # ---- the sockets' loop ------------------------------------------------------------------------------------------

    def open(self) -> TunnelStream:
        """Open a stream; it ends at once where nobody answers."""
        self._loop = asyncio.get_running_loop()
        number = next(self._numbers)
        stream = self._streams[number] = TunnelStream(self, number)
        if self.ready:
            self.say(m.TunnelOpen(stream=number, window=WINDOW_BYTES))
        else:
            stream.end()
        return stream

    def say(self, message: m.ToAgent) -> None:
        """Say something to the chief's agent."""
        self._request(lambda _now_s: [SendTo(self.rank, message)])

    def forget(self, number: int) -> None:
        """Hear no more of a stream."""
        self._streams.pop(number, None)

    def _pass_on(self, message: m.TunnelData | m.TunnelCredit | m.TunnelClosed) -> None:
        stream = self._streams.get(message.stream)
        if stream is not None:
            stream.take(message)

    def _end_all(self) -> None:
        for stream in list(self._streams.values()):
            stream.end()
