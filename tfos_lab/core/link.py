"""An agent's end of its connection to the driver: frames over TLS 1.3. The other is `tfos_lab.core.listener`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import socket
import ssl
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator

from tfos_lab.core.frames import FrameBuffer, framed
from tfos_lab.core.messages import DriverAddress

MAX_FRAME_BYTES = 1 << 28
TOKEN_BYTES = 32
KNOCK_BYTES = 16
#: A driver that does not even acknowledge packets for so long is gone; one that is stopped still does.
UNREACHABLE_S = 60.0
_CONNECT_S = 10.0
_TRY_AGAIN_S = 0.5
# What waits for a driver that reads no more.
_MOST_UNSENT_BYTES = 64 << 20
_FAREWELL_S = 1.0
_READ_BYTES = 1 << 18


class Link:
    """An agent's end of the connection, until that ``is_over``. Any thread may send; one receives.

    It tries for ``patience_s`` to connect. Raises OSError if the driver cannot be reached.
    """

    def __init__(self, driver: DriverAddress, patience_s: float = UNREACHABLE_S) -> None:
        self._lock = threading.RLock()
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._frames = FrameBuffer()
        self.is_over = False
        self._socket = _connect(driver, time.monotonic() + patience_s)

    def fileno(self) -> int:
        """Return the file descriptor, for poll loops."""
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        """Send one frame: what the network takes of it at once, the rest with the next `flush`."""
        with self._lock:
            frame = framed(data)
            self._unsent.append(memoryview(frame))
            self._unsent_bytes += len(frame)
            self.flush()
            if self._unsent_bytes > _MOST_UNSENT_BYTES:
                self._end()

    @property
    def has_unsent(self) -> bool:
        """Whether something waits until the network takes more."""
        return bool(self._unsent)

    def flush(self) -> None:
        """Send as much as the network takes of what has waited."""
        with self._lock:
            try:
                while self._unsent and not self.is_over:
                    sent = self._socket.send(self._unsent[0])
                    self._unsent_bytes -= sent
                    if sent < len(self._unsent[0]):
                        self._unsent[0] = self._unsent[0][sent:]
                    else:
                        self._unsent.popleft()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            except OSError:
                self._end()

    def _end(self) -> None:
        self.is_over = True
        self._unsent.clear()
        self._unsent_bytes = 0

    def receive(self) -> Iterator[bytes]:
        """Yield the frames that have arrived, without waiting."""
        while (data := self._read()) is not None:
            yield from self._frames.take(data)

    def _read(self) -> bytes | None:
        """Return what has come; None if that is nothing."""
        with self._lock:
            try:
                data = b"" if self.is_over else self._socket.recv(_READ_BYTES)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return None
            except OSError:
                data = b""
            if not data:
                self._end()
            return data or None

    def close(self) -> None:
        """Close; what was sent has a second to leave."""
        until_s = time.monotonic() + _FAREWELL_S
        while self.has_unsent and (left_s := until_s - time.monotonic()) > 0:
            select.select([], [self._socket], [], left_s)
            self.flush()
        with contextlib.suppress(OSError):
            # What has come and was not read would have the system drop what was sent.
            self._socket.shutdown(socket.SHUT_WR)
            for _ in self.receive():
                pass
        self.is_over = True
        self._socket.close()


def _connect(driver: DriverAddress, until_s: float) -> ssl.SSLSocket:
    """Connect, and show the token; again and again while the way there is not known, or nobody answers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate itself is what is known
    context.load_verify_locations(cadata=driver.certificate)
    while True:
        try:
            return _greet(driver, context)
        except (ConnectionError, ssl.SSLError):
            raise  # nobody listens there any more, or the token is good for nothing any more
        except OSError:
            if time.monotonic() >= until_s:
                raise
            time.sleep(_TRY_AGAIN_S)


def _greet(driver: DriverAddress, context: ssl.SSLContext) -> ssl.SSLSocket:
    with contextlib.ExitStack() as closing:
        sock = closing.enter_context(socket.create_connection(_host_and_port(driver.endpoint), _CONNECT_S))
        set_up(sock)
        sock.sendall(knock_of(driver.token))
        connection = context.wrap_socket(sock)
        connection.sendall(driver.token)
        connection.settimeout(0.0)
        closing.pop_all()
        return connection


def set_up(sock: socket.socket) -> None:
    """Send small messages at once, and find it out if the other end's host has gone."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREACHABLE_S * 1000))


def knock_of(token: bytes) -> bytes:
    """Return what a node sends before TLS begins: strangers do not know it, and it does not tell the token."""
    return hashlib.sha256(b"knock" + token).digest()[:KNOCK_BYTES]


def show_certificate(context: ssl.SSLContext, certificate_and_key: bytes) -> None:
    """Have an end of a connection show a certificate, given in PEM with its key."""
    # Python's ssl takes files only; nobody else may read this one. A disk may be full, and memory keeps a key better.
    in_memory = hasattr(os, "memfd_create")
    with os.fdopen(os.memfd_create("certificate"), "wb") if in_memory else tempfile.NamedTemporaryFile() as file:
        file.write(certificate_and_key)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}" if in_memory else file.name)


def _host_and_port(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return host.strip("[]"), int(port)


def bracketed(host: str) -> str:
    """Return a host as it stands before a port: an address of IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def address_towards(endpoint: str) -> str:
    """Return this host's address on the route to ``endpoint`` (``tcp://host:port``); no packet is sent."""
    host, port = _host_and_port(endpoint)
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])
