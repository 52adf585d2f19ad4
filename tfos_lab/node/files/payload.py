"""A large payload in the agent: asked for piece by piece, and kept in a file of the node's own folder."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.node.files.fetcher import FileFetcher

# Pieces that are on their way at a time: the driver's memory holds no more for a node whose network is slow.
_WINDOW = 2
_NAME = "payload"


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
        self._home = scratch.resolve()  # not that of a link to the disks of a container
        self._files = FileFetcher(_NAME, self._home, self._home / f".{_NAME}", window_bytes=_WINDOW * m.PIECE_BYTES)
        self._send = send
        self._on_ready = on_ready
        self._on_problem = on_problem
        self._start: m.Start | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether the payload is on its way."""
        return self._start is not None

    def handle(self, message: m.Start | m.PayloadPiece) -> None:
        """Handle the driver's message."""
        if isinstance(message, m.PayloadPiece):
            asked = self._files.take(m.FilePiece(_NAME, _NAME, message.offset, message.data))
        elif message.payload_bytes:
            self._start = message
            asked = self._files.choose(m.FilesListed(_NAME, 0, [m.ListedFile(_NAME, message.payload_bytes)]))
        else:
            self._on_ready(message)
            return
        for one in asked:
            if isinstance(one, m.PieceWanted):
                self._send(m.PayloadWanted(offset=one.offset))
        if self._start is not None and self._files.is_answered:
            self._conclude(self._start)

    def _conclude(self, start: m.Start) -> None:
        self._start = None
        if not self._files.problems:
            self._on_ready(msgspec.structs.replace(start, payload_file=str(self._home / _NAME)))
            return
        self._files.drop()  # what is not written yet has no room
        self._on_problem(
            f"the function and its arguments ({start.payload_bytes / 1e6:,.0f} MB): {self._files.problems[_NAME]}; "
            "capture less, feed the rows with data=..., or free space there"
        )
