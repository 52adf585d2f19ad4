"""The agent's part of a feed: holds what tasks have stored, shows the child what the driver commits, drops the rest."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tfos_lab import messages as m

if TYPE_CHECKING:
    from tfos_lab.node.flight_endpoint import CommitTicket, FlightEndpoint, PutTicket


class FeedStore:
    """One node's segments and its endpoint.

    Flight's threads only append to a queue; everything else happens in the agent's loop, which calls `pump` when
    `fileno` is readable.
    """

    def __init__(
        self,
        seat: int,
        host: str,
        scratch: Path,
        send: Callable[[m.FromAgent], None],
        send_to_child: Callable[[m.ToAgent], None],
    ) -> None:
        self._seat = seat
        self._host = host
        self._spool = scratch / "spool"
        self._socket = scratch / "feed"
        self._send = send
        self._send_to_child = send_to_child
        self._endpoints: list[FlightEndpoint] = []
        self._locations: list[str] = []
        self._serving: list[threading.Thread] = []
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._news: deque[Callable[[], None]] = deque()
        self._stored: dict[tuple[int, int, str], Path] = {}

    def fileno(self) -> int:
        """Return a descriptor that is readable when `pump` has something to do."""
        return self._wake

    def pump(self) -> None:
        """Do what Flight's threads have asked for."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        while self._news:
            self._news.popleft()()

    def _post(self, news: Callable[[], None]) -> None:
        self._news.append(news)
        with contextlib.suppress(OSError):
            os.eventfd_write(self._wake, 1)

    # ---- the driver's words -----------------------------------------------------------------------------------------

    def obey(self, message: m.ToAgent) -> None:
        """Take in what the driver says about feeds; the child hears what concerns it."""
        match message:
            case m.FeedOpen():
                self._open(message)
                self._send_to_child(message)
            case m.Commit():
                self._commit(message)
            case m.FeedComplete(feed=feed) | m.FeedAborted(feed=feed):
                self._drop_uncommitted(feed)
                self._send_to_child(message)
            case m.EpochPlan() | m.FeedsEnded():
                self._send_to_child(message)

    def _open(self, message: m.FeedOpen) -> None:
        if not self._endpoints:
            self._spool.mkdir(mode=0o700)
            self._locations.append(f"grpc+unix://{self._socket}")
            self._serve(self._locations[0], None)
            if message.tls is not None:
                host = f"[{self._host}]" if ":" in self._host else self._host
                endpoint = self._serve(f"grpc+tls://{host}:0", message.tls)
                self._locations.append(f"grpc+tls://{host}:{endpoint.port}")
        for endpoint in self._endpoints:
            endpoint.token = message.token
        self._send(m.FeedReady(seat=self._seat, feed=message.feed, locations=self._locations))

    def _serve(self, location: str, tls: m.TlsIdentity | None) -> FlightEndpoint:
        # Imported here: an agent whose nursery has not preloaded it pays only when it is fed.
        from tfos_lab.node.flight_endpoint import FlightEndpoint

        endpoint = FlightEndpoint(
            location,
            tls,
            self._spool,
            lambda ticket, path, _rows: self._post(lambda: self._remember(ticket, path)),
            lambda ticket: self._post(lambda: self._ask_to_commit(ticket)),
        )
        thread = threading.Thread(target=endpoint.serve, name="tfos-flight", daemon=True)
        thread.start()
        self._endpoints.append(endpoint)
        self._serving.append(thread)
        return endpoint

    def _remember(self, ticket: PutTicket, path: Path) -> None:
        self._stored[ticket.feed, ticket.partition, ticket.attempt] = path

    def _ask_to_commit(self, ticket: CommitTicket) -> None:
        self._send(
            m.AttemptStored(
                seat=self._seat,
                feed=ticket.feed,
                partition=ticket.partition,
                attempt=ticket.attempt,
                rows=ticket.rows,
                size_bytes=ticket.size_bytes,
                shapes=ticket.shapes,
            )
        )

    def _commit(self, message: m.Commit) -> None:
        # The rows were stored before the driver heard of them, but the news of it may still wait in the queue.
        self.pump()
        path = self._stored.pop((message.feed, message.partition, message.attempt), None)
        for key in [key for key in self._stored if key[:2] == (message.feed, message.partition)]:
            self._stored.pop(key).unlink(missing_ok=True)
        if message.rows == 0 and path is not None:
            path.unlink(missing_ok=True)
        segment = m.SegmentReady(
            feed=message.feed,
            path=str(path) if path is not None and message.rows else "",
            rows=message.rows,
            shapes=message.shapes,
        )
        self._send_to_child(segment)

    def _drop_uncommitted(self, feed: int) -> None:
        for key in [key for key in self._stored if key[0] == feed]:
            self._stored.pop(key).unlink(missing_ok=True)

    def close(self) -> None:
        """End the endpoint; the agent removes the spool with its scratch folder."""
        for endpoint in self._endpoints:
            endpoint.shutdown()
        for thread in self._serving:
            thread.join(5.0)
        os.close(self._wake)
