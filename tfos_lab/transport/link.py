"""The node's end of the control channel: ZeroMQ with CURVE keys. The driver's is `tfos_lab.transport.listener`."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import zmq

from tfos_lab.messages import DriverAddress

#: The driver takes no larger frame: it would end the connection. A message may have many frames.
MAX_FRAME_BYTES = 1 << 16
# What encryption adds to a frame.
_SEAL_BYTES = 64
_PART_BYTES = MAX_FRAME_BYTES - _SEAL_BYTES


class Link:
    """An agent's end of the channel.

    Parameters
    ----------
    driver : DriverAddress
        Where the driver listens, and the keys.
    identity : bytes
        The address for the driver's answers; must be unique for each agent process.
    """

    def __init__(self, driver: DriverAddress, identity: bytes) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.IDENTITY, identity)
        self.socket.setsockopt(zmq.LINGER, 1000)
        self.socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
        self.socket.setsockopt(zmq.IPV6, int("[" in driver.endpoint))
        self.socket.curve_serverkey = driver.server_key.encode()
        self.socket.curve_publickey = driver.client_public_key.encode()
        self.socket.curve_secretkey = driver.client_secret_key.encode()
        self.socket.connect(driver.endpoint)

    def send(self, data: bytes) -> None:
        """Send one message to the driver; waits at most a second for room in the send buffer.

        It goes in small frames: the driver takes no large ones, as peers without the keys could send them, too.
        """
        if self.socket.poll(1000, zmq.POLLOUT):
            with contextlib.suppress(zmq.Again):
                self.socket.send_multipart(_parts(data), zmq.NOBLOCK)

    def receive(self) -> Iterator[bytes]:
        """Yield the messages that have arrived, without waiting."""
        while True:
            try:
                yield self.socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return

    def close(self) -> None:
        """Close; messages under way have a second to leave."""
        self.socket.close()
        self._context.term()


def _parts(data: bytes) -> list[bytes | memoryview]:
    if len(data) <= _PART_BYTES:
        return [data]
    view = memoryview(data)
    return [view[start : start + _PART_BYTES] for start in range(0, len(data), _PART_BYTES)]


def address_towards(endpoint: str) -> str:
    """Return this host's address on the route to ``endpoint`` (``tcp://host:port``); no packet is sent."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    host = host.strip("[]")
    family, kind, _, _, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])
