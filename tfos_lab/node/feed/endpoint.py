"""Where a node receives rows: on a unix socket from its own host, by TLS from others. Opened when first needed.

The rows of one attempt of a Spark partition go into one Arrow IPC file of the spool, which counts once the driver
commits the attempt. A task on this host writes that file itself, and asks for space before each batch; other tasks send
their rows. Rows of inference tasks are answered within the request.

Before TLS begins, a task knocks with a digest of the token, as agents do at the driver: for strangers, which cannot
know it, a few bytes are read and nothing is made. They are held to some seconds and a number of connections.
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import math
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.core.link import KNOCK_BYTES, bracketed, knock_of, set_up
from tfos_lab.core.processes import allow_descriptors
from tfos_lab.data.schema import ColumnSpec, column_specs
from tfos_lab.errors import FeedError, NodeUnreachable, TfosError
from tfos_lab.node.feed import wire as w
from tfos_lab.node.feed.segment_writer import SegmentWriter
from tfos_lab.node.feed.spool import Spool, not_written

#: How many connections may be open that have not knocked, and how many that have and have not shown the token; the
#: oldest ones are closed.
MOST_STRANGERS = 256
# Strangers take some for a moment, and rows must still find files.
_DESCRIPTORS = 8192
_NO_DESCRIPTORS_S = 0.1
# How often those that do not knock are looked at, and whether this is the end.
_LOOK_S = 1.0
# How long requests that go on are waited for at the end.
_CLOSE_S = 5.0
# Answers a task that asks for space.
_GRANTED = b"granted"

# Calls a function with a port that the node may listen on, and returns what it returns.
TakePort = Callable[[Callable[[int], socket.socket]], socket.socket]
OnInference = Callable[[w.Inference, tuple[ColumnSpec, ...], w.Wire], None]


class Endpoint:
    """One node's listeners, and the threads (``tfos-rows``) that serve the tasks, one for each connection.

    These call ``on_stored`` when an attempt's rows are stored on this node, ``on_commit`` with the `AttemptStored`, and
    ``on_inference``, which returns when all rows are answered.
    """

    def __init__(
        self,
        host: str,
        path: Path,
        spool: Spool,
        *,
        on_stored: Callable[[w.Attempt], None],
        on_commit: Callable[[m.AttemptStored], None],
        on_inference: OnInference,
        take_port: TakePort,
    ) -> None:
        self._host = host
        self._path = path
        self._spool = spool
        self._on_stored = on_stored
        self._on_commit = on_commit
        self._on_inference = on_inference
        self._take_port = take_port
        self._listeners: list[socket.socket] = []
        self._locations: list[str] = []
        self._token = ""
        self._lasting: set[str] = set()
        self._guard = threading.Lock()
        # By thread, the connections of those that have not shown the token, the oldest first; and of those that have.
        self._strangers: dict[threading.Thread, socket.socket] = {}
        self._tasks: dict[threading.Thread, w.Wire] = {}
        self._answering: set[w.Wire] = set()
        self._is_closed = False

    def open(self, token: str, tls: m.TlsIdentity | None, *, lasting: bool = False) -> list[str]:
        """Admit tasks that hold ``token``: until the next token is given, or for good if it is ``lasting``.

        Returns locations for `tfos_lab.node.feed.wire.connect`, the nearest first.
        """
        if lasting:
            self._lasting.add(token)
        else:
            self._token = token
        if not self._listeners:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(self._path))
            self._listen(listener, w.unix_location(self._path), None)
            if tls is not None:
                allow_descriptors(_DESCRIPTORS)
                family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
                listener = self._take_port(lambda port: socket.create_server((self._host, port), family=family))
                location = w.tls_location(bracketed(self._host), listener.getsockname()[1])
                self._listen(listener, location, w.context_for(tls, ssl.PROTOCOL_TLS_SERVER))
        return list(self._locations)

    def _listen(self, listener: socket.socket, location: str, tls: ssl.SSLContext | None) -> None:
        listener.listen(1024)  # all tasks may come at once
        self._listeners.append(listener)
        self._locations.append(location)
        accept = self._accept
        if tls is not None:
            # Here, as it may be closed before the thread begins.
            listener.settimeout(0.0)
            poll = select.poll()
            poll.register(listener, select.POLLIN)
            accept = functools.partial(self._let_knock, poll=poll, tls=tls)
        threading.Thread(target=accept, args=(listener,), name="tfos-rows", daemon=True).start()

    # ---- who is let in ----------------------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        """Serve all connections to the unix socket: it is in a folder that only the user can open."""
        while not self._is_closed:
            if (sock := self._next(listener)) is not None:
                self._begin(sock, None)

    def _let_knock(self, listener: socket.socket, poll: select.poll, tls: ssl.SSLContext) -> None:
        """Serve who comes from other hosts and knocks; the others are closed after some seconds, or when many come."""
        knocking: dict[int, tuple[socket.socket, float]] = {}  # by descriptor, and since when; the oldest first
        while not self._is_closed:
            for descriptor, _ in poll.poll(_LOOK_S * 1000):
                if descriptor in knocking:
                    poll.unregister(descriptor)
                    self._hear(knocking.pop(descriptor)[0], tls)
                elif (sock := self._next(listener)) is not None:
                    sock.settimeout(0.0)
                    knocking[sock.fileno()] = sock, time.monotonic()
                    poll.register(sock, select.POLLIN)
            while knocking:
                descriptor, (sock, since_s) = next(iter(knocking.items()))
                if len(knocking) <= MOST_STRANGERS and time.monotonic() - since_s < w.GREETING_S:
                    break
                poll.unregister(descriptor)
                del knocking[descriptor]
                sock.close()
        for sock, _ in knocking.values():
            sock.close()

    def _next(self, listener: socket.socket) -> socket.socket | None:
        try:
            return listener.accept()[0]
        except BlockingIOError:  # the peer has disconnected again
            return None
        except OSError:  # all descriptors are taken, or this is the end
            time.sleep(_NO_DESCRIPTORS_S)
            return None

    def _hear(self, sock: socket.socket, tls: ssl.SSLContext) -> None:
        """Begin with a task that has knocked as it has to."""
        knock = b""
        with contextlib.suppress(OSError):
            knock = sock.recv(KNOCK_BYTES)
        if self._knows(knock, knock_of):
            self._begin(sock, tls)
        else:
            sock.close()

    def _begin(self, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        meet = threading.Thread(target=self._meet, args=(sock, tls), name="tfos-rows", daemon=True)
        with self._guard:
            if tls is not None:
                self._strangers[meet] = sock
            if len(self._strangers) > MOST_STRANGERS:
                _hang_up(self._strangers.pop(next(iter(self._strangers))))
            meet.start()

    def _meet(self, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Check who has connected, and serve a task; runs on its own thread."""
        me = threading.current_thread()
        try:
            with contextlib.suppress(OSError, FeedError), contextlib.closing(self._greet(sock, tls)) as wire:
                with self._guard:
                    self._strangers.pop(me, None)
                    self._tasks[me] = wire
                self._serve(wire, is_here=tls is None)
        finally:
            with self._guard:
                self._strangers.pop(me, None)
                self._tasks.pop(me, None)

    def _greet(self, sock: socket.socket, tls: ssl.SSLContext | None) -> w.Wire:
        """Return the connection of a task that has shown what it has to; an OSError or FeedError for others."""
        with contextlib.ExitStack() as closing:
            closing.enter_context(sock)
            until_s = math.inf
            if tls is not None:
                sock.settimeout(w.GREETING_S)
                set_up(sock)
                sock = closing.enter_context(tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False))
                self._keep_as_stranger(sock)
                sock.do_handshake()
                until_s = time.monotonic() + w.GREETING_S
            wire = w.Wire(sock, "the task")
            wire.give_until(until_s)
            if not self._knows(wire.receive_message(), bytes):
                wire.fail(FeedError(reason="this feed's token is needed"))
                raise ConnectionRefusedError
            wire.give_until(math.inf)
            closing.pop_all()
            return wire

    def _keep_as_stranger(self, stranger: ssl.SSLSocket) -> None:
        """Replace a stranger's socket by the TLS socket around it, unless it was closed meanwhile."""
        with self._guard:
            if threading.current_thread() not in self._strangers:
                raise ConnectionRefusedError
            self._strangers[threading.current_thread()] = stranger

    def _knows(self, shown: bytes, form: Callable[[bytes], bytes]) -> bool:
        tokens = {self._token, *self._lasting}
        return any(hmac.compare_digest(shown, form(token.encode())) for token in tokens if token)

    # ---- what tasks ask for -----------------------------------------------------------------------------------------

    def _serve(self, wire: w.Wire, *, is_here: bool) -> None:
        """Answer a task's requests until it disconnects; send it the error if one fails."""
        try:
            wire.send(str(self._spool.folder).encode() if is_here else b"")
            while True:
                self._answer(wire, wire.receive_message())
        except NodeUnreachable:
            pass  # the task has disconnected
        except Exception as error:  # noqa: BLE001 - the task raises it
            wire.fail(explained(error, self._spool.folder))
            wire.let_go()

    def _answer(self, wire: w.Wire, message: bytes) -> None:
        try:
            request = msgspec.msgpack.decode(message, type=w.Request)
        except msgspec.DecodeError:
            raise FeedError(reason="this is no request of a feed task") from None
        match request:
            case w.Attempt():
                self._store(wire, request)
            case w.Commit(stored=stored):
                self._on_commit(stored)
                wire.end()
            case w.Inference():
                with self._guard:
                    self._answering.add(wire)
                try:
                    self._on_inference(request, column_specs(request.schema), wire)
                finally:
                    with self._guard:
                        self._answering.discard(wire)

    def _store(self, wire: w.Wire, attempt: w.Attempt) -> None:
        """Store one attempt's rows in a segment."""
        path = attempt.path(self._spool.folder)
        try:
            with contextlib.ExitStack() as closing:
                segment: SegmentWriter | None = None
                while (rows := wire.receive()) is not None:
                    if isinstance(rows, bytes):  # the size of what a task on this host writes itself
                        self._spool.reserve(path, int(rows))
                    else:
                        segment = segment or closing.enter_context(contextlib.closing(SegmentWriter(path)))
                        self._spool.reserve(path, rows.nbytes)
                        segment.write(rows)
                    wire.send(_GRANTED)
        except BaseException:
            self._spool.remove(path)
            raise
        self._spool.stored(path)
        self._on_stored(attempt)
        wire.end()

    # ---- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the listeners, and all that tasks store; wait for inferences to end by themselves, but not for long."""
        self._is_closed = True
        for listener in self._listeners:
            _hang_up(listener)  # whoever accepts is woken up
            listener.close()
        with self._guard:
            strangers, tasks, answering = dict(self._strangers), dict(self._tasks), set(self._answering)
        for sock in strangers.values():
            _hang_up(sock)
        for wire in tasks.values():
            if wire not in answering:
                wire.hang_up()
        until_s = time.monotonic() + _CLOSE_S
        for thread in (*strangers, *tasks):
            thread.join(max(0.0, until_s - time.monotonic()))
        for wire in tasks.values():
            wire.hang_up()


def _hang_up(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def explained(error: Exception, folder: Path) -> TfosError:
    """Return the error as one that the Spark task can raise: type and fields of ours are kept."""
    if isinstance(error, TfosError):
        return error
    if isinstance(error, OSError) and error.errno is not None:
        return not_written(folder, error)
    return FeedError(reason=f"{type(error).__name__}: {error}")
