"""Has TCP repeat what was lost at even times, so that a link that was cut for seconds is heard of soon afterwards.

As a rule each repetition waits twice as long as the one before. After a cut of 2 s, a heartbeat from its beginning then
arrives up to 2 s later, or more where packets take long, and a node that runs would be called lost. Linux repeats six
times at even times where it is asked to, for connections that have little under way, as ours.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct

import zmq

#: TCP_THIN_LINEAR_TIMEOUTS of Linux, which Python has no name for; other systems refuse it.
EVEN_TIMES = 16
_EVENT = struct.Struct("=hi")


class EvenRetransmission:
    """Asks for it on each connection that a socket of ZeroMQ's makes; for the thread that uses the socket.

    Parameters
    ----------
    connecting : zmq.Socket
        Before it connects.
    """

    def __init__(self, connecting: zmq.Socket[bytes]) -> None:
        self._connecting = connecting
        endpoint = f"inproc://connected-{id(self)}"
        connecting.monitor(endpoint, zmq.EVENT_CONNECTED)
        self._monitor = connecting.context.socket(zmq.PAIR)
        self._monitor.connect(endpoint)

    def update(self) -> None:
        """Ask for connections made since; called often."""
        with contextlib.suppress(zmq.Again):
            while True:
                _, descriptor = _EVENT.unpack(self._monitor.recv_multipart(zmq.NOBLOCK)[0])
                _ask(descriptor)

    def close(self) -> None:
        """Watch no longer; to be called before the socket is closed."""
        self._connecting.disable_monitor()
        self._monitor.close(linger=0)


def _ask(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # ZeroMQ has closed it by now
        handle = os.dup(descriptor)
        try:
            connection = socket.socket(fileno=handle)
        except OSError:
            os.close(handle)
            raise
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, EVEN_TIMES, 1)
