"""``ctx.mgr`` on a node: the methods of a `TFManager`, over the node's own feed. There is no further process."""

from __future__ import annotations

import queue
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfos_lab.errors import ConfigError

if TYPE_CHECKING:
    from tfos_lab.node.context.context import NodeContext
    from tfos_lab.node.feed.data_feed import DataFeed

STATE, RUNNING, TERMINATING = "state", "running", "terminating"
# Queues that carry no rows.
_OUTPUT, _ERROR, _CONTROL = "output", "error", "control"


class StoredValue:
    """A value as a manager's proxy shows it: its text is the value's ``repr``."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def _getvalue(self) -> Any:
        return self._value

    def __str__(self) -> str:
        return repr(self._value)

    def __eq__(self, other: object) -> bool:
        return bool(self._value == (other._value if isinstance(other, StoredValue) else other))

    def __hash__(self) -> int:
        return hash(self._value)


class RowQueue:
    """The rows of one queue, one by one; opened when it is first used."""

    def __init__(self, context: NodeContext, name: str) -> None:
        self._context = context
        self._name = name
        self._opened: DataFeed | None = None

    @property
    def _rows(self) -> DataFeed:
        if self._opened is None:
            self._opened = self._context.data_feed(queue=self._name)
        return self._opened

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Wait for the next row and return it, or None after the last one."""
        del block, timeout
        return next(iter(self._rows.next_batch(1)), None)

    def empty(self) -> bool:
        """Whether no row is left and none will come."""
        return self._rows.should_stop()

    def task_done(self) -> None:
        """Do nothing: a row counts as taken when `get` returns it."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Return a result for the oldest row that has none."""
        del block, timeout
        self._rows.batch_results([item])


class NodeManager:
    """Values and queues of one node.

    Parameters
    ----------
    context : NodeContext
        The node's native context.
    queues : sequence of str
        The names that `TFCluster.run` was given.
    """

    def __init__(self, context: NodeContext, queues: Sequence[str]) -> None:
        self._context = context
        self._names = list(queues)
        self._values: dict[Any, Any] = {STATE: RUNNING}
        self._plain: dict[str, queue.Queue[Any]] = {name: queue.Queue() for name in (_ERROR, _CONTROL)}
        rows = {name: RowQueue(context, name) for name in queues if name not in (_OUTPUT, *self._plain)}
        self._rows = rows | ({_OUTPUT: next(iter(rows.values()))} if _OUTPUT in queues and rows else {})

    def get(self, key: Any) -> StoredValue:
        """Return a value; its ``str`` is the value's ``repr``, as a proxy's is."""
        return StoredValue(self._values[key])

    def set(self, key: Any, value: Any) -> None:
        """Store a value. The state ``"terminating"`` ends the feed."""
        self._values[key] = value
        if (key, value) == (STATE, TERMINATING):
            self._context.stop_feed()

    def get_queue(self, qname: str) -> RowQueue | queue.Queue[Any] | None:
        """Return a queue by its name; None if the cluster has none of that name."""
        return self._rows.get(qname) or self._plain.get(qname)

    def open_rows(self, qname: str, *, train_mode: bool, input_mapping: Mapping[str, str] | None) -> DataFeed:
        """Return the rows of a queue in batches.

        Raises
        ------
        ConfigError
            If the cluster has no such queue.
        """
        if qname not in self._names:
            advice = f"name it in TFCluster.run(queues=[...]), which has {self._names}"
            raise ConfigError([f"qname_in={qname!r}: this cluster has no such queue; {advice}"])
        return self._context.data_feed(train_mode, input_mapping, queue=qname)

    def raise_error(self) -> None:
        """Raise what the function, or a thread of it, has put into the queue ``error``."""
        errors = self._plain[_ERROR]
        if not errors.empty():
            raise RuntimeError(f"Exception in worker:\n{errors.get()}")
