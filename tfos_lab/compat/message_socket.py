"""Messages between a `reservation.Server` and its clients: MessagePack, each with a code that proves who sent it.

The server opens a connection with random bytes. The client has to answer with a code made of them and the secret,
before anything else is read, and the server answers in the same way. Each message then carries a code of its own, with
a key that holds for this connection.

The secret is the text in the environment variable `SECRET_VARIABLE`, which has to be the same for server and clients.
Without it, the server makes a secret of its own and leaves it in a file that only its user can read, so that clients of
the same user on the same host find it.
"""

from __future__ import annotations

import atexit
import contextlib
import hmac
import os
import secrets
import socket
import struct
from pathlib import Path
from typing import Any

import msgspec

from tfos_lab.core.runtime_files import scratch_root

SECRET_VARIABLE = "TFOS_SERVER_SECRET"  # noqa: S105 - its name

_HEADER = struct.Struct(">I")
_CODE_BYTES = 32
_MAX_BYTES = 16 << 20
# A client that has connected proves within this time that it knows the secret.
_HANDSHAKE_S = 10.0


class MessageSocket:
    """Sends and receives messages: dicts, lists, texts, numbers and bytes."""

    _key = b""

    def send(self, sock: socket.socket, msg: Any) -> None:
        """Send a message.

        Raises
        ------
        TypeError
            If it holds anything else, such as objects of a class.
        """
        data = msgspec.msgpack.encode(msg)
        sock.sendall(_HEADER.pack(_CODE_BYTES + len(data)) + _code(self._key_of(sock), data) + data)

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
        code, data = frame[:_CODE_BYTES], frame[_CODE_BYTES:]
        if not hmac.compare_digest(code, _code(self._key_of(sock), data)):
            raise ConnectionError("a message was not sent by who knows the secret")
        return msgspec.msgpack.decode(data)

    def _key_of(self, sock: socket.socket) -> bytes:
        """Return the key of a connection."""
        del sock
        return self._key


def welcome(sock: socket.socket, secret: bytes) -> bytes:
    """Let a client prove that it knows the secret; return the key of the connection.

    Raises
    ------
    ConnectionError, TimeoutError
        If it does not.
    """
    challenge = secrets.token_bytes(_CODE_BYTES)
    sock.settimeout(_HANDSHAKE_S)
    sock.sendall(challenge)
    if not hmac.compare_digest(_read(sock, _CODE_BYTES), _code(secret, b"client" + challenge)):
        raise ConnectionError("a client does not know the secret")
    sock.sendall(_code(secret, b"server" + challenge))
    sock.settimeout(None)
    return _code(secret, b"session" + challenge)


def introduce(sock: socket.socket, secret: bytes) -> bytes:
    """Prove to a server that this client knows the secret, and have it prove the same; return the connection's key.

    Raises
    ------
    ConnectionError
        If either does not know it.
    """
    challenge = _read(sock, _CODE_BYTES)
    sock.sendall(_code(secret, b"client" + challenge))
    if not hmac.compare_digest(_read(sock, _CODE_BYTES), _code(secret, b"server" + challenge)):
        raise ConnectionError("the server does not know the secret")
    return _code(secret, b"session" + challenge)


def _code(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _read(sock: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        part = sock.recv(length - len(data))
        if not part:
            raise ConnectionError("socket closed: the other end has ended, or does not accept this secret")
        data += part
    return bytes(data)


# ---- the secret -----------------------------------------------------------------------------------------------------


def make_secret(port: int) -> bytes:
    """Return the secret of a server on this port, and leave it for clients of this user on this host."""
    if chosen := os.environ.get(SECRET_VARIABLE):
        return chosen.encode()
    secret = secrets.token_hex(_CODE_BYTES).encode()
    path = _secret_file(port)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secret)
    atexit.register(forget_secret, port, secret)
    return secret


def find_secret(address: tuple[str, int]) -> bytes:
    """Return the secret of the server at an address.

    Raises
    ------
    PermissionError
        If this process cannot know it.
    """
    if chosen := os.environ.get(SECRET_VARIABLE):
        return chosen.encode()
    try:
        return _secret_file(address[1]).read_bytes()
    except FileNotFoundError:
        where = ":".join(map(str, address))
        raise PermissionError(
            f"the secret of the server at {where} is not known here: set the environment variable {SECRET_VARIABLE} "
            "to the same text for the server and its clients"
        ) from None


def forget_secret(port: int, secret: bytes) -> None:
    """Remove the file of a server that has ended, unless the port and the file are another's by now."""
    with contextlib.suppress(OSError):
        path = _secret_file(port)
        if path.read_bytes() == secret:
            path.unlink()


def _secret_file(port: int) -> Path:
    return scratch_root() / f"reservation-{port}.secret"
