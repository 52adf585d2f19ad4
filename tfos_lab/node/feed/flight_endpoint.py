"""The node's endpoint for rows: an Arrow Flight server.

The rows of one attempt of a Spark partition go into one Arrow IPC file of the spool, which counts once the driver
commits the attempt. A task on this host writes that file itself, and asks for space before each batch; other tasks send
their rows. Rows of inference tasks are answered within the call.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
from pyarrow import flight

from tfos_lab.core.crossing import to_text
from tfos_lab.core.messages import INPUT_QUEUE, AttemptStored, TlsIdentity
from tfos_lab.core.processes import allow_descriptors
from tfos_lab.data.schema import ColumnSpec, column_specs
from tfos_lab.errors import TfosError
from tfos_lab.node.feed.plan import PRESENT
from tfos_lab.node.feed.segment_writer import SegmentWriter
from tfos_lab.node.feed.spool import Spool, not_written
from tfos_lab.node.feed.unproven_tasks import UnprovenTasks

# The answer to a task that asks for space.
_GRANTED = b"granted"
# Strangers take some for a moment, and rows must still find files.
_DESCRIPTORS = 8192


class PutTicket(msgspec.Struct, frozen=True):
    """Describes the rows that a feed task sends; ``beside`` if it writes their file itself."""

    token: str
    feed: int
    partition: int
    attempt: str
    beside: bool = False


def segment_path(spool: Path, ticket: PutTicket) -> Path:
    """Return the file for an attempt's rows."""
    return spool / f"{ticket.feed}-{ticket.partition}-{ticket.attempt}.arrow"


class CommitTicket(msgspec.Struct, frozen=True):
    """Sent by a feed task when all its rows are ``stored``; the node that it asks passes that on."""

    token: str
    stored: AttemptStored


class ExchangeTicket(msgspec.Struct, frozen=True):
    """Describes the rows of an inference task; ``schema`` is that of their DataFrame, as Spark writes it in JSON.

    ``inference`` counts the calls of `Cluster.inference`; -1 for the row that is sent to find the type of results.
    ``objects`` and ``queue`` as in `InferenceOpen`. Rows without results fail after ``timeout_s`` in which none comes.
    """

    token: str
    schema: str
    inference: int = -1
    objects: bool = False
    queue: str = INPUT_QUEUE
    timeout_s: float = 600.0


_Ticket = TypeVar("_Ticket", PutTicket, CommitTicket, ExchangeTicket)

# Called with the ticket, the columns, and the two ends of the exchange.
OnExchange = Callable[
    [ExchangeTicket, tuple[ColumnSpec, ...], flight.MetadataRecordBatchReader, flight.MetadataRecordBatchWriter], None
]


class FlightEndpoint(flight.FlightServerBase):  # type: ignore[misc]
    """Receives rows by `do_put`, commits by `do_action`, and rows to infer by `do_exchange`.

    Clients need one of its ``tokens``.

    Parameters
    ----------
    location : str
        ``grpc+unix://...`` in a folder that only the user can open, or ``grpc+tls://host:0``.
    tls : TlsIdentity or None
        For TLS: who has no certificate of the same authority is refused before it can send anything.
    spool : Spool
        Stores the segments.
    on_stored : callable
        Called with ``(ticket, path)`` when an attempt's rows are stored on this node; on a Flight thread.
    on_commit : callable
        Called with the `CommitTicket`; on a Flight thread.
    on_exchange : callable
        Called with ``(ticket, specs, reader, writer)``; on a Flight thread, until all rows are answered.
    """

    def __init__(
        self,
        location: str,
        tls: TlsIdentity | None,
        spool: Spool,
        *,
        on_stored: Callable[[PutTicket, Path], None],
        on_commit: Callable[[CommitTicket], None],
        on_exchange: OnExchange,
    ) -> None:
        super().__init__(
            location,
            tls_certificates=[(tls.certificate, tls.key)] if tls else None,
            verify_client=tls is not None,
            root_certificates=tls.authority if tls else None,
        )
        self._spool = spool
        self._for_this_host = tls is None
        self._on_stored = on_stored
        self._on_commit = on_commit
        self._on_exchange = on_exchange
        self.tokens: set[str] = set()
        if tls:
            allow_descriptors(_DESCRIPTORS)
        self._unproven = UnprovenTasks(self.port) if tls else None

    def shutdown(self) -> None:
        """End the server."""
        if self._unproven is not None:
            self._unproven.close()
            self._unproven = None
        super().shutdown()

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        """Store one attempt's rows in a segment."""
        self._has_called(context)
        ticket = self._admitted(descriptor.command, PutTicket)
        path = segment_path(self._spool.folder, ticket)
        try:
            if ticket.beside:
                self._grant_space(path, reader, writer)
            else:
                self._write(path, reader)
        except BaseException as error:
            self._spool.remove(path)
            raise explained(error, self._spool.folder) from error
        self._spool.stored(path)
        self._on_stored(ticket, path)

    def _grant_space(
        self, path: Path, reader: flight.MetadataRecordBatchReader, writer: flight.FlightMetadataWriter
    ) -> None:
        for chunk in reader:
            self._spool.reserve(path, int(chunk.app_metadata.to_pybytes()))
            writer.write(_GRANTED)

    def _write(self, path: Path, reader: flight.MetadataRecordBatchReader) -> None:
        with SegmentWriter(path) as segment:
            for chunk in reader:
                self._spool.reserve(path, chunk.data.nbytes)
                segment.write(chunk.data)

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        """Answer a task's rows with the results that the node's function puts."""
        self._has_called(context)
        ticket = self._admitted(descriptor.command, ExchangeTicket)
        try:
            self._on_exchange(ticket, column_specs(ticket.schema), reader, writer)
        except Exception as error:
            raise explained(error, self._spool.folder) from error

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        """Pass a commit on; or, for a task that connects, return where the spool is."""
        self._has_called(context)
        if action.type == PRESENT:
            return [str(self._spool.folder).encode() if self._for_this_host else b""]
        self._on_commit(self._admitted(action.body.to_pybytes(), CommitTicket))
        return []

    def _has_called(self, context: flight.ServerCallContext) -> None:
        if (unproven := self._unproven) is not None:
            unproven.has_called(context.peer())

    def _admitted(self, data: bytes, kind: type[_Ticket]) -> _Ticket:
        """Return the ticket of a task that knows this feed's token; others get one sentence, not a traceback."""
        try:
            ticket = msgspec.msgpack.decode(data, type=kind)
        except msgspec.DecodeError:
            raise flight.FlightUnauthenticatedError("this is no ticket of a feed") from None
        if not any(hmac.compare_digest(ticket.token.encode(), known.encode()) for known in self.tokens):
            raise flight.FlightUnauthenticatedError("this feed's token is needed")
        return ticket


def explained(error: BaseException, folder: Path) -> BaseException:
    """Return the error in the form in which the Spark task can read it: type and fields are kept."""
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, TfosError):
        error = not_written(folder, error)
    return flight.FlightServerError(to_text(error)) if isinstance(error, TfosError) else error
