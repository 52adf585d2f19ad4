"""`TFNodeContext`: the second argument of ``map_fun(args, ctx)``. What else TFoS had here is the agents' business."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from tfos_lab.compat import TFNode
from tfos_lab.core.roles import rank_in_training
from tfos_lab.node.context.shares import ShareMethods

if TYPE_CHECKING:
    from tfos_lab.node.lock_step import LockStep

_INTERNALS = ("TFSparkNode", "run", "train", "inference", "shutdown", "_get_manager", "_get_cluster_spec")


class TFNodeContext(ShareMethods):
    """What the function knows of its node and the cluster.

    On a node it also has everything of the native context, such as ``ctx.dataset``, ``ctx.strategy`` and ``ctx.report``
    (see `tfos_lab.NodeContext`). It can be made without a cluster, too, for tests of a function.

    Attributes
    ----------
    executor_id, worker_num : int
        Number of this node within the cluster, from 0; parameter servers come first.
    job_name, task_index : str, int
        Such as ``"worker"`` and 1.
    cluster_spec : dict of str to list of str
        ``{job: ["host:port", ...]}``.
    num_workers : int
        Number of nodes that train: chief (or master) and workers.
    rank, world_size : int or None, int
        Number of this node among those that train, and how many do; see `tfos_lab.NodeContext`.
    defaultFS, working_dir : str
        Spark's file system for paths without a scheme, and the driver's working directory.
    mgr : TFManager
        The node's manager: ``TFNode.DataFeed(ctx.mgr)``.
    tmp_socket : socket.socket or None
        Holds the node's port, with ``release_port=False``.
    """

    def __init__(
        self,
        executor_id: int = 0,
        job_name: str = "",
        task_index: int = 0,
        cluster_spec: Mapping[str, list[str]] = {},
        defaultFS: str = "file://",  # noqa: N803 - TFoS's name
        working_dir: str = ".",
        mgr: Any = None,
        tmp_socket: socket.socket | None = None,
    ) -> None:
        self.worker_num = executor_id
        self.executor_id = executor_id
        self.job_name = job_name
        self.task_index = task_index
        self.cluster_spec = cluster_spec
        self.num_workers = sum(len(cluster_spec.get(job, ())) for job in ("master", "chief", "worker"))
        self.world_size = max(1, self.num_workers)
        self.rank = rank_in_training(cluster_spec, job_name, task_index) if job_name else 0
        self.defaultFS = defaultFS
        self.working_dir = working_dir
        self.mgr = mgr
        self.tmp_socket = tmp_socket
        self._native: Any = None

    def __getattr__(self, name: str) -> Any:
        native = self.__dict__.get("_native")
        if native is None or name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(native, name)

    @property
    def _lock_step(self) -> LockStep | None:  # type: ignore[override]
        return None if self._native is None else self._native._lock_step  # noqa: SLF001 - it is the same node's

    def absolute_path(self, path: str) -> str:
        """Return a path in full, with its scheme; see `TFNode.hdfs_path`."""
        return TFNode.hdfs_path(self, path)

    def start_cluster_server(self, num_gpus: int = 1, rdma: bool = False) -> NoReturn:
        """Raise; see `TFNode.start_cluster_server`."""
        TFNode.start_cluster_server(self, num_gpus, rdma)

    def export_saved_model(self, sess: Any, export_dir: str, tag_set: str, signatures: Mapping[str, Any]) -> NoReturn:
        """Raise; see `TFNode.export_saved_model`."""
        TFNode.export_saved_model(sess, export_dir, tag_set, signatures)

    def get_data_feed(
        self,
        train_mode: bool = True,
        qname_in: str = "input",
        qname_out: str = "output",
        input_mapping: Mapping[str, str] | None = None,
    ) -> TFNode.DataFeed:
        """Return the rows that Spark feeds to this node; see `TFNode.DataFeed`."""
        return TFNode.DataFeed(self.mgr, train_mode, qname_in, qname_out, input_mapping)

    def release_port(self) -> None:
        """Let go of the node's port; see `TFNode.release_port`."""
        TFNode.release_port(self)


def __getattr__(name: str) -> NoReturn:
    if name in _INTERNALS:
        raise AttributeError(
            f"TFSparkNode.{name} was TensorFlowOnSpark's way to run inside Spark's tasks, which this engine has no use "
            "for: start clusters with TFCluster.run, and feed them with its train and inference"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
