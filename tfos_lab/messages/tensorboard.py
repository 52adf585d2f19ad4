"""TensorBoard on a node's host, and the tunnel to it."""

from __future__ import annotations

from tfos_lab.messages.common import Message


class TensorBoardReady(Message, frozen=True):
    """TensorBoard is running on the node's host: streams to it can be opened."""

    rank: int


class TensorBoardGone(Message, frozen=True):
    """TensorBoard could not be started on the node, or has ended."""

    rank: int
    reason: str


class TunnelOpen(Message, frozen=True):
    """Open a stream to the node's TensorBoard; each side may have ``window`` bytes in flight."""

    stream: int
    window: int


class TunnelData(Message, frozen=True):
    """Bytes of one stream; ``offset`` counts the bytes before them, so that a loss is detected."""

    rank: int
    stream: int
    offset: int
    data: bytes


class TunnelCredit(Message, frozen=True):
    """``size`` bytes of the stream were passed on: as many more may be sent."""

    rank: int
    stream: int
    size: int


class TunnelClosed(Message, frozen=True):
    """The stream has ended, with or without an error."""

    rank: int
    stream: int


FromAgent = TensorBoardReady | TensorBoardGone | TunnelData | TunnelCredit | TunnelClosed
ToAgent = TunnelOpen | TunnelData | TunnelCredit | TunnelClosed
