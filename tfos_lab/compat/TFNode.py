"""Helpers for the function that runs on the nodes: rows from Spark in batches (`DataFeed`), and paths (`hdfs_path`)."""

from __future__ import annotations

import logging
import operator
import socket
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from tfos_lab.compat.node_manager import NodeManager
from tfos_lab.compat.queue_feed import QueueFeed
from tfos_lab.core.paths import hadoop_user, split_scheme

if TYPE_CHECKING:
    from tfos_lab.node.feed.data_feed import DataFeed as FedRows

logger = logging.getLogger(__name__)

_USE_DATA_FEED = "DEPRECATED: read rows with TFNode.DataFeed, or ctx.get_data_feed()"


class PathContext(Protocol):
    """What `hdfs_path` needs of a context."""

    defaultFS: str  # noqa: N815 - TFoS's name
    working_dir: str


class PortContext(Protocol):
    """What `release_port` needs of a context."""

    tmp_socket: socket.socket | None


def hdfs_path(ctx: PathContext, path: str) -> str:
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


def release_port(ctx: PortContext) -> None:
    """Close the socket that holds the node's port, so that any server can bind it; only warns if there is none."""
    if ctx.tmp_socket is None:
        logger.warning("release_port() has nothing to release: the port is held with release_port=False only")
        return
    logger.info("Releasing assigned port: %s", ctx.tmp_socket.getsockname())
    ctx.tmp_socket.close()
    ctx.tmp_socket = None


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
            self._rows = QueueFeed(
                mgr, self.queue_in, self.queue_out, train_mode=train_mode, tensors=self.input_tensors
            )

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
        self._rows.terminate()
        self.mgr.set("state", "terminating")


def start_cluster_server(ctx: Any, num_gpus: int = 1, rdma: bool = False) -> NoReturn:
    """Raise: TensorFlow 2's strategies start their servers themselves."""
    del ctx, num_gpus, rdma
    raise Exception(  # noqa: TRY002 - as TFoS does
        "DEPRECATED: TensorFlow 2's strategies start their servers themselves (ctx.strategy(), or tf.distribute); "
        "for a server of your own, call ctx.start_server()"
    )


def export_saved_model(sess: Any, export_dir: str, tag_set: str, signatures: Mapping[str, Any]) -> NoReturn:
    """Raise: TensorFlow 2 has no sessions to export."""
    del sess, export_dir, tag_set, signatures
    raise Exception(  # noqa: TRY002 - as TFoS does
        "DEPRECATED: export models with model.export(), tf.saved_model.save() or compat.export_saved_model()"
    )


def next_batch(mgr: Any, batch_size: int, qname: str = "input") -> NoReturn:
    """Raise: use `DataFeed`."""
    del mgr, batch_size, qname
    raise Exception(_USE_DATA_FEED)  # noqa: TRY002 - as TFoS does


def batch_results(mgr: Any, results: Iterable[Any], qname: str = "output") -> NoReturn:
    """Raise: use `DataFeed`."""
    del mgr, results, qname
    raise Exception(_USE_DATA_FEED)  # noqa: TRY002 - as TFoS does


def terminate(mgr: Any, qname: str = "input") -> NoReturn:
    """Raise: use `DataFeed`."""
    del mgr, qname
    raise Exception(_USE_DATA_FEED)  # noqa: TRY002 - as TFoS does
