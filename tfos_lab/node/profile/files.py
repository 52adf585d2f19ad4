"""The agent's part of a profile: sends the trace's files, piece by piece, as the driver asks for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from tfos_lab import messages as m
from tfos_lab.node.profile.child import profile_folder

_PIECE_BYTES = 1 << 20


class ProfileFiles:
    """Reads what the child has written.

    Parameters
    ----------
    rank : int
        The node's rank.
    scratch : pathlib.Path
        The agent's own folder.
    send : callable
        Sends a message to the driver.
    send_to_child : callable
        Sends a message to the child.
    """

    def __init__(
        self,
        rank: int,
        scratch: Path,
        send: Callable[[m.FromAgent], None],
        send_to_child: Callable[[m.ToAgent], None],
    ) -> None:
        self._rank = rank
        self._scratch = scratch
        self._send = send
        self._send_to_child = send_to_child

    def handle(self, message: m.ToAgent) -> None:
        """Apply a message of the driver, if it is about a profile."""
        match message:
            case m.ProfileWanted():
                self._send_to_child(message)
            case m.ProfilePieceWanted():
                self._send_piece(message)

    def _send_piece(self, wanted: m.ProfilePieceWanted) -> None:
        path, data = profile_folder(self._scratch, wanted.request) / wanted.name, b""
        with contextlib.suppress(OSError), path.open("rb") as file:
            file.seek(wanted.offset)
            data = file.read(_PIECE_BYTES)
            if len(data) < _PIECE_BYTES:
                path.unlink()
        self._send(m.ProfilePiece(self._rank, wanted.request, wanted.name, wanted.offset, data))
