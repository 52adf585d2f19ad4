"""`TFNodeContext`: the second argument of ``map_fun(args, ctx)``, and what makes it on a node and calls the function.

What else TFoS had here is the agents' business.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from tfos_lab.compat import TFNode, util
from tfos_lab.compat.missing import add_advice
from tfos_lab.core.roles import Role, rank_in_training, tf_cluster_spec
from tfos_lab.node.context.shares import ShareMethods

if TYPE_CHECKING:
    from tfos_lab.node.context.context import NodeContext
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


# ---- on the nodes ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeSettings:
    """What `TFCluster.run` was asked for, as far as nodes have to know it."""

    default_fs: str
    working_dir: str
    queues: tuple[str, ...] = ()
    release_port: bool = True


def run_main(map_fun: Callable[[Any, Any], object], settings: NodeSettings, args: Any, native: NodeContext) -> None:
    """Call ``map_fun(args, ctx)`` on a node. What it returns is dropped: it need not be sendable."""
    port = native._take_port()  # noqa: SLF001 - nothing but TFoS's context has a use for it
    if port is not None and settings.release_port:
        port.close()
        port = None
    manager = TFNode.NodeManager(native, settings.queues)
    ctx = TFNodeContext(
        native.worker_num,
        native.job_name,
        native.task_index,
        native.cluster_spec,
        settings.default_fs,
        settings.working_dir,
        manager,
        port,
    )
    ctx._native = native  # noqa: SLF001 - the constructor's parameters are TFoS's
    _set_tf_config(ctx)
    if isinstance(args, list):
        sys.argv = args
    try:
        map_fun(args, ctx)
    except Exception as error:
        add_advice(error)
        raise
    manager.raise_error()


def _set_tf_config(ctx: TFNodeContext) -> None:
    """Set TF_CONFIG where a node leads by its job name, and nowhere else: a MirroredStrategy of one node reads it too.

    With parameter servers, the evaluator is left out: the chief would wait for its server, and it has none.
    """
    spec = ctx.cluster_spec
    if not any(Role(job).leads for job in spec):
        os.environ.pop("TF_CONFIG", None)
        return
    cluster = tf_cluster_spec(spec) if Role.PS in spec else spec
    task = {"type": ctx.job_name, "index": ctx.task_index}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})


def run_instance(
    map_fn: Callable[[Any, Any], object],
    args: Any,
    settings: NodeSettings,
    num_workers: int,
    num_gpus: int,
    worker_num: int,
    native: NodeContext,
) -> None:
    """Call ``map_fn(args, ctx)`` in one instance of `TFParallel.run`. What it returns is dropped."""
    if not native.gpus:  # else Spark has assigned them
        util.single_node_env(num_gpus, worker_num, [])
    ctx = TFNodeContext(worker_num, defaultFS=settings.default_fs, working_dir=settings.working_dir)
    ctx.num_workers = num_workers
    ctx._native = native  # noqa: SLF001 - the constructor's parameters are TFoS's
    if isinstance(args, list):
        sys.argv = args
    map_fn(args, ctx)


def __getattr__(name: str) -> NoReturn:
    if name in _INTERNALS:
        raise AttributeError(
            f"TFSparkNode.{name} was TensorFlowOnSpark's way to run inside Spark's tasks, which this engine has no use "
            "for: start clusters with TFCluster.run, and feed them with its train and inference"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
