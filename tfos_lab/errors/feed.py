"""Errors of rows: on their way to the nodes and back, and in TFRecord files."""

from __future__ import annotations

from tfos_lab.errors.base import TfosError


class FeedError(TfosError, RuntimeError):
    """Rows could not be fed to the nodes."""

    reason: str

    def __init__(self, *, reason: str) -> None:
        super().__init__(reason=reason)


class FeedTimeout(FeedError, TimeoutError):
    """Nothing moved for ``feed_timeout`` seconds: Spark ended no task, and no node received or took a row."""


class NodeUnreachable(FeedError, ConnectionError):
    """A Spark task could not reach the node that its rows are for."""


class RecordError(TfosError, ValueError):
    """A TFRecord file that cannot be read, or a row that cannot become a record."""

    reason: str

    def __init__(self, *, reason: str) -> None:
        super().__init__(reason=reason)
