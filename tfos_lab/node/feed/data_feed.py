"""``ctx.data_feed``: rows as Python values, in batches that the user's function asks for.

A `DataFeed` cuts batches from the chunks of a `RowSource`; whether these are rows to train on or rows to be inferred is
the source's business. Rows count as taken when they enter a batch, even if it has to wait for more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tfos_lab.errors import ConfigError, FeedError
from tfos_lab.node.activity.steps import STEPS
from tfos_lab.texts import format_count

_BATCH_ADVICE = "a whole number of rows, at least 1, is needed"


class Chunk(NamedTuple):
    """Some rows, in order, of one partition.

    ``ends_partition`` if they are its last ones; ``ends_batch`` if no batch may go on beyond them. Either may be said
    later, by a chunk without rows.
    """

    rows: list[Any]
    ends_partition: bool = False
    ends_batch: bool = False


@dataclass
class Buffer:
    """Rows that a source has given and the function has not taken: `rows` from `at` on."""

    rows: list[Any] = field(default_factory=list)
    at: int = 0
    ends_batch: bool = False


class RowSource(Protocol):
    """Where a `DataFeed` gets its rows from; data feeds of one source share its ``buffer``."""

    buffer: Buffer

    def take(self) -> Chunk | None:
        """Wait for the next rows, across partitions, epochs and feeds; None once no more will come."""
        ...

    def count(self, rows: int) -> None:
        """Record that the function has taken the next ``rows`` rows of those that `take` gave, in their order."""
        ...

    def put(self, results: list[Any]) -> None:
        """Return one result for each of the oldest rows that have none; see `DataFeed.batch_results`."""
        ...

    def check_answered(self) -> None:
        """Raise a `FeedError` if a batch of an inference has been answered in part."""
        ...

    def stop(self) -> None:
        """Tell the driver that this node wants no more rows."""
        ...


class DataFeed:
    """The rows that are fed to this node, as Python values; made by ``ctx.data_feed``.

    Parameters
    ----------
    source : RowSource
        The rows.
    train_mode : bool
        Whether batches go on beyond the end of a partition.
    input_mapping : mapping of str to str, optional
        Column to name of the tensor.
    """

    def __init__(
        self, source: RowSource, *, train_mode: bool = True, input_mapping: Mapping[str, str] | None = None
    ) -> None:
        self._source = source
        self._train_mode = train_mode
        self._tensors = None if input_mapping is None else [input_mapping[column] for column in sorted(input_mapping)]
        self._buffer = source.buffer
        self._is_over = False

    def next_batch(self, batch_size: int) -> Any:
        """Wait for rows, and return the next ones; fewer than asked for only at the end.

        Without ``train_mode``, a batch also ends with its partition.

        Parameters
        ----------
        batch_size : int
            The most rows wanted.

        Returns
        -------
        list, or dict of str to list
            The rows. With ``input_mapping``, lists of columns: the i-th value of each row goes to the tensor of the
            i-th column, in the order of the sorted names of columns. Empty if there are no more rows.

        Raises
        ------
        FeedError
            If the feed fails, or the batch before has been answered in part.
        """
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ConfigError([f"next_batch({batch_size!r}): {_BATCH_ADVICE}"])
        self._source.check_answered()
        STEPS.take_batch()
        batch: list[Any] = []
        buffer = self._buffer
        while len(batch) < batch_size and self._has_rows(batch):
            part = buffer.rows[buffer.at : buffer.at + batch_size - len(batch)]
            buffer.at += len(part)
            self._source.count(len(part))
            batch = batch + part if batch else part
        return batch if self._tensors is None else self._columns(batch)

    def should_stop(self) -> bool:
        """Whether no row is left and none will come; waits until that is known."""
        self._source.check_answered()
        return not self._has_rows([])

    def batch_results(self, results: Iterable[Any]) -> None:
        """Return the results of an inference: one for each row, in the order in which the rows came.

        Parameters
        ----------
        results : iterable
            The results of the oldest rows that have none; they may come in parts.

        Raises
        ------
        FeedError
            If there are more results than rows.
        """
        self._source.put(list(results))

    def terminate(self) -> None:
        """Take no more rows: the feed ends early, on all nodes, and Spark's remaining partitions are skipped."""
        self._is_over = True
        self._buffer.rows, self._buffer.at = [], 0
        self._source.stop()

    def _has_rows(self, batch: list[Any]) -> bool:
        """Wait for a row, and return whether there is one that may follow those of the batch."""
        buffer = self._buffer
        while buffer.at == len(buffer.rows):
            if buffer.ends_batch and batch:
                return False
            chunk = None if self._is_over else self._source.take()
            if chunk is None:
                self._is_over = True
                return False
            buffer.rows, buffer.at = chunk.rows, 0
            buffer.ends_batch = chunk.ends_batch or (chunk.ends_partition and not self._train_mode)
        return True

    def _columns(self, batch: list[Any]) -> dict[str, list[Any]]:
        assert self._tensors is not None
        columns: list[Any] = list(zip(*batch, strict=False)) if batch else []
        if batch and len(columns) < len(self._tensors):
            width = min(len(row) for row in batch)
            raise FeedError(
                reason=f"input_mapping names {format_count(len(self._tensors), 'column')}, but a row has "
                f"{format_count(width, 'value')}: give each row one value for each column, in the order of "
                "their sorted names"
            )
        return {tensor: list(columns[index]) if batch else [] for index, tensor in enumerate(self._tensors)}
