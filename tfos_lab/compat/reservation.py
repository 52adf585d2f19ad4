"""A meeting point for processes: each registers its data, and gets that of all once all have registered.

It works by itself, for programs that use it. The nodes of our clusters do not: the driver has a server of its own. A
`TFCluster` has a `Server` that holds its nodes' data, and through which streams are stopped from elsewhere::

    client = reservation.Client((host, port))
    client.request_stop()

Messages are MessagePack, so nothing is unpickled. The server opens a connection with random bytes. The client answers
with a code made of them and the secret before anything else is read, and the server does the same. Each message then
carries a code of its own, with a key that holds for this connection.

The secret is the text in the environment variable `TFOS_SERVER_SECRET`, the same for the server and its clients.
Without it, the server makes one, and leaves it in a file that only its user can read, where clients on its host look.
"""

from __future__ import annotations

import atexit
import contextlib
import hmac
import logging
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from tfos_lab.compat import util
from tfos_lab.core.runtime_files import scratch_root

logger = logging.getLogger(__name__)

TFOS_SERVER_PORT = "TFOS_SERVER_PORT"  #: environment variable: a port such as 8888, or a range such as 9997-9999
TFOS_SERVER_HOST = "TFOS_SERVER_HOST"  #: environment variable: the server's address, as clients are to reach it
TFOS_SERVER_SECRET = "TFOS_SERVER_SECRET"  # noqa: S105 - environment variable: the secret of server and clients

_POLL_S = 0.1
_HEADER = struct.Struct(">I")
_CODE_BYTES = 32
_MAX_BYTES = 16 << 20
# A client that has connected proves within this time that it knows the secret.
_HANDSHAKE_S = 10.0


class Reservations:
    """What has been registered so far; safe to use from any thread.

    Parameters
    ----------
    required : int
        How many reservations are expected.
    """

    def __init__(self, required: int) -> None:
        self.required = required
        self._changed = threading.Condition()
        self._reservations: list[Any] = []

    def add(self, meta: Any) -> None:
        """Add a reservation."""
        with self._changed:
            self._reservations.append(meta)
            self._changed.notify_all()

    def done(self) -> bool:
        """Whether all that are expected have been added."""
        return self.remaining() <= 0

    def get(self) -> list[Any]:
        """Return those that have been added."""
        with self._changed:
            return list(self._reservations)

    def remaining(self) -> int:
        """Return how many are missing."""
        with self._changed:
            return self.required - len(self._reservations)

    def wait(self, timeout_s: float) -> bool:
        """Wait until all are there; return whether they are."""
        with self._changed:
            return self._changed.wait_for(self.done, timeout_s)


class MessageSocket:
    """Sends and receives messages: dicts, lists, texts, numbers and bytes."""

    def __init__(self) -> None:
        self._keys: WeakKeyDictionary[socket.socket, bytes] = WeakKeyDictionary()

    def send(self, sock: socket.socket, msg: Any) -> None:
        """Send a message.

        Raises
        ------
        TypeError
            If it holds anything else, such as objects of a class.
        """
        data = msgspec.msgpack.encode(msg)
        sock.sendall(_HEADER.pack(_CODE_BYTES + len(data)) + self._code(sock, data) + data)

    def receive(self, sock: socket.socket) -> Any:
        """Wait for a message and return it.

        Raises
        ------
        ConnectionError
            If the connection ends, or a message does not come from who knows the secret.
        """
        (length,) = _HEADER.unpack(_read(sock, _HEADER.size))
        if not _CODE_BYTES <= length <= _MAX_BYTES:
            raise ConnectionError(f"a message of {length:,} bytes is announced; that is no message of ours")
        frame = _read(sock, length)
        data = frame[_CODE_BYTES:]
        _check(frame[:_CODE_BYTES], self._code(sock, data))
        return msgspec.msgpack.decode(data)

    def _code(self, sock: socket.socket, data: bytes) -> bytes:
        return _code(self._keys.get(sock, b""), data)


