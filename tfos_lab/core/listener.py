"""The driver's end of the control connections: frames over TLS 1.3, with a `tfos_lab.core.link` for each agent.

A kernel listens once for each interface, from its first cluster to its last. Each start of a cluster's nodes has a
`Listener` of its own: a token of 32 random bytes, which is good as long as the start lives, and the messages of those
that have shown it. A node knows the driver by its certificate, which it was given with its launch. Before TLS begins, a
node knocks with a digest of the token: for strangers, which cannot know it, a few bytes are read and nothing is made.
What has not shown a token yet is held to some seconds and a number of connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import queue
import secrets
import socket
import threading
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from tfos_lab.core.event_loop import join_loop, leave_loop
from tfos_lab.core.frames import FrameBuffer, FrameTooLarge, framed
from tfos_lab.core.link import KNOCK_BYTES, MAX_FRAME_BYTES, TOKEN_BYTES, bracketed, knock_of
from tfos_lab.core.messages import DriverAddress
from tfos_lab.core.node_addresses import ports_in
from tfos_lab.errors import ConfigError

#: Environment variable of the driver: the port to listen on, such as 8888, or a range such as 9990-9999.
PORT_VARIABLE = "TFOS_SERVER_PORT"
#: How many connections may be open that have not shown a token, or as many as there are nodes: they may all come at
#: once. The oldest ones are closed.
MAX_STRANGERS = 128
#: How long a connection may take to show one.
HANDSHAKE_S = 10.0
# How many messages are handed out before the driver turns to what is due, and how many wait for it; where more do,
# connections are read a moment later.
_AT_ONCE = 200
_MOST_WAITING = 1000
_FULL_S = 0.01
# A node that has not taken so much of what it was sent reads no more.
_MOST_UNSENT_BYTES = 64 << 20
# What is under way at the end has so long to leave.
_FAREWELL_S = 0.5
_NO_DESCRIPTORS_S = 0.1


class AgentData(NamedTuple):
    """What has come on an agent's connection: the bytes of one message, or None at its end."""

    connection: int
    data: bytes | None


def listening_ports() -> list[int]:
    """Return the ports on which a driver may listen, according to `PORT_VARIABLE`; [] for any."""
    return list(ports_in(PORT_VARIABLE, "9990-9999"))


