"""The node's endpoint for rows: an Arrow Flight server.

The rows of one attempt of one Spark partition go into one Arrow IPC file of the spool, which counts when the driver
commits the attempt. A task on this host writes that file itself and asks for room before each batch; other tasks send
their rows. What inference tasks ask about is answered on the spot.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from pyarrow import flight

from tfos_lab.data.schema import ColumnSpec, column_specs
from tfos_lab.errors import TfosError
from tfos_lab.errors.channel import to_text
from tfos_lab.messages import TlsIdentity
from tfos_lab.node.feed.plan import PRESENT
from tfos_lab.node.feed.segment_writer import SegmentWriter
from tfos_lab.node.feed.spool import Spool, not_written

# The answer to a task that asks for room.
_ROOM = b"room"


class PutTicket(msgspec.Struct, frozen=True):
    """What stands over the rows of a feed task; ``beside`` if it writes their file itself."""

    token: str
    feed: int
    partition: int
    attempt: str
    beside: bool = False


def segment_path(spool: Path, ticket: PutTicket) -> Path:
    """Return the file for an attempt's rows."""
    return spool / f"{ticket.feed}-{ticket.partition}-{ticket.attempt}.arrow"


class CommitTicket(msgspec.Struct, frozen=True):
    """A feed task's word that all its rows are stored; ``rows`` maps ranks to rows, ``leftover`` ones lie on all."""

    token: str
    feed: int
    partition: int
    attempt: str
    rows: dict[int, int]
    size_bytes: int
    shapes: dict[str, list[int]]
    leftover: int = 0


class ExchangeTicket(msgspec.Struct, frozen=True):
    """What stands over the rows of an inference task; ``schema`` is that of their DataFrame, as Spark writes it.

    ``inference`` counts the calls of `Cluster.inference`; -1 for a row that is sent to see what results are like.
    """

    token: str
    schema: str
    inference: int = -1


class FlightEndpoint(flight.FlightServerBase):  # type: ignore[misc]
    """Takes rows by `do_put`, commits by `do_action`, and rows to be answered by `do_exchange`.

    Only from those who hold one of its ``tokens``.

    Parameters
    ----------
    location : str
        ``grpc+unix://...`` in a folder that only the user can open, or ``grpc+tls://host:0``.
    tls : TlsIdentity or None
        For the latter.
    spool : Spool
        Where segments go.
    on_stored : callable
        Called with ``(ticket, path)`` when an attempt's rows lie on this node; on a Flight thread.
    on_commit : callable
        Called with the `CommitTicket`; on a Flight thread.
    on_exchange : callable
        Called with ``(inference, specs, reader, writer)``; on a Flight thread, until all rows are answered.
    """

    def __init__(
        self,
        location: str,
        tls: TlsIdentity | None,
        spool: Spool,
        *,
        on_stored: Callable[[PutTicket, Path], None],
        on_commit: Callable[[CommitTicket], None],
        on_exchange: Callable[[int, tuple[ColumnSpec, ...], Any, Any], None],
    ) -> None:
        super().__init__(location, tls_certificates=[(tls.certificate, tls.key)] if tls else None)
        self._spool = spool
        self._for_this_host = tls is None
        self._on_stored = on_stored
        self._on_commit = on_commit
        self._on_exchange = on_exchange
        self.tokens: set[str] = set()

    def do_put(self, _context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Have one attempt's rows written into a segment of their own."""
        ticket = msgspec.msgpack.decode(descriptor.command, type=PutTicket)
        self._check(ticket.token)
        path = segment_path(self._spool.folder, ticket)
        try:
            if ticket.beside:
                self._make_room(path, reader, writer)
            else:
                self._write(path, reader)
        except BaseException as error:
            self._spool.remove(path)
            raise _explained(error, self._spool.folder) from error
        self._on_stored(ticket, path)

    def _make_room(self, path: Path, reader: Any, writer: Any) -> None:
        for chunk in reader:
            self._spool.make_room(path, int(chunk.app_metadata.to_pybytes()))
            writer.write(_ROOM)

    def _write(self, path: Path, reader: Any) -> None:
        with SegmentWriter(path) as segment:
            for chunk in reader:
                self._spool.make_room(path, chunk.data.nbytes)
                segment.write(chunk.data)

    def do_exchange(self, _context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Answer a task's rows with what the node's function puts as results."""
        ticket = msgspec.msgpack.decode(descriptor.command, type=ExchangeTicket)
        self._check(ticket.token)
        try:
            self._on_exchange(ticket.inference, column_specs(ticket.schema), reader, writer)
        except Exception as error:
            raise _explained(error, self._spool.folder) from error

    def do_action(self, _context: Any, action: Any) -> list[Any]:
        """Pass a commit on, or just be there and tell where the spool is."""
        if action.type == PRESENT:
            return [str(self._spool.folder).encode() if self._for_this_host else b""]
        ticket = msgspec.msgpack.decode(action.body.to_pybytes(), type=CommitTicket)
        self._check(ticket.token)
        self._on_commit(ticket)
        return []

    def _check(self, token: str) -> None:
        if not any(hmac.compare_digest(token, known) for known in self.tokens):
            raise flight.FlightUnauthenticatedError("this feed's token is needed")


def _explained(error: BaseException, folder: Path) -> BaseException:
    """Return the error in the form in which the Spark task can read it: type and fields are kept."""
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, TfosError):
        error = not_written(folder, error)
    return flight.FlightServerError(to_text(error)) if isinstance(error, TfosError) else error
