"""A large payload in the agent: asked for piece by piece, and kept in a file of the node's own folder."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.core.messages import PIECE_BYTES

# Pieces that are asked for at a time.
_WINDOW = 4
# Pieces that have not come for so long are asked for again.
_STALLED_S = 5.0


def payload_of(start: m.Start) -> bytes | mmap.mmap:
    """Return the payload of a start message that an agent has passed on."""
    if not start.payload_file:
        return start.payload
    with Path(start.payload_file).open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class PayloadFile:
    """One node's payload; used in the agent's poll loop only.

    Parameters
    ----------
    rank : int
        The node's rank, for its messages.
    scratch : Path
        The agent's own folder, which is removed with the agent.
    send : callable
        Sends a message to the driver.
    on_ready : callable
        Called with the start message when its payload is here.
    on_problem : callable
        Called with a sentence if it cannot be kept.
    """

    def __init__(
        self,
        rank: int,
        scratch: Path,
        send: Callable[[m.FromAgent], None],
        *,
        on_ready: Callable[[m.Start], None],
        on_problem: Callable[[str], None],
    ) -> None:
        self._rank = rank
        self._path = scratch.resolve() / "payload"  # not that of a link to the disks of a container
        self._send = send
        self._on_ready = on_ready
        self._on_problem = on_problem
        self._start: m.Start | None = None
        self._file: BinaryIO | None = None
        self._taken = self._asked = 0
        self._digest = hashlib.sha256()
        self._moved_at = 0.0

    @property
    def is_awaited(self) -> bool:
        """Whether the payload is on its way."""
        return self._start is not None

    def handle(self, message: m.Start | m.PayloadPiece) -> None:
        """Handle the driver's message."""
        if isinstance(message, m.PayloadPiece):
            self._take(message)
        elif not message.payload_bytes:
            self._on_ready(message)
        elif self._file is None:
            self._start = message
            try:
                self._file = self._path.open("wb")
            except OSError as error:
                self._fail(message, error.strerror or str(error))
            else:
                self._ask_again(time.monotonic())

    def tick(self, now: float) -> None:
        """Ask again for what has not come; called often."""
        if self._start is not None and now - self._moved_at > _STALLED_S:
            self._ask_again(now)

    def _ask_again(self, now: float) -> None:
        self._asked, self._moved_at = self._taken, now
        self._ask(_WINDOW)

    def _ask(self, pieces: int = 1) -> None:
        """Ask for the next pieces; beyond the end, this only says how much is here, which makes room for others."""
        for _ in range(pieces):
            self._send(m.PayloadWanted(rank=self._rank, offset=self._asked, taken=self._taken))
            self._asked += PIECE_BYTES

    def _take(self, piece: m.PayloadPiece) -> None:
        """Write a piece, and ask for further ones."""
        start, file = self._start, self._file
        if start is None or file is None or piece.offset != self._taken:
            return
        try:
            file.write(piece.data)
            self._digest.update(piece.data)
            self._taken += len(piece.data)
            self._moved_at = time.monotonic()
            self._ask()
            if self._taken < start.payload_bytes:
                return
            file.close()
        except OSError as error:
            self._fail(start, error.strerror or str(error))
            return
        if self._digest.hexdigest() != start.payload_digest:
            self._fail(start, "it has changed on its way")
            return
        self._start = None
        self._on_ready(msgspec.structs.replace(start, payload_file=str(self._path)))

    def _fail(self, start: m.Start, why: str) -> None:
        self._start = None
        self.close()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._on_problem(
            f"the function and its arguments ({start.payload_bytes / 1e6:,.0f} MB) cannot be kept in "
            f"{self._path.parent.parent}: {why}; capture less, feed the rows with data=..., or free space there"
        )

    def close(self) -> None:
        """Close the file; may be called twice."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # what is not written yet has no room
                self._file.close()