class Listener:
    """The connections of one start's nodes: receives from all of them, sends to each by its number.

    Safe to use from any thread; one calls `poll`. It listens on the interface ``bind_host``, and agents connect to
    ``public_host``, all of the ``nodes`` perhaps at once: ``address`` tells them where, and the token. It ``is_behind``
    if more had come than the last `poll` has returned. Raises ConfigError if `PORT_VARIABLE` names no port, or none
    that is free.
    """

    def __init__(self, bind_host: str = "127.0.0.1", public_host: str | None = None, nodes: int = 0) -> None:
        # What an agent shows first.
        self.token = secrets.token_bytes(TOKEN_BYTES)
        self._waiting: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._connections: dict[int, _Connection] = {}
        # What is to be sent, and to whom; whether the loop has been asked to do it.
        self._outgoing: deque[tuple[list[int], bytes]] = deque()
        self._is_asked = False
        self._is_closed = False
        self.is_behind = False
        self._port = _join_port(bind_host, listening_ports(), self, nodes)
        self._loop = self._port.loop
        self.address = DriverAddress(
            endpoint=f"tcp://{bracketed(public_host or bind_host)}:{self._port.number}",
            certificate=self._port.certificate,
            token=self.token,
        )

    def post(self, item: object) -> None:
        """Have `poll` return ``item``, behind all that has come so far."""
        self._waiting.put(item)

    def poll(self, timeout_s: float) -> list[AgentData | object]:
        """Return what has come, in order, after waiting for the first for at most ``timeout_s`` seconds."""
        items: list[AgentData | object] = []
        with contextlib.suppress(queue.Empty):
            items.append(self._waiting.get(timeout=timeout_s))
            while len(items) < _AT_ONCE:
                items.append(self._waiting.get_nowait())
        self.is_behind = not self._waiting.empty()
        return items

    @property
    def is_full(self) -> bool:
        """Whether so much waits that connections are to be read later."""
        return self._waiting.qsize() > _MOST_WAITING

    def join(self, number: int, connection: _Connection) -> bool:
        """Take an agent's connection that has shown the token; return whether it is not too late."""
        if not self._is_closed:
            self._connections[number] = connection
        return not self._is_closed

    def leave(self, number: int) -> None:
        """Let go of a connection that has ended."""
        del self._connections[number]
        self.post(AgentData(number, None))

    def send(self, connection: int, data: bytes) -> None:
        """Send to one agent; nothing happens if its connection has ended."""
        self.send_to_all([connection], data)

    def send_to_all(self, connections: Iterable[int], data: bytes) -> None:
        """Send the same to several agents."""
        self._outgoing.append((list(connections), framed(data)))
        if not self._is_asked:
            self._is_asked = True
            with contextlib.suppress(RuntimeError):  # the loop has ended with this listener
                self._loop.call_soon_threadsafe(self._write)

    def _write(self) -> None:
        """Write what is to be sent: all that there is for one agent at once."""
        self._is_asked = False
        frames: dict[int, list[bytes]] = {}
        while self._outgoing:
            connections, frame = self._outgoing.popleft()
            for number in connections:
                frames.setdefault(number, []).append(frame)
        for number, own in frames.items():
            if (connection := self._connections.get(number)) is not None:
                connection.write(b"".join(own))

    def close(self) -> None:
        """End all connections, after what was sent; the token is good for nothing any more. May be called twice."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.call_soon_threadsafe(self._farewell)

    def _farewell(self) -> None:
        self._write()
        self._port.leave(self)
        for connection in self._connections.values():
            connection.close()
        self._leave_loop(self._loop.time() + _FAREWELL_S)

    def _leave_loop(self, latest_s: float) -> None:
        if self._connections and self._loop.time() < latest_s:
            self._loop.call_later(_FULL_S, self._leave_loop, latest_s)
        else:
            leave_loop(self)


class _Connection(asyncio.Protocol):
    """One agent's connection, from its TLS handshake on.

    ``is_shown`` is done when it has shown the token, and cancelled when it has ended before.
    """

    def __init__(self, listener: Listener, number: int, is_shown: asyncio.Future[None]) -> None:
        self._listener, self._number, self.is_shown = listener, number, is_shown
        self._transport: asyncio.Transport | None = None
        self._token = b""
        self._frames = FrameBuffer(MAX_FRAME_BYTES)
        self._is_agent = self._has_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is over."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Hand on the messages that are whole now; what says that it is larger than any ends the connection."""
        if not self._is_agent:
            self._token += data
            if not self._takes_token():
                return
            data, self._token = self._token[TOKEN_BYTES:], b""
        try:
            for frame in self._frames.take(data):
                self._listener.post(AgentData(self._number, frame))
        except FrameTooLarge:
            self.abort()
        if self._listener.is_full and self._transport is not None:
            self._transport.pause_reading()
            self._go_on()

    def _takes_token(self) -> bool:
        if len(self._token) < TOKEN_BYTES:
            return False
        is_shown = secrets.compare_digest(self._token[:TOKEN_BYTES], self._listener.token)
        self._is_agent = is_shown and self._listener.join(self._number, self)
        if self._is_agent and not self.is_shown.done():
            self.is_shown.set_result(None)
        elif not self._is_agent:
            self.abort()
        return self._is_agent

    def _go_on(self) -> None:
        """Read on as soon as the driver has read what waits."""
        if self._transport is None or self._has_ended:
            return
        if self._listener.is_full:
            asyncio.get_running_loop().call_later(_FULL_S, self._go_on)
        else:
            self._transport.resume_reading()

    def eof_received(self) -> None:
        """The agent has closed its end: it reads nothing more either."""
        self._has_ended = True

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - however it comes
        """The connection has ended."""
        self._transport = None
        self.is_shown.cancel()
        if self._is_agent:
            self._is_agent = False
            self._listener.leave(self._number)

    def write(self, data: bytes) -> None:
        """Send; an agent that has not taken very much before loses its connection."""
        if self._transport is not None and not self._has_ended:
            self._transport.write(data)
            if self._transport.get_write_buffer_size() > _MOST_UNSENT_BYTES:
                self.abort()

    def close(self) -> None:
        """End the connection after what was sent."""
        self._has_ended = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End the connection at once."""
        self._has_ended = True
        if self._transport is not None:
            self._transport.abort()


# ---- the port -------------------------------------------------------------------------------------------------------


class _Port:
    """A port of this kernel on one interface, and the listeners that agents reach there by their tokens."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        from tfos_lab.core.certificates import driver_identity

        self.loop = loop
        self.number = int(sock.getsockname()[1])
        self.certificate, self._context = driver_identity()
        self._socket = sock
        # By the knock of their nodes.
        self._listeners: dict[bytes, Listener] = {}
        # Those that have not knocked yet, and those that have not shown a token since; the oldest first.
        self._strangers: dict[asyncio.Task[None], None] = {}
        self._knocked: dict[asyncio.Task[None], None] = {}
        self._most = MAX_STRANGERS
        self._numbers = 0

    def join(self, listener: Listener, nodes: int) -> None:
        self._listeners[knock_of(listener.token)] = listener
        self._most = max(self._most, nodes)
        self._listen()

    def leave(self, listener: Listener) -> None:
        """Forget a listener; the port is closed with the last."""
        self._listeners.pop(knock_of(listener.token), None)
        if not self._listeners and self._socket.fileno() >= 0:
            self.loop.remove_reader(self._socket)
            self._socket.close()
            self.loop.call_soon(self._cancel)

    def _cancel(self) -> None:
        """End what has not shown a token; called when all of it has begun, and can close its connections."""
        for task in (*self._strangers, *self._knocked):
            task.cancel()

    @property
    def is_open(self) -> bool:
        return bool(self._listeners)

    def _accept(self) -> None:
        """Take one connection: what it has said so far is read before others come, for which it may be closed."""
        try:
            connection, _ = self._socket.accept()
        except BlockingIOError:
            return  # it has gone meanwhile
        except OSError:  # no descriptor is left
            self.loop.remove_reader(self._socket)
            self.loop.call_later(_NO_DESCRIPTORS_S, self._listen)
            return
        connection.settimeout(0.0)
        self._count(self.loop.create_task(self._greet(connection)), self._strangers)

    def _listen(self) -> None:
        if self.is_open:
            self.loop.add_reader(self._socket, self._accept)

    def _count(self, task: asyncio.Task[None], among: dict[asyncio.Task[None], None]) -> None:
        """Count a connection among others of its kind, of which the oldest is closed where there are too many."""
        among[task] = None
        task.add_done_callback(lambda task: among.pop(task, None))
        if len(among) > self._most:
            next(iter(among)).cancel()

    async def _greet(self, sock: socket.socket) -> None:
        """Have a connection served once it has shown a token, and closed if it does not in time."""
        connection: _Connection | None = None
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(HANDSHAKE_S):
                listener = self._listeners[await self._knock(sock)]
                if (task := asyncio.current_task()) is not None:
                    self._strangers.pop(task, None)
                    self._count(task, self._knocked)
                self._numbers += 1
                made = connection = _Connection(listener, self._numbers, self.loop.create_future())
                await self.loop.connect_accepted_socket(
                    lambda: made, sock, ssl=self._context, ssl_shutdown_timeout=_FAREWELL_S
                )
                await connection.is_shown
        except (OSError, EOFError, KeyError, TimeoutError, asyncio.CancelledError):
            if connection is None:
                sock.close()
            else:
                connection.abort()  # what has not come so far, the loop closes

    async def _knock(self, connection: socket.socket) -> bytes:
        """Return what a connection says first."""
        knock = b""
        while len(knock) < KNOCK_BYTES:
            data = await self.loop.sock_recv(connection, KNOCK_BYTES - len(knock))
            if not data:
                raise EOFError
            knock += data
        return knock


