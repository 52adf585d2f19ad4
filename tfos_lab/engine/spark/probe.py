"""Asks servers whether they are there, each on its port.

The system takes connections for a process that is stopped, too: only an answer shows that it runs. That none comes
shows little by itself: a connection may be lost, a JVM may collect its garbage, and on a busy machine both sides wait
for their turn. So each is asked twice, some time apart, and silence counts in time in which this process was there to
hear the answer, as in `tfos_lab.engine.state.silence`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

#: A server's host and port.
Place = tuple[str, int]

#: What is said of one that takes connections, and nothing else.
SILENT = "it takes connections and says nothing, as a process that is stopped or hangs"
#: What is said of one that takes none.
TIMED_OUT = os.strerror(errno.ETIMEDOUT)
#: After how many seconds both are said.
SILENCE_S = 3.5
# When they are asked again.
_AGAIN_S = 1.0
# A wait takes so long. What it takes longer says that this machine is busy, or was asleep, and does not count.
_TICK_S = 0.1
_MAX_ANSWER = 65_536
# So long an answer on a connection that is kept may take, before others are made.
_PROMPT_S = 0.3
# Who has answered once: what has never answered may be no such server, but what stands before it.
_answered: set[Place] = set()


def why_lost(places: Sequence[Place], question: Callable[[str], bytes]) -> str:
    """Return why nobody answers at any of these places, as the first of them; "" if somebody does, or never has.

    Takes no time where somebody answers or all refuse, else a little more than `SILENCE_S` seconds.

    Parameters
    ----------
    places : sequence of (host, port)
        Servers that stand by for one another.
    question : callable
        Returns, for a host, what a server answers or closes the connection for.
    """
    with contextlib.closing(_Inquiry(places, question)) as inquiry:
        return inquiry.result()


def has_answered(place: Place) -> bool:
    """Whether somebody has ever answered there."""
    return place in _answered


class KeptConnection:
    """A connection to ask a server on, again and again: a standalone master logs the end of each connection.

    Parameters
    ----------
    places : sequence of (host, port)
        Servers that stand by for one another.
    question : bytes
        What a server answers.
    """

    def __init__(self, places: Sequence[Place], question: bytes) -> None:
        self._places = places
        self._question = question
        self._kept: tuple[socket.socket, Place] | None = None

    def answers(self) -> bool:
        """Ask; return whether somebody has answered at once. If not, `why_lost` finds out more."""
        return self._is_answered() or any(self._connects(place) and self._is_answered() for place in self._places)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._kept is not None:
            self._kept[0].close()
            self._kept = None

    def _connects(self, place: Place) -> bool:
        with contextlib.suppress(OSError):
            self._kept = socket.create_connection(place, _PROMPT_S), place
        return self._kept is not None

    def _is_answered(self) -> bool:
        if self._kept is None:
            return False
        connection, place = self._kept
        with contextlib.suppress(OSError):
            connection.sendall(self._question)
            if connection.recv(_MAX_ANSWER):
                _answered.add(place)
                return True
        self.close()
        return False


class _Inquiry:
    """Connections to some places, and why there are none to others."""

    def __init__(self, places: Sequence[Place], question: Callable[[str], bytes]) -> None:
        self._places = places
        self._question = question
        self._poll = select.poll()
        self._open: dict[int, tuple[socket.socket, Place]] = {}
        self._connected: set[Place] = set()
        self._refused: dict[Place, str] = {}

    def result(self) -> str:
        """Ask twice at most, and return why nobody answers."""
        self._ask()
        silence_s, asked_again = 0.0, False
        while self._open and silence_s < SILENCE_S:
            if silence_s >= _AGAIN_S and not asked_again:
                asked_again = True
                self._ask()
            since_s = time.monotonic()
            if any(self._is_answer(*ready) for ready in self._poll.poll(_TICK_S * 1000)):
                return ""
            silence_s += min(time.monotonic() - since_s, _TICK_S)
        reasons = [self._reason(place) for place in self._places]
        return reasons[0] if reasons and all(reasons) else ""

    def close(self) -> None:
        """Close all connections."""
        for connection, _place in self._open.values():
            connection.close()

    def _ask(self) -> None:
        for place in self._places:
            try:
                for family, kind, protocol, _name, address in socket.getaddrinfo(*place, type=socket.SOCK_STREAM):
                    self._connect(place, socket.socket(family, kind, protocol), address)
            except OSError as error:
                self._refused[place] = error.strerror or str(error)

    def _connect(self, place: Place, connection: socket.socket, address: tuple[Any, ...]) -> None:
        connection.settimeout(0)
        self._open[connection.fileno()] = connection, place
        if (number := connection.connect_ex(address)) in (0, errno.EINPROGRESS):
            self._poll.register(connection, select.POLLOUT)
        else:
            self._drop(connection.fileno(), number)

    def _is_answer(self, descriptor: int, events: int) -> bool:
        """Go on with a connection; return whether it shows that somebody is there."""
        connection, place = self._open[descriptor]
        if events & select.POLLIN:  # also if it has been closed
            with contextlib.suppress(OSError):
                connection.recv(_MAX_ANSWER)  # what is not read before the end is an error on the other side
            _answered.add(place)
            return True
        if number := connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._drop(descriptor, number)
            return False
        with contextlib.suppress(OSError):  # it is closed already, which the next look at it shows
            connection.send(self._question(place[0]))
        self._connected.add(place)
        self._poll.modify(descriptor, select.POLLIN)
        return False

    def _drop(self, descriptor: int, number: int) -> None:
        connection, place = self._open.pop(descriptor)
        with contextlib.suppress(KeyError):  # it never came to that
            self._poll.unregister(descriptor)
        connection.close()
        self._refused[place] = os.strerror(number)

    def _reason(self, place: Place) -> str:
        if place in self._connected:
            return SILENT if place in _answered else ""
        if any(place == other for _connection, other in self._open.values()):
            return TIMED_OUT
        return self._refused.get(place, "")
