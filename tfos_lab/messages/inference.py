"""Rows that are answered: one exchange is one Spark task's, rows in and results out, in order."""

from __future__ import annotations

from tfos_lab.messages.common import Message, TlsIdentity


class InferenceOpen(Message, frozen=True):
    """Rows will come that are to be answered with results; otherwise as `FeedOpen`."""

    schema: str
    token: str
    tls: TlsIdentity | None = None


class InferenceReady(Message, frozen=True):
    """The node's endpoints for rows to infer from are open; ``locations`` as in `FeedReady`."""

    rank: int
    locations: list[str]


class ExchangeRows(Message, frozen=True):
    """The next ``rows`` rows of an exchange lie in the Arrow IPC file at ``path``, which the child removes."""

    exchange: int
    path: str
    rows: int
    shapes: dict[str, list[int]]


class ExchangeTaken(Message, frozen=True):
    """The child has taken one `ExchangeRows` in: there is room for more."""

    rank: int
    exchange: int


class ExchangeResults(Message, frozen=True):
    """What the node's function put as results for the next ``rows`` rows of an exchange: an Arrow IPC stream."""

    rank: int
    exchange: int
    rows: int
    data: bytes


class ExchangeEnded(Message, frozen=True):
    """No further rows come in this exchange."""

    exchange: int


class ExchangeDropped(Message, frozen=True):
    """Nobody waits for the results of this exchange any more."""

    exchange: int


class RowsAnswered(Message, frozen=True):
    """The node has answered ``rows`` further rows of an inference; ``last`` are a partition's last ones."""

    rank: int
    inference: int
    rows: int
    last: bool = False


FromAgent = InferenceReady | ExchangeTaken | ExchangeResults | RowsAnswered
ToAgent = InferenceOpen | ExchangeRows | ExchangeEnded | ExchangeDropped
