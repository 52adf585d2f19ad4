"""The agent's end of the tunnel: it never sends more than the driver has room for, and never waits."""

from __future__ import annotations

import socket

import pytest

from tests.node.conftest import PATIENCE_S
from tfos_lab import messages as m
from tfos_lab.node.tensorboard.tunnel import MAX_STREAMS, Tunnel

SEAT = 2


class Loop:
    """A poll loop that calls back when it is told to."""

    def __init__(self):
        self.callbacks = {}

    def watch(self, fd, callback):
        self.callbacks[fd] = callback

    def unwatch(self, fd):
        self.callbacks.pop(fd, None)

    def turn(self):
        for callback in list(self.callbacks.values()):
            callback()


class Rig:
    """The tunnel, with a listener in TensorBoard's place."""

    def __init__(self, folder):
        self.said = []
        self.loop = Loop()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(folder / "board"))
        self.listener.listen()
        self.listener.settimeout(PATIENCE_S)
        self.tunnel = Tunnel(SEAT, self.said.append, self.loop)
        self.tunnel._path = str(folder / "board")
        self.tunnel._board = _NoBoard()

    def open(self, number=1, window=100):
        self.tunnel.obey(m.TunnelOpen(stream=number, window=window))
        connection, _ = self.listener.accept()
        connection.settimeout(PATIENCE_S)
        return connection

    def sent(self):
        return b"".join(message.data for message in self.said if isinstance(message, m.TunnelData))


class _NoBoard:
    words = nursery = type("Nothing", (), {"fileno": lambda self: -1})()

    def close(self):
        pass


@pytest.fixture
def rig(short_folder):
    rig = Rig(short_folder)
    yield rig
    rig.tunnel.close()
    rig.listener.close()
    assert rig.loop.callbacks == {}


def test_a_page_comes_in_windows_as_credit_is_given(rig):
    page = bytes(range(250))
    board = rig.open(window=100)
    board.sendall(page)
    rig.loop.turn()
    rig.loop.turn()
    assert rig.sent() == page[:100]
    assert rig.loop.callbacks == {}, "without credit nothing is read"
    rig.tunnel.obey(m.TunnelCredit(seat=SEAT, stream=1, size=100))
    rig.loop.turn()
    rig.tunnel.obey(m.TunnelCredit(seat=SEAT, stream=1, size=100))
    rig.loop.turn()
    assert rig.sent() == page
    board.close()
    rig.loop.turn()
    assert rig.said[-1] == m.TunnelClosed(seat=SEAT, stream=1)


def test_a_request_reaches_tensorboard_and_is_acknowledged(rig):
    board = rig.open()
    rig.tunnel.obey(m.TunnelData(seat=SEAT, stream=1, offset=0, data=b"GET / "))
    rig.tunnel.obey(m.TunnelData(seat=SEAT, stream=1, offset=6, data=b"HTTP/1.1"))
    assert board.recv(100) == b"GET / HTTP/1.1"
    assert [message.size for message in rig.said if isinstance(message, m.TunnelCredit)] == [6, 8]


def test_a_request_with_a_gap_closes_the_stream(rig):
    board = rig.open()
    rig.tunnel.obey(m.TunnelData(seat=SEAT, stream=1, offset=6, data=b"HTTP/1.1"))
    assert board.recv(100) == b""
    assert rig.said == [m.TunnelClosed(seat=SEAT, stream=1)]


def test_who_does_not_read_is_not_waited_for(rig):
    board = rig.open()
    size = 4 << 20
    rig.tunnel.obey(m.TunnelData(seat=SEAT, stream=1, offset=0, data=b"x" * size))
    assert sum(message.size for message in rig.said if isinstance(message, m.TunnelCredit)) < size
    taken = 0
    while taken < size:
        taken += len(board.recv(1 << 20))
        rig.tunnel.flush()
    assert sum(message.size for message in rig.said if isinstance(message, m.TunnelCredit)) == size


def test_too_many_streams_are_refused(rig):
    boards = [rig.open(number) for number in range(MAX_STREAMS)]
    rig.tunnel.obey(m.TunnelOpen(stream=MAX_STREAMS, window=100))
    assert rig.said == [m.TunnelClosed(seat=SEAT, stream=MAX_STREAMS)]
    for board in boards:
        board.close()


def test_without_a_tensorboard_a_stream_ends_at_once(rig):
    rig.tunnel._board = None
    rig.tunnel.obey(m.TunnelOpen(stream=1, window=100))
    assert rig.said == [m.TunnelClosed(seat=SEAT, stream=1)]
