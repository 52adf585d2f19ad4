"""A meeting point for processes: each registers what it has to say, and gets what all have said once all are there.

It works by itself, for programs that use it. The nodes of our clusters do not: the driver has a server of its own. A
`TFCluster` has a `Server` that holds its nodes' data, and through which streams are stopped from elsewhere::

    client = reservation.Client((host, port))
    client.request_stop()

Messages are plain data, and only who knows the server's secret is listened to; see `message_socket`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from tfos_lab.compat import util
from tfos_lab.compat.message_socket import (
    MessageSocket,
    find_secret,
    forget_secret,
    introduce,
    make_secret,
    welcome,
)

__all__ = ["MAX_RETRIES", "TFOS_SERVER_HOST", "TFOS_SERVER_PORT", "Client", "MessageSocket", "Reservations", "Server"]

logger = logging.getLogger(__name__)

TFOS_SERVER_PORT = "TFOS_SERVER_PORT"  #: environment variable: a port such as 8888, or a range such as 9997-9999
TFOS_SERVER_HOST = "TFOS_SERVER_HOST"  #: environment variable: the server's address, as clients are to reach it
MAX_RETRIES = 3

_POLL_S = 0.1


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
            return self._changed.wait_for(lambda: len(self._reservations) >= self.required, timeout_s)


class Server(MessageSocket):
    """Takes reservations, and tells all of them to whoever asks.

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
        self.reservations = Reservations(count)
        self.done = False
        self._listener: socket.socket | None = None
        self._keys: dict[int, bytes] = {}

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
        secret = make_secret(port)
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
        ports = self.get_server_ports()
        for port in ports:
            try:
                return _listen_on(self.get_server_ip(), port)
            except OSError as error:
                logger.warning("Unable to bind to port %s: %s", port, error)
        raise OSError(f"no port of {ports} is free to listen on; set {TFOS_SERVER_PORT} to another one, or a range")

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
        forget_secret(port, secret)

    def _serve(self, sock: socket.socket, secret: bytes) -> None:
        """Answer one client until it leaves."""
        with sock, contextlib.suppress(OSError, msgspec.DecodeError):
            self._keys[sock.fileno()] = welcome(sock, secret)
            while True:
                self._handle_message(sock, self.receive(sock))

    def _key_of(self, sock: socket.socket) -> bytes:
        return self._keys[sock.fileno()]

    def _handle_message(self, sock: socket.socket, msg: Any) -> None:
        match msg:
            case {"type": "REG", "data": data}:
                self.reservations.add(data)
                answer: Any = "OK"
            case {"type": "QUERY"}:
                answer = self.reservations.done()
            case {"type": "QINFO"}:
                answer = self.reservations.get()
            case {"type": "STOP"}:
                self.stop()
                answer = "OK"
            case _:
                answer = "ERR"
        self.send(sock, answer)


def _listen_on(host: str, port: int) -> socket.socket:
    """Listen at one address; at all of this host's if that is not one of them, as where others see it by another."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        if not _binds(sock, host, port):
            sock.bind(("", port))
        sock.listen()
    except OSError:
        sock.close()
        raise
    return sock


def _binds(sock: socket.socket, host: str, port: int) -> bool:
    try:
        address = socket.gethostbyname(host)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
            trial.bind((address, 0))
    except OSError:
        return False
    sock.bind((address, port))
    return True


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
    """

    def __init__(self, server_addr: tuple[str, int]) -> None:
        self.server_addr = (server_addr[0], server_addr[1])
        self._secret = find_secret(self.server_addr)
        self.sock = self._connect()
        logger.info("connected to server at %s", self.server_addr)

    def _connect(self) -> socket.socket:
        sock = socket.create_connection(self.server_addr)
        try:
            self._key = introduce(sock, self._secret)
        except OSError:
            sock.close()
            raise
        return sock

    def _request(self, msg_type: str, msg_data: Any = None) -> Any:
        """Send a message and return the answer; connect anew if the connection has ended."""
        message = {"type": msg_type} if msg_data is None else {"type": msg_type, "data": msg_data}
        for _ in range(MAX_RETRIES - 1):
            try:
                self.send(self.sock, message)
                break
            except OSError as error:
                logger.warning("connecting to the server anew: %s", error)
                self.sock.close()
                self.sock = self._connect()
        else:
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
