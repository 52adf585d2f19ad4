"""The node's endpoint for rows: an Arrow Flight server that writes what feed tasks send into the spool.

Rows of one attempt of one Spark partition go into one Arrow IPC file; they count when the driver commits the attempt.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import flight

from tfos_lab.messages import TlsIdentity


class PutTicket(msgspec.Struct, frozen=True):
    """What stands over the rows that a feed task sends."""

    token: str
    feed: int
    partition: int
    attempt: str


class CommitTicket(msgspec.Struct, frozen=True):
    """A feed task's word that all its rows are stored; ``rows`` maps seats to rows."""

    token: str
    feed: int
    partition: int
    attempt: str
    rows: dict[int, int]
    size_bytes: int
    shapes: dict[str, list[int]]


class FlightEndpoint(flight.FlightServerBase):  # type: ignore[misc]
    """Takes rows by `do_put` and commits by `do_action`, from whoever holds the feed's token.

    Parameters
    ----------
    location : str
        ``grpc+unix://...`` in a folder that only the user can open, or ``grpc+tls://host:0``.
    tls : TlsIdentity or None
        For the latter.
    spool : pathlib.Path
        Folder for the segments.
    on_stored : callable
        Called with ``(ticket, path, rows)`` when an attempt's rows lie on this node; on a Flight thread.
    on_commit : callable
        Called with the `CommitTicket`; on a Flight thread.
    """

    def __init__(
        self,
        location: str,
        tls: TlsIdentity | None,
        spool: Path,
        on_stored: Callable[[PutTicket, Path, int], None],
        on_commit: Callable[[CommitTicket], None],
    ) -> None:
        super().__init__(location, tls_certificates=[(tls.certificate, tls.key)] if tls else None)
        self._spool = spool
        self._on_stored = on_stored
        self._on_commit = on_commit
        self.token = ""

    def do_put(self, _context: Any, descriptor: Any, reader: Any, _writer: Any) -> None:
        """Write one attempt's rows into a segment of their own."""
        ticket = msgspec.msgpack.decode(descriptor.command, type=PutTicket)
        self._check(ticket.token)
        path = self._spool / f"{ticket.feed}-{ticket.partition}-{ticket.attempt}.arrow"
        rows = 0
        try:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, reader.schema) as segment:
                for chunk in reader:
                    segment.write_batch(chunk.data)
                    rows += chunk.data.num_rows
        except BaseException as error:
            path.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno is not None:
                message = f"the node's spool in {self._spool} cannot be written: {error.strerror}"
                raise flight.FlightServerError(f"tfos_lab: {message}") from error
            raise
        self._on_stored(ticket, path, rows)

    def do_action(self, _context: Any, action: Any) -> list[Any]:
        """Pass a commit on."""
        ticket = msgspec.msgpack.decode(action.body.to_pybytes(), type=CommitTicket)
        self._check(ticket.token)
        self._on_commit(ticket)
        return []

    def _check(self, token: str) -> None:
        if not self.token or not hmac.compare_digest(token, self.token):
            raise flight.FlightUnauthenticatedError("this feed's token is needed")
