"""The payload on its way to a node that asks for it piece by piece: for functions with large arguments."""

from __future__ import annotations

from tfos_lab.messages.common import Message

# Of a piece; the last one may be shorter.
PIECE_BYTES = 1 << 18


class PayloadWanted(Message, frozen=True):
    """Send the piece that begins at ``offset``, if there is one; the first ``taken`` bytes are here."""

    rank: int
    offset: int
    taken: int


class PayloadPiece(Message, frozen=True):
    """Bytes of the payload."""

    offset: int
    data: bytes


FromAgent = PayloadWanted
ToAgent = PayloadPiece
