"""The feed in the agent: keeps what tasks have stored, shows the child what the driver commits, and drops the rest."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.node.feed.schedule import leftover_places
from tfos_lab.node.feed.spool import Spool

if TYPE_CHECKING:
    from tfos_lab.node.feed.endpoint import Endpoint, TakePort
    from tfos_lab.node.feed.exchanges import Exchanges
    from tfos_lab.node.feed.files.search import FileSearch
    from tfos_lab.node.feed.wire import Attempt


# Of a failure that is passed on to Spark tasks.
_MAX_TEXT = 500


class FeedStore:
    """One node's rows: the segments of its feeds, and the exchanges of its inferences.

    Tasks' threads only append to a queue; everything else happens in the agent's loop, which calls `pump` when
    `fileno` is readable.
    """

    def __init__(
        self,
        host: str,
        scratch: Path,
        send: Callable[[m.FromAgent], None],
        send_to_child: Callable[[m.ToAgent], None],
        *,
        take_port: TakePort = lambda bind: bind(0),
    ) -> None:
        self._scratch = scratch
        self._send = send
        self._send_to_child = send_to_child
        self._spool = Spool(scratch / "spool")
        self._host = host
        self._take_port = take_port
        self._endpoint: Endpoint | None = None
        self._exchanges: Exchanges | None = None
        self._file_search: FileSearch | None = None
        self._has_returned = False
        self._woken, self._wake = socket.socketpair()
        self._woken.settimeout(0.0)
        self._wake.settimeout(0.0)
        self._posted: deque[Callable[[], None]] = deque()
        # By feed and partition: the attempts to send it.
        self._stored: dict[tuple[int, int], dict[str, Attempt]] = {}
        self._over: set[int] = set()
        self._closing = threading.Lock()
        self._is_closed = False
        self._streamed: dict[int, list[Path]] = {}

    def fileno(self) -> int:
        """Return a descriptor that is readable when `pump` has something to do."""
        return self._woken.fileno()

    @property
    def spooled_bytes(self) -> int:
        """How much feeds have stored so far, whether or not it counts or is still here."""
        return self._spool.received_bytes

    def pump(self) -> None:
        """Call the functions that tasks' threads have posted."""
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)
        while self._posted:
            self._posted.popleft()()

    def _post(self, function: Callable[[], None]) -> None:
        self._posted.append(function)
        with self._closing, contextlib.suppress(BlockingIOError):  # it is full, and will be read
            if not self._is_closed:
                self._wake.send(b"\0")

    # ---- the driver's messages --------------------------------------------------------------------------------------

    def handle(self, message: m.ToAgent) -> None:
        """Apply a message of the driver about rows, and pass it on to the child if it concerns that."""
        match message:
            case m.FeedOpen():
                self._spool.open(message.spool_bytes, epochs=message.epochs)
                locations = [] if message.files else self._open_endpoint().open(message.token, message.tls)
                if message.stream:
                    self._streamed[message.feed] = []
                self._send(m.FeedReady(feed=message.feed, locations=locations))
                self._send_to_child(msgspec.structs.replace(message, token="", tls=None))
            case m.FilesAsked():
                # Imported here: most feeds have no files.
                from tfos_lab.node.feed.files.search import FileSearch

                self._end_search()
                self._file_search = FileSearch(message, lambda found: self._post(lambda: self._send(found)))
            case m.FilesDealt():
                self._send_to_child(msgspec.structs.replace(message, folder=str(self._spool.folder)))
            case m.InferenceOpen():
                self._spool.folder.mkdir(mode=0o700, exist_ok=True)
                # A lazy DataFrame may be computed at any time.
                locations = self._open_endpoint().open(message.token, message.tls, lasting=True)
                self._send(m.InferenceReady(locations=locations))
                self._send_to_child(msgspec.structs.replace(message, token="", tls=None))
            case m.Commit():
                self._commit(message)
            case m.FeedComplete(feed=feed) | m.FeedAborted(feed=feed):
                self._end_search()
                self._drop_uncommitted(feed)
                self._send_to_child(message)
            case m.EpochPlan() | m.PlanLater() | m.FeedsEnded() | m.StepsAgreed() | m.PeerReturned():
                if isinstance(message, m.FeedsEnded) and self._exchanges is not None:
                    self._exchanges.end_feeds()
                self._send_to_child(message)

    def _end_search(self) -> None:
        if self._file_search is not None:
            self._file_search.stop()
            self._file_search = None

    def _open_endpoint(self) -> Endpoint:
        if self._endpoint is None:
            # Imported here: an agent whose fork server has not preloaded it pays for it only when rows come.
            from tfos_lab.node.feed.endpoint import Endpoint
            from tfos_lab.node.feed.exchanges import Exchanges

            self._exchanges = Exchanges(self._spool.folder, self._post, self._send_to_child, self._send)
            if self._has_returned:
                self._exchanges.child_returned()
            self._endpoint = Endpoint(
                self._host,
                self._scratch / "feed",
                self._spool,
                on_stored=lambda attempt: self._post(lambda: self._remember(attempt)),
                on_commit=lambda stored: self._post(lambda: self._send(stored)),
                on_inference=self._exchanges.serve,
                take_port=self._take_port,
            )
        return self._endpoint

    def _remember(self, attempt: Attempt) -> None:
        if attempt.feed in self._over:
            self._forget(attempt)  # it was slower than the feed
        else:
            self._stored.setdefault((attempt.feed, attempt.partition), {})[attempt.attempt] = attempt

    def _forget(self, attempt: Attempt) -> None:
        self._spool.remove(attempt.path(self._spool.folder))

    def _commit(self, message: m.Commit) -> None:
        # The rows were stored before the driver was asked to commit them, but that may still be in the queue.
        self.pump()
        attempts = self._stored.pop((message.feed, message.partition), {})
        attempt = attempts.pop(message.attempt, None)
        for other in attempts.values():
            self._forget(other)
        if attempt is None:
            # A partition without rows stores nothing; the child needs its shapes.
            if message.rows or message.leftover:
                raise RuntimeError(f"attempt {message.attempt} of partition {message.partition} is not stored here")
            self._send_to_child(m.SegmentReady(feed=message.feed, path="", rows=0, shapes=message.shapes))
            return
        path = attempt.path(self._spool.folder)
        self._spool.committed(path)
        if message.feed in self._streamed:
            self._streamed[message.feed].append(path)
        places = leftover_places(message.leftover, dealt=message.dealt, nodes=attempt.nodes)
        own_leftover = places.index(attempt.place) if attempt.place in places else None
        self._send_to_child(m.SegmentReady(message.feed, str(path), message.rows, own_leftover, message.shapes))

    def _drop_uncommitted(self, feed: int) -> None:
        self._over.add(feed)
        for key in [key for key in self._stored if key[0] == feed]:
            for attempt in self._stored.pop(key).values():
                self._forget(attempt)

    # ---- the child's messages ---------------------------------------------------------------------------------------

    def on_child_message(self, message: m.FromAgent) -> bool:
        """Apply a message of the child about rows; return whether the driver needs it, too."""
        match message:
            case m.SegmentRead(path=path):
                self._spool.was_read(Path(path))
                return False
            case m.ExchangeTaken() | m.ExchangeResults():
                if self._exchanges is not None:
                    self._exchanges.on_child_message(message)
                return False
            case m.DatasetOpened(shuffle=True):
                self._spool.keep_all()
            case m.FeedStopped() if self._exchanges is not None:
                self._exchanges.stop()
            case m.FeedRead(feed=feed):
                for segment in self._streamed.pop(feed, []):
                    self._spool.remove(segment)
        return True

    def fail(self, reason: str) -> None:
        """Tell tasks that wait for results why none will come, and leave a note for tasks that come later."""
        if reason and self._exchanges is not None:
            self._exchanges.fail(reason.strip().partition("\n")[0][:_MAX_TEXT])

    def child_returned(self) -> None:
        """Tell tasks that wait for results that the node's function has returned."""
        self._has_returned = True
        if self._exchanges is not None:
            self._exchanges.child_returned()

    def close(self) -> None:
        """Close the endpoint; the agent removes the spool with its scratch folder."""
        self._spool.close()
        self._end_search()
        if self._exchanges is not None:
            self._exchanges.close()
        if self._endpoint is not None:
            self._endpoint.close()
        with self._closing:  # threads that are not waited for may still post
            self._is_closed = True
            self._woken.close()
            self._wake.close()
