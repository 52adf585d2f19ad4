"""The agent's end of the tunnel: it never sends more than the driver has given credit for, and never blocks."""

from __future__ import annotations

import socket

import pytest

from tests.node.conftest import PATIENCE_S
from tfos_lab import messages as m
from tfos_lab.node.tensorboard.tunnel import MAX_STREAMS, AgentTunnel

RANK = 2


class Loop:
    """A poll loop that calls back when the test says so."""

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
    """The tunnel, with a fake TensorBoard."""

    def __init__(self, folder):
        self.sent_messages = []
        self.loop = Loop()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(folder / "tensorboard"))
        self.listener.listen()
        self.listener.settimeout(PATIENCE_S)
        self.tunnel = AgentTunnel(RANK, self.sent_messages.append, self.loop)
        self.tunnel._path = str(folder / "tensorboard")
        self.tunnel._tensorboard = _NoTensorBoard()

    def open(self, number=1, window=100):
        self.tunnel.handle(m.TunnelOpen(stream=number, window=window))
        connection, _ = self.listener.accept()
        connection.settimeout(PATIENCE_S)
        return connection

    def sent_bytes(self):
        return b"".join(message.data for message in self.sent_messages if isinstance(message, m.TunnelData))


class _NoTensorBoard:
    start_report = fork_server = None

    def close(self):
        pass


@pytest.fixture
def rig(short_folder):
    rig = Rig(short_folder)
    yield rig
    rig.tunnel.close()
    rig.listener.close()
    assert rig.loop.callbacks == {}


def test_a_page_is_sent_as_credit_is_given(rig):
    page = bytes(range(250))
    tensorboard = rig.open(window=100)
    tensorboard.sendall(page)
    rig.loop.turn()
    rig.loop.turn()
    assert rig.sent_bytes() == page[:100]
    assert rig.loop.callbacks == {}, "without credit nothing is read"
    rig.tunnel.handle(m.TunnelCredit(rank=RANK, stream=1, size=100))
    rig.loop.turn()
    rig.tunnel.handle(m.TunnelCredit(rank=RANK, stream=1, size=100))
    rig.loop.turn()
    assert rig.sent_bytes() == page
    tensorboard.close()
    rig.loop.turn()
    assert rig.sent_messages[-1] == m.TunnelClosed(rank=RANK, stream=1)


def test_a_request_reaches_tensorboard_and_is_acknowledged(rig):
    tensorboard = rig.open()
    rig.tunnel.handle(m.TunnelData(rank=RANK, stream=1, offset=0, data=b"GET / "))
    rig.tunnel.handle(m.TunnelData(rank=RANK, stream=1, offset=6, data=b"HTTP/1.1"))
    assert tensorboard.recv(100) == b"GET / HTTP/1.1"
    assert [message.size for message in rig.sent_messages if isinstance(message, m.TunnelCredit)] == [6, 8]


def test_a_request_with_a_gap_closes_the_stream(rig):
    tensorboard = rig.open()
    rig.tunnel.handle(m.TunnelData(rank=RANK, stream=1, offset=6, data=b"HTTP/1.1"))
    assert tensorboard.recv(100) == b""
    assert rig.sent_messages == [m.TunnelClosed(rank=RANK, stream=1)]


def test_a_tensorboard_that_does_not_read_is_not_waited_for(rig):
    tensorboard = rig.open()
    size = 4 << 20
    rig.tunnel.handle(m.TunnelData(rank=RANK, stream=1, offset=0, data=b"x" * size))
    assert sum(message.size for message in rig.sent_messages if isinstance(message, m.TunnelCredit)) < size
    taken = 0
    while taken < size:
        taken += len(tensorboard.recv(1 << 20))
        rig.tunnel.flush()
    assert sum(message.size for message in rig.sent_messages if isinstance(message, m.TunnelCredit)) == size


def test_too_many_streams_are_refused(rig):
    tensorboards = [rig.open(number) for number in range(MAX_STREAMS)]
    rig.tunnel.handle(m.TunnelOpen(stream=MAX_STREAMS, window=100))
    assert rig.sent_messages == [m.TunnelClosed(rank=RANK, stream=MAX_STREAMS)]
    for tensorboard in tensorboards:
        tensorboard.close()


def test_without_a_tensorboard_a_stream_ends_at_once(rig):
    rig.tunnel._tensorboard = None
    rig.tunnel.handle(m.TunnelOpen(stream=1, window=100))
    assert rig.sent_messages == [m.TunnelClosed(rank=RANK, stream=1)]
