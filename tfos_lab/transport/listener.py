"""The driver's end of the control connections: frames over TLS 1.3, with a `tfos_lab.transport.link` for each agent.

A kernel listens once for each interface, from its first cluster to its last. Each start of a cluster's nodes has a
`Listener` of its own: a token of 32 random bytes, which is good as long as the start lives, and the messages of those
that have shown it. A node knows the driver by its certificate, which it was given with its launch. Before TLS begins, a
node knocks with a digest of the token: for strangers, which cannot know it, a few bytes are read and nothing is made.
What has not shown a token yet is held to some seconds and a number of connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import errno
import functools
import os
import secrets
import socket
import ssl
import tempfile
import threading
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from tfos_lab.core.node_addresses import ports_in
from tfos_lab.errors import ConfigError
from tfos_lab.messages import DriverAddress
from tfos_lab.transport.event_loop import join_loop, leave_loop
from tfos_lab.transport.link import HEADER, KNOCK_BYTES, MAX_FRAME_BYTES, TOKEN_BYTES, knock_of

#: Environment variable of the driver: the port to listen on, such as 8888, or a range such as 9990-9999.
PORT_VARIABLE = "TFOS_SERVER_PORT"
#: How many connections may be open that have not shown a token, or as many as there are nodes: they may all come at
#: once. The oldest ones are closed.
MAX_STRANGERS = 128
#: How long a connection may take to show one.
HANDSHAKE_S = 10.0
# How many messages are handed out before the driver turns to what is due, and how many wait for it.
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

    Safe to use from any thread; one calls `poll`.

    Parameters
    ----------
    bind_host : str
        The one interface to listen on.
    public_host : str
        The host name or address that agents connect to.
    nodes : int
        How many agents will connect, perhaps all at once.

    Raises
    ------
    ConfigError
        If `PORT_VARIABLE` names no port, or none that is free.

    Attributes
    ----------
    address : DriverAddress
        Where agents connect to, and the token.
    is_behind : bool
        Whether more had come than the last `poll` has returned.
    """

    def __init__(self, bind_host: str = "127.0.0.1", public_host: str | None = None, nodes: int = 0) -> None:
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self._waiting: deque[object] = deque()
        self._has_come = threading.Condition()
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._is_closed = False
        self.is_behind = False
        self._port = _join_port(bind_host, listening_ports(), self, nodes)
        self._loop = self._port.loop
        self.address = DriverAddress(
            endpoint=f"tcp://{_bracketed(public_host or bind_host)}:{self._port.number}",
            certificate=self._port.certificate,
            token=self._token,
        )

    @property
    def token(self) -> bytes:
        """What an agent shows first."""
        return self._token

    def post(self, item: object) -> None:
        """Have `poll` return ``item``, behind all that has come so far."""
        with self._has_come:
            self._waiting.append(item)
            self._has_come.notify()

    def poll(self, timeout_s: float) -> list[AgentData | object]:
        """Return what has come, in order, after waiting for the first for at most ``timeout_s`` seconds."""
        with self._has_come:
            if not self._waiting:
                self._has_come.wait(timeout_s)
            items = [self._waiting.popleft() for _ in range(min(len(self._waiting), _AT_ONCE))]
            self.is_behind = bool(self._waiting)
        return items

    async def serve(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Receive from an agent that has shown the token, until its connection ends, however that comes."""
        if self._is_closed:
            return
        self._writers[number] = writer
        try:
            while (data := await _frame(reader)) is not None:
                while len(self._waiting) > _MOST_WAITING:  # noqa: ASYNC110 - another thread takes them
                    await asyncio.sleep(_FULL_S)
                self.post(AgentData(number, data))
        finally:
            del self._writers[number]
            self.post(AgentData(number, None))

    def send(self, connection: int, data: bytes) -> None:
        """Send to one agent; nothing happens if its connection has ended."""
        self.send_to_all([connection], data)

    def send_to_all(self, connections: Iterable[int], data: bytes) -> None:
        """Send the same to several agents."""
        with contextlib.suppress(RuntimeError):  # the loop has ended with this listener
            self._loop.call_soon_threadsafe(self._write, list(connections), HEADER.pack(len(data)) + data)

    def _write(self, connections: list[int], frame: bytes) -> None:
        for connection in connections:
            writer = self._writers.get(connection)
            if writer is None or writer.is_closing():
                continue
            writer.write(frame)
            if writer.transport.get_write_buffer_size() > _MOST_UNSENT_BYTES:
                writer.transport.abort()

    def close(self) -> None:
        """End all connections, after what was sent; the token is good for nothing any more. May be called twice."""
        if not self._is_closed:
            self._is_closed = True
            asyncio.run_coroutine_threadsafe(self._farewell(), self._loop)

    async def _farewell(self) -> None:
        self._port.leave(self)
        writers = list(self._writers.values())
        for writer in writers:
            writer.close()
        with contextlib.suppress(TimeoutError):
            closed = asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)
            await asyncio.wait_for(closed, _FAREWELL_S)
        leave_loop(self)


async def _frame(reader: asyncio.StreamReader) -> bytes | None:
    """Return the next frame; None at the end of the connection, or where a frame is said to be too large."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        (size,) = HEADER.unpack(await reader.readexactly(HEADER.size))
        if size <= MAX_FRAME_BYTES:
            return await reader.readexactly(size)
    return None


# ---- the port -------------------------------------------------------------------------------------------------------


class _Port:
    """A port of this kernel on one interface, and the listeners that agents reach there by their tokens."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        self.loop = loop
        self.number = int(sock.getsockname()[1])
        self.certificate, self._context = _identity()
        self._socket = sock
        # By the knock of their nodes.
        self._listeners: dict[bytes, Listener] = {}
        self._strangers: dict[asyncio.Task[None], None] = {}
        self._most_strangers = MAX_STRANGERS
        self._numbers = 0
        self._accepting = loop.create_task(self._accept())

    def join(self, listener: Listener, nodes: int) -> None:
        self._listeners[knock_of(listener.token)] = listener
        self._most_strangers = max(self._most_strangers, nodes)

    def leave(self, listener: Listener) -> None:
        """Forget a listener; the port is closed with the last."""
        self._listeners.pop(knock_of(listener.token), None)
        if not self._listeners:
            self._accepting.cancel()
            for stranger in self._strangers:
                stranger.cancel()
            self._socket.close()

    @property
    def is_open(self) -> bool:
        return bool(self._listeners)

    async def _accept(self) -> None:
        while True:
            try:
                connection, _ = await self.loop.sock_accept(self._socket)
            except OSError:  # no descriptor is left
                await asyncio.sleep(_NO_DESCRIPTORS_S)
                continue
            task = self.loop.create_task(self._greet(connection))
            self._strangers[task] = None
            task.add_done_callback(lambda task: self._strangers.pop(task, None))
            if len(self._strangers) > self._most_strangers:
                next(iter(self._strangers)).cancel()

    async def _greet(self, connection: socket.socket) -> None:
        """Serve a connection once it has shown a token."""
        reader = asyncio.StreamReader(loop=self.loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self.loop)
        writer: asyncio.StreamWriter | None = None
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(HANDSHAKE_S):
                listener = self._listeners[await self._knock(connection)]
                transport, _ = await self.loop.connect_accepted_socket(
                    lambda: protocol, connection, ssl=self._context, ssl_shutdown_timeout=_FAREWELL_S
                )
                writer = asyncio.StreamWriter(transport, protocol, reader, self.loop)
                token = await reader.readexactly(TOKEN_BYTES)
            if secrets.compare_digest(token, listener.token):
                self._strangers.pop(asyncio.current_task(), None)  # type: ignore[arg-type]
                self._numbers += 1
                await listener.serve(self._numbers, reader, writer)
        except (OSError, EOFError, KeyError, TimeoutError):
            pass  # no agent of ours
        finally:
            if writer is not None:
                writer.close()
            else:
                connection.close()

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


@functools.cache
def _identity() -> tuple[str, ssl.SSLContext]:
    """Return the certificate by which nodes know this kernel, in PEM, and what it serves TLS with."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tfos-lab driver")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # It is known as a whole, and gone with the kernel: a host's clock is not asked.
        .not_valid_before(dt.datetime(1970, 1, 1, tzinfo=dt.UTC))
        .not_valid_after(dt.datetime(9999, 1, 1, tzinfo=dt.UTC))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    with tempfile.NamedTemporaryFile() as file:  # Python's ssl takes files only; nobody else may read this one
        file.write(certificate + secret)
        file.flush()
        context.load_cert_chain(file.name)
    return certificate.decode(), context


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
