"""A large payload in the agent: asked for piece by piece, and kept in a file of the node's own folder."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.core.messages import PIECE_BYTES

# Pieces that are on their way at a time: the driver's memory holds no more for a node whose network is slow.
_WINDOW = 2


def payload_of(start: m.Start) -> bytes | mmap.mmap:
    """Return the payload of a start message that an agent has passed on."""
    if not start.payload_file:
        return start.payload
    with Path(start.payload_file).open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class PayloadFile:
    """One node's payload; used in the agent's poll loop only.

    ``on_ready`` is called with the start message when its payload is here, ``on_problem`` with a sentence if it cannot
    be kept.
    """

    def __init__(
        self,
        scratch: Path,
        send: Callable[[m.FromAgent], None],
        *,
        on_ready: Callable[[m.Start], None],
        on_problem: Callable[[str], None],
    ) -> None:
        self._path = scratch.resolve() / "payload"  # not that of a link to the disks of a container
        self._send = send
        self._on_ready = on_ready
        self._on_problem = on_problem
        self._start: m.Start | None = None
        self._file: BinaryIO | None = None
        self._asked = 0

    @property
    def is_awaited(self) -> bool:
        """Whether the payload is on its way."""
        return self._start is not None

    def handle(self, message: m.Start | m.PayloadPiece) -> None:
        """Handle the driver's message."""
        if isinstance(message, m.PayloadPiece):
            self._take(message.data)
        elif not message.payload_bytes:
            self._on_ready(message)
        elif self._file is None:
            self._start = message
            try:
                self._file = self._path.open("wb")
            except OSError as error:
                self._fail(message, error)
                return
            for _ in range(_WINDOW):
                self._ask(message)

    def _ask(self, start: m.Start) -> None:
        if self._asked < start.payload_bytes:
            self._send(m.PayloadWanted(offset=self._asked))
            self._asked += PIECE_BYTES

    def _take(self, piece: bytes) -> None:
        """Write a piece, and ask for another; they come in the order in which they were asked for."""
        start, file = self._start, self._file
        if start is None or file is None:
            return
        self._ask(start)
        try:
            file.write(piece)
            if file.tell() < start.payload_bytes:
                return
            file.close()
        except OSError as error:
            self._fail(start, error)
            return
        self._start = None
        self._on_ready(msgspec.structs.replace(start, payload_file=str(self._path)))

    def _fail(self, start: m.Start, error: OSError) -> None:
        self._start = None
        with contextlib.suppress(OSError):  # what is not written yet has no room
            self._path.unlink(missing_ok=True)
            if self._file is not None:
                self._file.close()
        self._on_problem(
            f"the function and its arguments ({start.payload_bytes / 1e6:,.0f} MB) cannot be kept in "
            f"{self._path.parent.parent}: {error.strerror or error}; capture less, feed the rows with data=..., or "
            "free space there"
        )
