"""Helpers for the function that runs on the nodes: rows from Spark in batches (`DataFeed`), and paths (`hdfs_path`).

Also what ``ctx.mgr`` is on a node: the methods of a `TFManager` over the node's own feed. There is no further process.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import operator
import queue
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from tfos_lab.compat.marker import EndPartition
from tfos_lab.core.paths import hadoop_user, split_scheme
from tfos_lab.errors import ConfigError

if TYPE_CHECKING:
    from tfos_lab.compat.TFSparkNode import TFNodeContext
    from tfos_lab.node.context.context import NodeContext
    from tfos_lab.node.feed.data_feed import DataFeed as FedRows

logger = logging.getLogger(__name__)

_STATE, _RUNNING, _TERMINATING = "state", "running", "terminating"
# Queues that carry no rows.
_OUTPUT, _ERROR, _CONTROL = "output", "error", "control"
# After this time without a row, the queue of a feed that is being ended counts as drained.
_DRAINED_S = 1.0
_USE_DATA_FEED = "read rows with TFNode.DataFeed, or ctx.get_data_feed()"


def hdfs_path(ctx: TFNodeContext, path: str) -> str:
    """Return a path in full, with its scheme, as TensorFlow and Hadoop take it.

    Parameters
    ----------
    ctx : TFNodeContext
        Its ``defaultFS`` and ``working_dir`` are used.
    path : str
        With a scheme, it is returned as it is. An absolute path is on ``defaultFS``. A relative one is in the user's
        home on HDFS and ViewFS, in ``working_dir`` on a local file system, and at the top of any other.
    """
    if split_scheme(path)[0]:
        return path
    scheme = split_scheme(f"{ctx.defaultFS}/")[0]
    root = ctx.defaultFS if ctx.defaultFS.endswith("://") else ctx.defaultFS.rstrip("/")
    if path.startswith("/"):
        return f"{root}{path}"
    if scheme in ("hdfs", "viewfs"):
        return f"{root}/user/{hadoop_user()}/{path}"
    if scheme == "file":
        return f"{root}/{ctx.working_dir.lstrip('/')}/{path}"
    logger.warning("relative path %s: taken from the top of %s", path, ctx.defaultFS)
    return f"{root}/{path}"


def release_port(ctx: TFNodeContext) -> None:
    """Close the socket that holds the node's port, so that any server can bind it; only warns if there is none."""
    if ctx.tmp_socket is None:
        logger.warning("release_port() has nothing to release: the port is held with release_port=False only")
        return
    logger.info("Releasing assigned port: %s", ctx.tmp_socket.getsockname())
    ctx.tmp_socket.close()
    ctx.tmp_socket = None


# ---- the manager of a node ------------------------------------------------------------------------------------------


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

    @functools.cached_property
    def _rows(self) -> FedRows:
        return self._context.data_feed(queue=self._name)

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
    """Values and queues of one node, over its native context and by the names that `TFCluster.run` was given."""

    def __init__(self, context: NodeContext, queues: Sequence[str]) -> None:
        self._context = context
        self._names = list(queues)
        self._values: dict[Any, Any] = {_STATE: _RUNNING}
        self._plain: dict[str, queue.Queue[Any]] = {name: queue.Queue() for name in (_ERROR, _CONTROL)}
        rows = {name: RowQueue(context, name) for name in queues if name not in (_OUTPUT, *self._plain)}
        self._rows = rows | ({_OUTPUT: next(iter(rows.values()))} if _OUTPUT in queues and rows else {})

    def get(self, key: Any) -> StoredValue:
        """Return a value; its ``str`` is the value's ``repr``, as a proxy's is."""
        return StoredValue(self._values[key])

    def set(self, key: Any, value: Any) -> None:
        """Store a value. The state ``"terminating"`` ends the feed."""
        self._values[key] = value
        if (key, value) == (_STATE, _TERMINATING):
            self._context.stop_feed()

    def get_queue(self, qname: str) -> RowQueue | queue.Queue[Any] | None:
        """Return a queue by its name; None if the cluster has none of that name."""
        return self._rows.get(qname) or self._plain.get(qname)

    def open_rows(self, qname: str, *, train_mode: bool, input_mapping: Mapping[str, str] | None) -> FedRows:
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


# ---- rows in batches -------------------------------------------------------------------------------------------------


@dataclass
class QueueFeed:
    """Batches of rows from the queue of a `TFManager`: rows, markers between them, and None at the end.

    ``tensors`` are names for the values of a row, in their order.
    """

    queue_in: Any
    queue_out: Any
    train_mode: bool
    tensors: Sequence[str] | None
    is_over: bool = False

    def next_batch(self, batch_size: int) -> list[Any] | dict[str, list[Any]]:
        """Wait for rows and return at most so many."""
        rows: list[Any] = []
        while len(rows) < batch_size and not self.is_over:
            item = self.queue_in.get(True)
            self.queue_in.task_done()
            if item is None:
                self.is_over = True
            elif not isinstance(item, EndPartition):
                rows.append(item)
            elif rows and not self.train_mode:
                break
        if self.tensors is None:
            return rows
        return {tensor: [row[index] for row in rows] for index, tensor in enumerate(self.tensors)}

    def should_stop(self) -> bool:
        """Whether the end has been read."""
        return self.is_over

    def batch_results(self, results: Iterable[Any]) -> None:
        """Put results into the other queue."""
        for result in results:
            self.queue_out.put(result)

    def terminate(self) -> None:
        """Drop what is in the queue, until nothing more comes."""
        self.is_over = True
        with contextlib.suppress(queue.Empty):
            while True:
                self.queue_in.get(True, _DRAINED_S)
                self.queue_in.task_done()


