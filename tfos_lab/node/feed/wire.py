"""The way of rows between Spark tasks and nodes: messages and Arrow's record batches over a socket, both ways at once.

A task reaches a node of its own host through a unix socket, others by TLS 1.3, where each shows a certificate that was
made for the cluster. It sends the token of the feed or inference, gets the path of the node's spool, if that is on its
host, and then sends requests: to store the rows of an attempt, to commit them, or to have rows answered.
"""

from __future__ import annotations

import contextlib
import functools
import io
import math
import random
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tfos_lab.core.crossing import own_error_in, to_text
from tfos_lab.core.link import knock_of, set_up, show_certificate
from tfos_lab.core.messages import INPUT_QUEUE, TLS_NAME, AttemptStored, TlsIdentity
from tfos_lab.errors import FeedError, NodeUnreachable, TfosError

if TYPE_CHECKING:
    import pyarrow as pa

#: How long either end may take until the other one knows who it is.
GREETING_S = 10.0
#: How long a task may take to hang up after it was sent an error; one that is gone has hung up at once.
LET_GO_S = 30.0
_UNIX, _TLS = "unix:", "tls:"
# For how long a task tries again where the node closes connections, as strangers open too many.
_AGAIN_S = 5.0
# What begins each thing that is sent.
_MESSAGE, _BATCH, _END, _ERROR = b"m", b"b", b"e", b"x"
_SIZE = struct.Struct("!I")
# The schema of a table with very many columns is long.
_MOST_MESSAGE_BYTES = 1 << 28
_BUFFER_BYTES = 1 << 16


# ---- what a task asks for -------------------------------------------------------------------------------------------


class FeedPlan(msgspec.Struct, frozen=True):
    """What a feed task needs to know: ``locations`` maps ranks to the nodes' addresses, the nearest first."""

    feed: int
    token: str
    locations: dict[int, list[str]]
    schema: str
    tls: TlsIdentity | None = None


class Attempt(msgspec.Struct, frozen=True, tag=True):
    """Asks to store the rows that follow: of one attempt to send a partition.

    A task on the node's host writes their file itself, and sends the size of each batch beforehand. Each batch, or
    size, is answered when there is space for it. The node is the ``place``-th, from 0, of all ``nodes`` that get rows.
    """

    feed: int
    partition: int
    attempt: str
    place: int
    nodes: int

    def path(self, spool: Path) -> Path:
        """Return the file of the rows in a spool."""
        return spool / f"{self.feed}-{self.partition}-{self.attempt}.arrow"


class Commit(msgspec.Struct, frozen=True, tag=True):
    """Asks to commit rows that all nodes have ``stored``; the node that is asked passes that on to the driver."""

    stored: AttemptStored


class Inference(msgspec.Struct, frozen=True, tag=True):
    """Asks for the results of the rows that follow; ``schema`` is that of their DataFrame, as Spark writes it in JSON.

    ``inference`` counts the calls of `Cluster.inference`; -1 for the row that is sent to find the type of results.
    ``objects`` and ``queue`` as in `InferenceOpen`. Rows without results fail after ``timeout_s`` in which none comes.
    """

    schema: str
    inference: int = -1
    objects: bool = False
    queue: str = INPUT_QUEUE
    timeout_s: float = 600.0


Request = Attempt | Commit | Inference


# ---- a connection ---------------------------------------------------------------------------------------------------


