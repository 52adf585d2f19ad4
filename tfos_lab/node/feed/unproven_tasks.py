"""Bounds what strangers cost a node at its port for rows: connections, each for some seconds, or less if many come.

Arrow Flight accepts every connection and waits two minutes for a handshake, so that strangers could take all
descriptors of the agent. A call reaches us only with the certificate of the cluster's tasks, and tasks call at once:
a connection without a call is unproven. The descriptors of Flight's connections are found in ``/proc``.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import select
import socket
import threading
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

#: For how long a connection may go without a call. Hundreds of tasks may come at once, and wait for one another.
PATIENCE_S = 10.0
#: Where more have not called, patience is shorter in proportion, so that few of the descriptors are taken.
AT_EASE = 256
# Looks come so often at most while strangers knock, and at least.
_PAUSE_S = 0.02
_LOOK_S = 1.0
_OWN = Path("/proc/self/fd")
# Descriptors that a look needs, kept for when strangers have taken all others.
_RESERVE = 4


class Peer(NamedTuple):
    """The other end of a connection."""

    host: str
    port: int

    @classmethod
    def named(cls, name: str) -> Peer:
        """Return the peer that gRPC calls ``ipv4:10.0.0.1:4711`` or ``ipv6:%5B::1%5D:4711``."""
        host, _, port = unquote(name).partition(":")[2].rpartition(":")
        return cls(_plain(host.strip("[]")), int(port))


class _Unproven(NamedTuple):
    peer: Peer
    descriptor: int
    since_s: float


class UnprovenTasks:
    """Closes connections without a call that are too old, on a thread (``tfos-unproven``).

    Parameters
    ----------
    port : int
        Where Flight listens.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._called: set[Peer] = set()
        # By the name that a socket has in /proc; None for what is no connection to the port.
        self._settled: dict[str, Peer | None] = {}
        self._unproven: dict[str, _Unproven] = {}
        self._listeners: list[socket.socket] = []
        self._closed, self._close = os.pipe2(os.O_CLOEXEC)
        self._reserve: list[int] = []
        self.look()
        self._thread = threading.Thread(target=self._watch, name="tfos-unproven", daemon=True)
        self._thread.start()

    def has_called(self, name: str) -> None:
        """A call has come from a peer, by its name in gRPC; from any thread."""
        with contextlib.suppress(ValueError):
            self._called.add(Peer.named(name))

    def _watch(self) -> None:
        closing, knocking = select.poll(), select.poll()
        closing.register(self._closed, select.POLLIN)
        for waited in (self._closed, *(listener.fileno() for listener in self._listeners)):
            knocking.register(waited, select.POLLIN)
        while not closing.poll(_PAUSE_S * 1000):
            knocking.poll(_LOOK_S * 1000)
            self.look()

    def look(self) -> None:
        """Take note of connections that have come, called or gone; close those that are too old."""
        self._give_up_reserve()
        try:
            self._look()
        except OSError:  # all descriptors are taken, also those that were our reserve: looked at again soon
            pass
        finally:
            self._take_reserve()

    def _look(self) -> None:
        sockets = dict(_sockets())
        for name in self._settled.keys() - sockets.keys():
            if (gone := self._settled.pop(name)) is not None:
                self._called.discard(gone)
        self._unproven = {name: one for name, one in self._unproven.items() if name in sockets}
        for name in sockets.keys() - self._settled.keys() - self._unproven.keys():
            with contextlib.suppress(OSError):
                self._take(name, _handle(name, sockets[name]), sockets[name])
        for name in [name for name, one in self._unproven.items() if one.peer in self._called]:
            self._settled[name] = self._unproven.pop(name).peer
        self._close_some()

    def _take(self, name: str, handle: socket.socket, descriptor: int) -> None:
        """Take note of a socket that is new here."""
        address = handle.getsockname()
        is_own = isinstance(address, tuple) and address[1] == self._port
        if is_own and handle.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            self._listeners.append(handle)
            self._settled[name] = None
            return
        with handle, contextlib.suppress(OSError):
            if is_own:
                host, port, *_ = handle.getpeername()
                self._unproven[name] = _Unproven(Peer(_plain(host), port), descriptor, time.monotonic())
                return
        self._settled[name] = None

    def _take_reserve(self) -> None:
        with contextlib.suppress(OSError):
            while len(self._reserve) < _RESERVE:
                self._reserve.append(os.dup(self._closed))

    def _give_up_reserve(self) -> None:
        while self._reserve:
            os.close(self._reserve.pop())

    def _close_some(self) -> None:
        since_s = time.monotonic() - PATIENCE_S * min(1.0, AT_EASE / max(len(self._unproven), 1))
        for name in [name for name, one in self._unproven.items() if one.since_s < since_s]:
            with contextlib.suppress(OSError), _handle(name, self._unproven[name].descriptor) as handle:
                if self._unproven[name].peer not in self._called:  # meanwhile
                    handle.shutdown(socket.SHUT_RDWR)
                    del self._unproven[name]

    def close(self) -> None:
        """End the thread; to be called before Flight closes the port."""
        os.write(self._close, b"0")
        self._thread.join()
        for listener in self._listeners:
            listener.close()
        self._give_up_reserve()
        os.close(self._close)
        os.close(self._closed)


def _sockets() -> list[tuple[str, int]]:
    """Return the sockets of this process: the name of each in /proc, which no other has while it is open."""
    found = []
    for path in _OWN.iterdir():
        with contextlib.suppress(OSError):
            name = str(path.readlink())
            if name.startswith("socket:"):
                found.append((name, int(path.name)))
    return found


def _handle(name: str, descriptor: int) -> socket.socket:
    """Return another handle of a socket; raises ``OSError`` if its descriptor is another's by now."""
    copy = os.dup(descriptor)
    if str((_OWN / str(copy)).readlink()) != name:
        os.close(copy)
        raise OSError(errno.EBADF, "another one has its descriptor")
    return socket.socket(fileno=copy)


def _plain(host: str) -> str:
    """Return an address as others write it: that of IPv4 where IPv6 contains one, and no zone."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
