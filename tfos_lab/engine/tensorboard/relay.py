"""One connection to a run's socket: relays it to the tunnel or to a local TensorBoard, or responds with a sentence."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import dataclass

from tfos_lab.engine.tensorboard.message_page import message_page
from tfos_lab.engine.tensorboard.tunnel import CHUNK_BYTES, Tunnel

_END_OF_REQUEST = b"\r\n\r\n"


@dataclass(frozen=True)
class Connection:
    """One client's connection to the run's socket."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def relay_to_tunnel(self, tunnel: Tunnel) -> bool:
        """Relay to the chief's TensorBoard, from the first bytes of a request on; return whether it has answered."""
        request = await self.reader.read(CHUNK_BYTES)
        stream = tunnel.open()
        answered = False

        async def send() -> None:
            data = request
            while data:
                await stream.write(data)
                data = await self.reader.read(CHUNK_BYTES)

        async def receive() -> None:
            nonlocal answered
            while data := await stream.read():
                answered = True
                self.writer.write(data)
                await self.writer.drain()

        try:
            await _until_one_ends(send(), receive())
        finally:
            stream.close()
        return answered

    async def relay_to(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay to another connection, and close that one."""
        try:
            await _until_one_ends(_copy(self.reader, writer), _copy(reader, self.writer))
        finally:
            writer.close()

    async def skip_request(self) -> None:
        """Read the request's headers: a client does not expect a response before it has sent them."""
        await self.reader.readuntil(_END_OF_REQUEST)

    async def respond(self, sentence: str, *, retry: bool = False) -> None:
        """Respond with a page that holds one sentence."""
        page = message_page(sentence, retry=retry).encode()
        self.writer.write(
            b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\n"
            b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(page), page)
        )
        await self.writer.drain()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(CHUNK_BYTES):
        target.write(data)
        await target.drain()


async def _until_one_ends(*directions: Coroutine[None, None, None]) -> None:
    """Run both directions of a connection until one of them ends."""
    tasks = [asyncio.ensure_future(direction) for direction in directions]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(OSError):
            await asyncio.gather(*tasks, return_exceptions=True)