class Wire:
    """One end of a connection; one thread may send while another one receives.

    Raises `NodeUnreachable` where ``peer``, the other end, has gone, and what it raises where that has failed.
    """

    def __init__(self, sock: socket.socket, peer: str) -> None:
        self._peer = peer
        self._socket = _Socket(sock, peer)
        self._in = io.BufferedReader(self._socket, _BUFFER_BYTES)
        self._out = io.BufferedWriter(self._socket, _BUFFER_BYTES)
        self._reader: Any = None
        self._writer: Any = None

    def give_until(self, until_s: float) -> None:
        """Let what is sent and received take until then, by the monotonic clock; infinity for as long as it takes."""
        self._socket.until_s = until_s

    def send(self, message: bytes) -> None:
        """Send a message."""
        self._say(_MESSAGE, message)

    def fail(self, error: TfosError) -> None:
        """Have the other end raise an error, if it is there."""
        with contextlib.suppress(NodeUnreachable):
            self._say(_ERROR, to_text(error).encode())

    def _say(self, kind: bytes, data: bytes) -> None:
        self._out.write(kind + _SIZE.pack(len(data)) + data)
        self._out.flush()

    def send_batch(self, rows: pa.RecordBatch) -> None:
        """Send rows, without a copy; all have the same schema."""
        self._out.write(_BATCH)
        if self._writer is None:
            import pyarrow as pa

            self._writer = pa.ipc.new_stream(pa.PythonFile(self._out, mode="w"), rows.schema)
        self._writer.write_batch(rows)
        self._out.flush()

    def end(self) -> None:
        """Send that no more comes of what was begun."""
        self._out.write(_END)
        self._out.flush()

    def receive(self) -> bytes | pa.RecordBatch | None:
        """Wait for the next message or rows; None for an `end`."""
        kind = self._exactly(1)
        if kind == _BATCH:
            if self._reader is None:
                import pyarrow as pa

                self._reader = pa.ipc.open_stream(pa.PythonFile(self._in, mode="r"))
            return self._reader.read_next_batch()
        if kind == _END:
            return None
        (size,) = _SIZE.unpack(self._exactly(_SIZE.size))
        if kind not in {_MESSAGE, _ERROR} or size > _MOST_MESSAGE_BYTES:
            raise FeedError(reason="what has come is no message of a feed")
        data = self._exactly(size)
        if kind == _MESSAGE:
            return data
        text = data.decode(errors="replace")
        raise own_error_in(text) or FeedError(reason=text)

    def receive_message(self) -> bytes:
        """Wait for a message, where nothing else may come."""
        message = self.receive()
        if not isinstance(message, bytes):
            raise FeedError(reason="what has come is no message of a feed")
        return message

    def _exactly(self, size: int) -> bytes:
        data = self._in.read(size)
        if len(data) < size:
            raise NodeUnreachable(reason=f"{self._peer} has gone")
        return data

    def let_go(self) -> None:
        """Pass over what still comes until the other end has hung up: else it might not read what it was sent last."""
        self.give_until(time.monotonic() + LET_GO_S)
        with contextlib.suppress(Exception):  # whatever it is, it has come to an end
            while True:
                self.receive()

    def hang_up(self) -> None:
        """End the connection for all threads that wait for it; may be called from any thread."""
        self._socket.hang_up()

    def close(self) -> None:
        """Close the connection."""
        for file in (self._out, self._in, self._socket):
            with contextlib.suppress(OSError, NodeUnreachable):
                file.close()


class _Socket(io.RawIOBase):
    """A socket's bytes, for one thread that reads and one that writes: OpenSSL lets in one at a time, for a moment."""

    def __init__(self, sock: socket.socket, peer: str) -> None:
        self._socket = sock
        self._peer = peer
        self._turn = threading.Lock()
        self.until_s = math.inf
        sock.settimeout(0.0)

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._when(select.POLLIN, lambda: self._socket.recv_into(buffer))

    def write(self, data: Any) -> int:
        return self._when(select.POLLOUT, lambda: self._socket.send(data))

    def _when(self, ready: int, transfer: Callable[[], int]) -> int:
        """Call ``transfer`` as soon as the socket lets it."""
        try:
            while True:
                wanted = ready
                try:
                    with self._turn:
                        return transfer()
                except ssl.SSLWantReadError:
                    wanted = select.POLLIN
                except ssl.SSLWantWriteError:
                    wanted = select.POLLOUT
                except BlockingIOError:
                    pass
                poll = select.poll()
                poll.register(self._socket, wanted)
                left_s = self.until_s - time.monotonic()
                if not poll.poll(None if left_s == math.inf else max(0.0, left_s) * 1000):
                    raise TimeoutError("it has not answered in time")
        except OSError as error:
            raise NodeUnreachable(reason=f"the connection to {self._peer} is lost ({error})") from error

    def hang_up(self) -> None:
        # The method of a TLS socket would take the keys from the thread that still writes.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        super().close()
        self._socket.close()