def _code(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _check(code: bytes, expected: bytes) -> None:
    if not hmac.compare_digest(code, expected):
        raise ConnectionError("the other end does not know the secret, or a message was changed on its way")


def _read(sock: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        part = sock.recv(length - len(data))
        if not part:
            raise ConnectionError("socket closed: the other end has ended, or does not accept this secret")
        data += part
    return bytes(data)


def _secret_file(port: int) -> Path:
    return scratch_root() / f"reservation-{port}.secret"


class Server(MessageSocket):
    """Takes reservations, and returns all of them to its clients.

    Parameters
    ----------
    count : int
        How many reservations are expected; at least one.

    Attributes
    ----------
    reservations : Reservations
        Those that have been made.
    done : bool
        Whether the server was asked to stop, by `stop` or by a client.
    """

    def __init__(self, count: int) -> None:
        if count <= 0:
            raise AssertionError(f"count={count}: at least one reservation has to be expected")
        super().__init__()
        self.reservations = Reservations(count)
        self.done = False
        self._listener: socket.socket | None = None

    def await_reservations(self, sc: Any = None, status: Mapping[str, Any] = {}, timeout: float = 600) -> list[Any]:
        """Wait for all reservations, and return them.

        Parameters
        ----------
        sc : object
            Not used: a SparkContext is left alone.
        status : mapping
            Raise the value of its key ``error`` as soon as it has one.
        timeout : float
            The longest to wait, in seconds.

        Raises
        ------
        TimeoutError
            If reservations are missing after that.
        RuntimeError
            With the error in ``status``.
        """
        del sc
        deadline = time.monotonic() + timeout
        while not self.reservations.wait(_POLL_S):
            if "error" in status:
                raise RuntimeError(f"while waiting for reservations: {status['error']}")
            if time.monotonic() > deadline:
                wanted, missing = self.reservations.required, self.reservations.remaining()
                raise TimeoutError(f"after {timeout:g} s {missing} of {wanted} reservations are missing")
        logger.info("all reservations completed")
        return self.reservations.get()

    def start(self) -> tuple[str, int]:
        """Start to listen, in a thread; return the address for clients."""
        self._listener = self.start_listening_socket()
        port = self._listener.getsockname()[1]
        secret = os.environ.get(TFOS_SERVER_SECRET, "").encode() or _new_secret(port)
        address = (self.get_server_ip(), port)
        logger.info("listening for reservations at %s", address)
        args = (self._listener, secret, port)
        threading.Thread(target=self._listen, args=args, name=f"tfos-reservations-{port}", daemon=True).start()
        return address

    def get_server_ip(self) -> str:
        """Return the value of `TFOS_SERVER_HOST` if it is set, else this host's address."""
        return os.environ.get(TFOS_SERVER_HOST) or util.get_ip_address()

    def get_server_ports(self) -> list[int]:
        """Return the ports that `TFOS_SERVER_PORT` names; by default ``[0]``, which means any.

        Raises
        ------
        ValueError
            If it is neither a port nor a range.
        """
        text = os.environ.get(TFOS_SERVER_PORT, "0")
        parts = text.split("-")
        if len(parts) > 2 or not all(part.strip().isdigit() for part in parts):
            raise ValueError(f"Invalid {TFOS_SERVER_PORT}: {text!r}; a port such as 8888 or a range such as 9997-9999")
        return list(range(int(parts[0]), int(parts[-1]) + 1))

    def start_listening_socket(self) -> socket.socket:
        """Return a listening socket on the first port that is free, at the address that clients are given.

        Raises
        ------
        OSError
            If none is free.
        """
        host, ports = self._host(), self.get_server_ports()
        for port in ports:
            try:
                return socket.create_server((host, port))
            except OSError as error:
                logger.warning("Unable to bind to port %s: %s", port, error)
        raise OSError(f"no port of {ports} is free to listen on; set {TFOS_SERVER_PORT} to another one, or a range")

    def _host(self) -> str:
        """Return the address to listen at: all of this host's if others see it by one that is not among them."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
            trial.bind((self.get_server_ip(), 0))
            return str(trial.getsockname()[0])
        return ""

    def stop(self) -> None:
        """Stop listening; may be called twice."""
        self.done = True
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread

    # ---- the threads ------------------------------------------------------------------------------------------------

    def _listen(self, listener: socket.socket, secret: bytes, port: int) -> None:
        with listener, contextlib.suppress(OSError):
            while not self.done:
                sock, _ = listener.accept()
                name = f"tfos-reservation-{sock.fileno()}"
                threading.Thread(target=self._serve, args=(sock, secret), name=name, daemon=True).start()
        _forget_secret(port, secret)

    def _serve(self, sock: socket.socket, secret: bytes) -> None:
        """Answer one client until it leaves, once it has proved that it knows the secret."""
        with sock, contextlib.suppress(OSError, msgspec.DecodeError):
            challenge = secrets.token_bytes(_CODE_BYTES)
            sock.settimeout(_HANDSHAKE_S)
            sock.sendall(challenge)
            _check(_read(sock, _CODE_BYTES), _code(secret, b"client" + challenge))
            sock.sendall(_code(secret, b"server" + challenge))
            sock.settimeout(None)
            self._keys[sock] = _code(secret, b"session" + challenge)
            while True:
                self.send(sock, self._answer(self.receive(sock)))

    def _answer(self, msg: Any) -> Any:
        match msg:
            case {"type": "REG", "data": data}:
                self.reservations.add(data)
            case {"type": "QUERY"}:
                return self.reservations.done()
            case {"type": "QINFO"}:
                return self.reservations.get()
            case {"type": "STOP"}:
                self.stop()
            case _:
                return "ERR"
        return "OK"


def _new_secret(port: int) -> bytes:
    """Make a secret, and leave it for clients of this user on this host."""
    secret = secrets.token_hex(_CODE_BYTES).encode()
    path = _secret_file(port)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secret)
    atexit.register(_forget_secret, port, secret)
    return secret


def _forget_secret(port: int, secret: bytes) -> None:
    """Remove the file of a server that has ended, unless the port and the file are another's by now."""
    with contextlib.suppress(OSError):
        path = _secret_file(port)
        if path.read_bytes() == secret:
            path.unlink()


class Client(MessageSocket):
    """Registers with a `Server`, and asks it.

    Parameters
    ----------
    server_addr : tuple of str and int
        What `Server.start` returned.

    Raises
    ------
    PermissionError
        If the server's secret is not known here.
    ConnectionError
        If server and client do not know the same secret.
    """

    def __init__(self, server_addr: tuple[str, int]) -> None:
        super().__init__()
        self.server_addr = (server_addr[0], server_addr[1])
        secret = os.environ.get(TFOS_SERVER_SECRET, "").encode()
        if not secret:
            try:
                secret = _secret_file(self.server_addr[1]).read_bytes()
            except FileNotFoundError:
                where = ":".join(map(str, self.server_addr))
                raise PermissionError(
                    f"the secret of the server at {where} is not known here: set the environment variable "
                    f"{TFOS_SERVER_SECRET} to the same text for the server and its clients"
                ) from None
        self.sock = socket.create_connection(self.server_addr)
        try:
            challenge = _read(self.sock, _CODE_BYTES)
            self.sock.sendall(_code(secret, b"client" + challenge))
            _check(_read(self.sock, _CODE_BYTES), _code(secret, b"server" + challenge))
        except OSError:
            self.sock.close()
            raise
        self._keys[self.sock] = _code(secret, b"session" + challenge)
        logger.info("connected to server at %s", self.server_addr)

    def _request(self, msg_type: str, msg_data: Any = None) -> Any:
        message = {"type": msg_type} if msg_data is None else {"type": msg_type, "data": msg_data}
        self.send(self.sock, message)
        return self.receive(self.sock)

    def register(self, reservation: Any) -> Any:
        """Add a reservation: plain data. Returns ``"OK"``."""
        return self._request("REG", reservation)

    def get_reservations(self) -> list[Any]:
        """Return the reservations so far."""
        found: list[Any] = self._request("QINFO")
        return found

    def await_reservations(self) -> list[Any]:
        """Wait until all reservations have been made, and return them."""
        while not self._request("QUERY"):
            time.sleep(_POLL_S)
        return self.get_reservations()

    def request_stop(self) -> Any:
        """Ask the server to stop. Returns ``"OK"``."""
        return self._request("STOP")

    def close(self) -> None:
        """Close the connection; may be called twice."""
        self.sock.close()
