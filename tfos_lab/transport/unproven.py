"""Bounds what peers without the keys cost a ZeroMQ listener: some connections, each with at most one small frame.

ZeroMQ accepts every connection, so that peers could take all descriptors of the process. Its monitor tells of each
connection, and the kernel tells how many of our bytes the peer has acknowledged. In a handshake that is a known number:
a peer that has had no more has not shown the keys.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import struct

import zmq

from tfos_lab.transport.link import MAX_FRAME_BYTES

#: How many connections may be open that have not shown the keys, or as many as there are nodes: they may all come at
#: once. The oldest ones are closed.
MAX_UNPROVEN = 128
#: How long a handshake may take.
HANDSHAKE_S = 10.0
# Closing some at once costs less than closing each as the next one comes.
_CLOSED_AT_ONCE = 32
# What has been acknowledged of CURVE's answers (https://rfc.zeromq.org/spec/26) and the SYN before them: the greeting
# is for everybody, WELCOME for a HELLO that was made with our public key, or copied on the way.
_GREETED_BYTES = 1 + 64
_WELCOMED_BYTES = _GREETED_BYTES + 170
# The place of tcpi_bytes_acked in Linux' `struct tcp_info`.
_ACKNOWLEDGED = struct.Struct("=120xQ")
_EVENT = struct.Struct("=Hi")


class UnprovenConnections:
    """Knows a socket's connections that have not shown the keys, and closes those that are too many.

    For the thread that answers requests to authenticate.

    Parameters
    ----------
    router : zmq.Socket
        Not bound yet.
    nodes : int
        How many connections are expected.

    Attributes
    ----------
    monitor : zmq.Socket
        Can be read when `update` has something to do.
    """

    def __init__(self, router: zmq.Socket[bytes], nodes: int = 0) -> None:
        self._most = max(MAX_UNPROVEN, nodes)
        router.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        router.setsockopt(zmq.HANDSHAKE_IVL, int(HANDSHAKE_S * 1000))
        self._router = router
        endpoint = f"inproc://monitor-{id(self)}"
        router.monitor(endpoint, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self.monitor = router.context.socket(zmq.PAIR)
        self.monitor.setsockopt(zmq.RCVHWM, 0)  # a full queue of events would stop ZeroMQ's own thread
        self.monitor.connect(endpoint)
        self._numbers = itertools.count()
        self._accepted: dict[int, int] = {}

    def update(self, port: int) -> None:
        """Take note of what has come and gone, and close connections to our ``port`` that are too many."""
        with contextlib.suppress(zmq.Again):
            while True:
                self._take(self.monitor.recv_multipart(zmq.NOBLOCK)[0])
        if len(self._accepted) > self._most:
            self._close_some(port)

    def _take(self, event: bytes) -> None:
        kind, descriptor = _EVENT.unpack(event)
        if kind == zmq.EVENT_ACCEPTED:
            self._accepted[descriptor] = next(self._numbers)
        else:
            self._accepted.pop(descriptor, None)

    def _close_some(self, port: int) -> None:
        """Forget who has shown the keys; of the others close first who has shown less, then who came first."""
        unproven = []
        for descriptor, number in self._accepted.items():
            shown = _shown(descriptor, port)
            if shown is not None:
                unproven.append((shown, number, descriptor))
        unproven.sort()
        too_many = len(unproven) - self._most
        closed = unproven[: too_many + _CLOSED_AT_ONCE] if too_many > 0 else []
        for _, _, descriptor in closed:
            _shown(descriptor, port, close=True)
        self._accepted = {descriptor: number for _, number, descriptor in unproven[len(closed) :]}

    def close(self) -> None:
        """Forget all connections; to be called before the router is closed."""
        self._router.disable_monitor()
        self.monitor.close(linger=0)


def _connection(descriptor: int, port: int) -> socket.socket | None:
    """Return another handle of the connection to ``port`` with this descriptor; None if ZeroMQ has closed it by now."""
    copy = -1
    try:
        copy = os.dup(descriptor)
        handle = socket.socket(fileno=copy)
    except OSError:  # it is closed, or another file's by now
        if copy >= 0:
            os.close(copy)
        return None
    with contextlib.suppress(OSError):
        name = handle.getsockname()
        if isinstance(name, tuple) and name[1] == port:
            return handle
    handle.close()
    return None


def _shown(descriptor: int, port: int, *, close: bool = False) -> int | None:
    """Return how far a connection without the keys has come in the handshake, and end it if so asked.

    None if it has shown the keys, or is gone.
    """
    connection = _connection(descriptor, port)
    if connection is None:
        return None
    with connection, contextlib.suppress(OSError):
        data = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED.size)
        (acknowledged,) = _ACKNOWLEDGED.unpack(data)
        if acknowledged <= _WELCOMED_BYTES:
            if close:
                connection.shutdown(socket.SHUT_RDWR)
            return int(acknowledged > _GREETED_BYTES)
    return None