# ---- a task's end ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Connection:
    """A task's connection to a node, and the folder of the node's spool if it is on this host."""

    wire: Wire
    spool: Path | None

    def ask(self, request: Request) -> None:
        """Say what is wanted."""
        self.wire.send(msgspec.msgpack.encode(request))


def unix_location(path: Path) -> str:
    """Return the location of a unix socket."""
    return f"{_UNIX}{path}"


def tls_location(host: str, port: int) -> str:
    """Return the location of a port."""
    return f"{_TLS}{host}:{port}"


def is_here(location: str) -> bool:
    """Whether a location is a unix socket of this host."""
    return location.startswith(_UNIX) and socket_of(location).exists()


def socket_of(location: str) -> Path:
    """Return the path of a unix socket's location."""
    return Path(location.removeprefix(_UNIX))


def connect(locations: list[str], token: str, tls: TlsIdentity | None) -> Connection:
    """Connect to the first of a node's locations that this host can reach.

    Raises NodeUnreachable if it does not answer, or shows no certificate of the cluster; FeedError if it knows no such
    token.
    """
    location = next((one for one in locations if is_here(one) or one.startswith(_TLS)), None)
    if location is None:
        raise NodeUnreachable(reason=f"no way to the node from this host; it listens at {', '.join(locations)}")
    is_far = location.startswith(_TLS)
    if is_far and tls is None:
        raise NodeUnreachable(reason="the node is on another host, and this task has no certificate to show it")
    until_s = time.monotonic() + (_AGAIN_S if is_far else 0.0)
    while True:
        try:
            return _greet(location, token, tls if is_far else None)
        except OSError as error:
            if not _may_answer_later(error) or time.monotonic() > until_s:
                raise NodeUnreachable(reason=f"the node at {location} does not answer ({error})") from error
            time.sleep(random.uniform(0.1, 0.5))  # noqa: S311 - no secret


def _may_answer_later(error: OSError) -> bool:
    """Whether a node has closed a connection; its port is open for as long as it lives."""
    cause = error.__cause__ or error
    return isinstance(cause, ssl.SSLEOFError | ConnectionError) and not isinstance(cause, ConnectionRefusedError)


def _greet(location: str, token: str, tls: TlsIdentity | None) -> Connection:
    """Connect to a unix socket, or by TLS, and show the token."""
    with contextlib.ExitStack() as closing:
        if tls is None:
            sock = closing.enter_context(socket.socket(socket.AF_UNIX))
            sock.settimeout(GREETING_S)
            sock.connect(str(socket_of(location)))
        else:
            host, _, port = location.removeprefix(_TLS).rpartition(":")
            sock = closing.enter_context(socket.create_connection((host.strip("[]"), int(port)), GREETING_S))
            set_up(sock)
            sock.sendall(knock_of(token.encode()))
            context = context_for(tls, ssl.PROTOCOL_TLS_CLIENT)
            # From here on it is the TLS socket that is open.
            sock = closing.enter_context(context.wrap_socket(sock, server_hostname=TLS_NAME))
        wire = Wire(sock, f"the node at {location}")
        wire.give_until(time.monotonic() + 2 * GREETING_S)
        wire.send(token.encode())
        spool = wire.receive_message().decode()
        wire.give_until(math.inf)
        closing.pop_all()
        return Connection(wire, Path(spool) if spool else None)


@functools.lru_cache(maxsize=8)
def context_for(tls: TlsIdentity, protocol: int) -> ssl.SSLContext:
    """Return what one end of a connection shows, and asks of the other end."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=tls.authority.decode())
    show_certificate(context, tls.certificate + tls.key)
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    return context
