"""Inference: each Spark task has an exchange, which takes its rows and returns results, in order."""

from __future__ import annotations

from tfos_lab.messages.common import INPUT_QUEUE, Message, TlsIdentity


class InferenceOpen(Message, frozen=True):
    """Open endpoints for rows that are to be answered with results; otherwise as `FeedOpen`."""

    schema: str
    token: str
    tls: TlsIdentity | None = None
    objects: bool = False
    queue: str = INPUT_QUEUE


class InferenceReady(Message, frozen=True):
    """The node's endpoints for inferences are open; ``locations`` as in `FeedReady`."""

    rank: int
    locations: list[str]


class ExchangeRows(Message, frozen=True):
    """The Arrow IPC file at ``path`` holds the next ``rows`` rows of an exchange; the child removes it.

    ``objects`` and ``queue`` as in `InferenceOpen`; only columns have ``shapes``.
    """

    exchange: int
    path: str
    rows: int
    shapes: dict[str, list[int]]
    objects: bool = False
    queue: str = INPUT_QUEUE


class ExchangeTaken(Message, frozen=True):
    """The child has read the file of one `ExchangeRows`: another may be sent."""

    rank: int
    exchange: int


class ExchangeResults(Message, frozen=True):
    """The results of the next ``rows`` rows of an exchange, as an Arrow IPC stream."""

    rank: int
    exchange: int
    rows: int
    data: bytes


class ExchangeEnded(Message, frozen=True):
    """This exchange has no more rows."""

    exchange: int


class ExchangeDropped(Message, frozen=True):
    """The results of this exchange are no longer wanted."""

    exchange: int


class RowsAnswered(Message, frozen=True):
    """The node has answered another ``rows`` rows of an inference; with the ``last``, a partition is done."""

    rank: int
    inference: int
    rows: int
    last: bool = False


FromAgent = InferenceReady | ExchangeTaken | ExchangeResults | RowsAnswered
ToAgent = InferenceOpen | ExchangeRows | ExchangeEnded | ExchangeDropped
