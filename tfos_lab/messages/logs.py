"""Log records: what a node's function writes, on its way to the driver."""

from __future__ import annotations

import msgspec

from tfos_lab.messages.common import Message


class LogRecord(msgspec.Struct, frozen=True, array_like=True):
    """Bytes that the child wrote to one stream at one time (seconds since the epoch)."""

    time_s: float
    stream: str
    data: bytes


class Logs(Message, frozen=True):
    """A batch of log records, in order; ``sequence`` counts batches of this node from 0."""

    rank: int
    sequence: int
    records: list[LogRecord]


class LogCredit(Message, frozen=True):
    """The driver has written log batches up to and including ``sequence``."""

    sequence: int


FromAgent = Logs
ToAgent = LogCredit