_ports: dict[str, _Port] = {}
_ports_lock = threading.Lock()


def _join_port(bind_host: str, numbers: list[int], listener: Listener, nodes: int) -> _Port:
    """Return the port of this kernel on an interface, which is one of ``numbers``, if there are any."""
    events = join_loop(listener)

    async def join() -> _Port:
        port = _ports.get(bind_host)
        if port is None or not port.is_open or port.loop is not events.loop or (numbers and port.number not in numbers):
            port = _ports[bind_host] = _Port(events.loop, _bind(bind_host, numbers, nodes))
        port.join(listener, nodes)
        return port

    try:
        with _ports_lock:
            return events.wait_for(join())
    except BaseException:
        leave_loop(listener)
        raise


def _bind(host: str, numbers: list[int], nodes: int) -> socket.socket:
    """Return a socket that listens at the first of ``numbers`` that is free, or at any port."""
    family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    for number in numbers or [0]:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((address[0], number))
            sock.listen(max(1024, nodes))
        except OSError as error:
            sock.close()
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            sock.settimeout(0.0)
            return sock
    advice = "each kernel that has clusters takes one. Give a wider range, or stop the clusters of another kernel"
    raise ConfigError([f"{PORT_VARIABLE}={os.environ[PORT_VARIABLE]}: none of these ports is free; {advice}"])
