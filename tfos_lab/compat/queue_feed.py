"""Batches of rows from the queues of a `TFManager`: rows, markers between them, and None at the end."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Sequence
from typing import Any

from tfos_lab.compat.marker import EndPartition
from tfos_lab.compat.node_manager import STATE, TERMINATING

# After this time without a row, the queue of a feed that is told to end counts as drained.
_DRAINED_S = 1.0


class QueueFeed:
    """Reads one queue and writes to another; used by `TFNode.DataFeed`.

    Parameters
    ----------
    manager : TFManager
        Where the state is kept.
    queue_in, queue_out : queue.Queue or proxy of one
        Rows, and results.
    train_mode : bool
        Whether batches go on beyond the end of a partition.
    tensors : sequence of str, optional
        Names for the values of a row, in their order.
    """

    def __init__(
        self, manager: Any, queue_in: Any, queue_out: Any, *, train_mode: bool, tensors: Sequence[str] | None
    ) -> None:
        self._manager = manager
        self._in = queue_in
        self._out = queue_out
        self._train_mode = train_mode
        self._tensors = tensors
        self._is_over = False

    def next_batch(self, batch_size: int) -> list[Any] | dict[str, list[Any]]:
        """Wait for rows and return at most so many; see `TFNode.DataFeed.next_batch`."""
        rows: list[Any] = []
        while len(rows) < batch_size and not self._is_over:
            item = self._in.get(True)
            self._in.task_done()
            if item is None:
                self._is_over = True
            elif not isinstance(item, EndPartition):
                rows.append(item)
            elif rows and not self._train_mode:
                break
        if self._tensors is None:
            return rows
        return {tensor: [row[index] for row in rows] for index, tensor in enumerate(self._tensors)}

    def should_stop(self) -> bool:
        """Whether the end has been read."""
        return self._is_over

    def batch_results(self, results: Iterable[Any]) -> None:
        """Put results into the other queue."""
        for result in results:
            self._out.put(result)

    def terminate(self) -> None:
        """Tell whoever fills the queue to stop, and drop what is in it."""
        self._is_over = True
        self._manager.set(STATE, TERMINATING)
        while True:
            try:
                self._in.get(True, _DRAINED_S)
            except queue.Empty:
                return
            self._in.task_done()
