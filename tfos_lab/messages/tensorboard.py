"""TensorBoard beside a node, and the tunnel to it."""

from __future__ import annotations

from tfos_lab.messages.common import Message


class TensorBoardReady(Message, frozen=True):
    """TensorBoard serves beside the node: streams to it can be opened."""

    rank: int


class TensorBoardGone(Message, frozen=True):
    """TensorBoard could not be started on the node, or has ended."""

    rank: int
    reason: str


class TunnelOpen(Message, frozen=True):
    """Open a stream to the node's TensorBoard; each side may send ``window`` bytes that are not yet passed on."""

    stream: int
    window: int


class TunnelData(Message, frozen=True):
    """Bytes of one stream; ``offset`` counts those before them, so that a loss shows at once."""

    rank: int
    stream: int
    offset: int
    data: bytes


class TunnelCredit(Message, frozen=True):
    """So many bytes of the stream have been passed on: as many more may be sent."""

    rank: int
    stream: int
    size: int


class TunnelClosed(Message, frozen=True):
    """The stream has ended, well or badly."""

    rank: int
    stream: int


FromAgent = TensorBoardReady | TensorBoardGone | TunnelData | TunnelCredit | TunnelClosed
ToAgent = TunnelOpen | TunnelData | TunnelCredit | TunnelClosed
