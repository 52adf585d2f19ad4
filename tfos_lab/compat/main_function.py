"""What runs on a node of a compat cluster: makes the context that the program expects, and calls its function."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfos_lab.compat.missing import add_advice
from tfos_lab.compat.node_manager import NodeManager
from tfos_lab.compat.TFSparkNode import TFNodeContext
from tfos_lab.core.roles import Role, tf_cluster_spec

if TYPE_CHECKING:
    from tfos_lab.node.context.context import NodeContext


@dataclass(frozen=True)
class NodeSettings:
    """What `TFCluster.run` was asked for, as far as nodes have to know it."""

    default_fs: str
    working_dir: str
    queues: tuple[str, ...]
    release_port: bool


def run_main(map_fun: Callable[[Any, Any], object], settings: NodeSettings, args: Any, native: NodeContext) -> None:
    """Call ``map_fun(args, ctx)`` on a node. What it returns is dropped: it need not be sendable."""
    port = native._take_port()  # noqa: SLF001 - nothing but TFoS's context has a use for it
    if port is not None and settings.release_port:
        port.close()
        port = None
    manager = NodeManager(native, settings.queues)
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