class DataFeed:
    """The rows that Spark feeds to this node, in batches.

    Parameters
    ----------
    mgr : TFManager
        ``ctx.mgr``, or a manager with queues of its own.
    train_mode : bool
        False if results are returned with `batch_results`: a batch then also ends at the end of a partition.
    qname_in, qname_out : str
        The queues of rows, and of results.
    input_mapping : mapping of str to str, optional
        Column to tensor. Batches are then dicts; the i-th value of a row belongs to the i-th column in sorted order.

    Attributes
    ----------
    mgr, train_mode, qname_in, qname_out
        As given.
    input_tensors : list of str or None
        The tensors, in the order of their columns' sorted names.
    queue_in, queue_out
        The queues themselves, for one row at a time.
    """

    def __init__(
        self,
        mgr: Any,
        train_mode: bool = True,
        qname_in: str = "input",
        qname_out: str = "output",
        input_mapping: Mapping[str, str] | None = None,
    ) -> None:
        self.mgr = mgr
        self.train_mode = train_mode
        self.qname_in = qname_in
        self.qname_out = qname_out
        self.input_tensors = None if input_mapping is None else [input_mapping[name] for name in sorted(input_mapping)]
        self.queue_in = mgr.get_queue(qname_in)
        self.queue_out = mgr.get_queue(qname_out)
        self._rows: FedRows | QueueFeed
        if isinstance(mgr, NodeManager):
            self._rows = mgr.open_rows(qname_in, train_mode=train_mode, input_mapping=input_mapping)
        else:
            self._rows = QueueFeed(self.queue_in, self.queue_out, train_mode, self.input_tensors)

    @property
    def done_feeding(self) -> bool:
        """Whether the end of the rows has been reached; see `should_stop`."""
        return self._rows.should_stop()

    def next_batch(self, batch_size: int) -> Any:
        """Wait for rows, and return the next ``batch_size`` of them; fewer at the end.

        Returns
        -------
        list, or dict of str to list
            Rows as they are in the RDD. With ``input_mapping``, a list of values for each tensor.
        """
        return self._rows.next_batch(operator.index(batch_size))

    def should_stop(self) -> bool:
        """Whether there are no more rows, or `terminate` was called.

        On a node, this waits until it is known: a loop that asks first never gets an empty batch.
        """
        return self._rows.should_stop()

    def batch_results(self, results: Iterable[Any]) -> None:
        """Return one result for each row, in the order in which the rows came, to `TFCluster.inference`."""
        self._rows.batch_results(results)

    def terminate(self) -> None:
        """Take no more rows: what Spark has still to send is skipped, on all nodes."""
        logger.info("terminate() invoked")
        self.mgr.set(_STATE, _TERMINATING)  # first, so that no more rows are put into a manager's queue
        self._rows.terminate()


# ---- what TensorFlow 2 has made void ---------------------------------------------------------------------------------


def start_cluster_server(ctx: Any, num_gpus: int = 1, rdma: bool = False) -> NoReturn:
    """Raise: TensorFlow 2's strategies start their servers themselves."""
    del ctx, num_gpus, rdma
    _refuse(
        "TensorFlow 2's strategies start their servers themselves (ctx.strategy(), or tf.distribute); "
        "for a server of your own, call ctx.start_server()"
    )


def export_saved_model(sess: Any, export_dir: str, tag_set: str, signatures: Mapping[str, Any]) -> NoReturn:
    """Raise: TensorFlow 2 has no sessions to export."""
    del sess, export_dir, tag_set, signatures
    _refuse("export models with model.export(), tf.saved_model.save() or compat.export_saved_model()")


def next_batch(mgr: Any, batch_size: int, qname: str = "input") -> NoReturn:
    """Raise: use `DataFeed`."""
    del mgr, batch_size, qname
    _refuse(_USE_DATA_FEED)


def batch_results(mgr: Any, results: Iterable[Any], qname: str = "output") -> NoReturn:
    """Raise: use `DataFeed`."""
    del mgr, results, qname
    _refuse(_USE_DATA_FEED)


def terminate(mgr: Any, qname: str = "input") -> NoReturn:
    """Raise: use `DataFeed`."""
    del mgr, qname
    _refuse(_USE_DATA_FEED)


def _refuse(advice: str) -> NoReturn:
    raise Exception(f"DEPRECATED: {advice}")  # noqa: TRY002 - as TFoS does
