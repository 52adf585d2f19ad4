"""The driver's end of the tunnel: it respects windows, and ends streams on lost or excess data."""

from __future__ import annotations

import asyncio

import pytest

from tfos_lab import messages as m
from tfos_lab.engine.tensorboard.tunnel import WINDOW_BYTES, Tunnel

RANK = 1


@pytest.fixture
def sent():
    return []


@pytest.fixture
def tunnel(sent):
    tunnel = Tunnel(RANK, lambda change: sent.extend(send.message for send in change(0.0)))
    tunnel.handle(m.TensorBoardReady(rank=RANK))
    return tunnel


def data(text, offset=0, rank=RANK):
    return m.TunnelData(rank=rank, stream=1, offset=offset, data=text)


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


def test_data_is_read_in_order_and_gives_credit(tunnel, sent):
    async def use():
        stream = tunnel.open()
        tunnel.handle(data(b"abc"))
        tunnel.handle(data(b"de", offset=3))
        tunnel.handle(m.TunnelClosed(rank=RANK, stream=1))
        return [await stream.read() for _ in range(4)]

    assert asyncio.run(use()) == [b"abc", b"de", b"", b""]
    assert sent == [
        m.TunnelOpen(stream=1, window=WINDOW_BYTES),
        m.TunnelCredit(rank=RANK, stream=1, size=3),
        m.TunnelCredit(rank=RANK, stream=1, size=2),
    ]


def test_a_writer_waits_for_credit(tunnel, sent):
    async def use():
        stream = tunnel.open()
        writing = asyncio.ensure_future(stream.write(b"x" * (WINDOW_BYTES + 10)))
        await settle()
        waited = not writing.done()
        tunnel.handle(m.TunnelCredit(rank=RANK, stream=1, size=WINDOW_BYTES))
        await asyncio.wait_for(writing, 10)
        return waited

    assert asyncio.run(use())
    pieces = [message for message in sent if isinstance(message, m.TunnelData)]
    assert [piece.offset for piece in pieces] == [sum(len(p.data) for p in pieces[:i]) for i in range(len(pieces))]
    assert sum(len(piece.data) for piece in pieces) == WINDOW_BYTES + 10


@pytest.mark.parametrize(
    "message", [data(b"later", offset=5), data(b"x" * (WINDOW_BYTES + 1))], ids=["a gap", "more than the window"]
)
def test_a_stream_with_lost_or_excess_data_is_closed(tunnel, sent, message):
    async def use():
        stream = tunnel.open()
        tunnel.handle(message)
        return await stream.read()

    assert asyncio.run(use()) == b""
    assert sent[-1] == m.TunnelClosed(rank=RANK, stream=1)


def test_only_messages_of_the_chief_s_agent_are_handled(tunnel, sent):
    async def use():
        stream = tunnel.open()
        tunnel.handle(data(b"forged", rank=RANK + 1))
        tunnel.handle(data(b"real"))
        return await stream.read()

    assert asyncio.run(use()) == b"real"


@pytest.mark.parametrize(
    "message",
    [m.TensorBoardGone(rank=RANK, reason="no disk"), m.Reserve(RANK, "h", "h:1", 1, "0", [])],
    ids=["gone", "new"],
)
def test_streams_end_with_their_tensorboard(tunnel, sent, message):
    async def use():
        before = tunnel.open()
        tunnel.handle(message)
        after = tunnel.open()
        return await before.read(), await after.read()

    assert asyncio.run(use()) == (b"", b"")
    assert not tunnel.ready
