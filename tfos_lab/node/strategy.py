"""Chooses the ``tf.distribute`` strategy that fits the shape of the cluster; see `NodeContext.strategy`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tfos_lab.core.roles import Role, count_training, tf_cluster_spec
from tfos_lab.errors import ConfigError
from tfos_lab.node.keras.versions import warn_of_misfit
from tfos_lab.node.peers import require_peers
from tfos_lab.node.server import start_server

if TYPE_CHECKING:
    import tensorflow as tf

ClusterSpec = Mapping[str, list[str]]


def strategy_for(
    cluster_spec: ClusterSpec, job_name: str, task_index: int, serve: Callable[[], None]
) -> tf.distribute.Strategy:
    """Return the strategy for a node, or raise `NodeServed` on a node that only serves a ``ParameterServerStrategy``.

    ``serve()`` reports that the node serves, and waits until training has ended.
    """
    import tensorflow as tf

    if Role.PS in cluster_spec:
        return _parameter_server(cluster_spec, job_name, task_index, serve)
    if not Role(job_name).in_tf_cluster or count_training(cluster_spec) == 1:
        several = len(tf.config.list_physical_devices("GPU")) > 1
        return tf.distribute.MirroredStrategy() if several else tf.distribute.get_strategy()
    warn_of_misfit()
    require_peers(cluster_spec, job_name, task_index)
    return _multi_worker()


def _multi_worker() -> tf.distribute.Strategy:
    import tensorflow as tf

    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        if "at program startup" not in str(error):
            raise
        raise ConfigError(
            [
                (
                    "ctx.strategy() comes too late: TensorFlow connects the nodes before its first operation, and this "
                    "node has run some already. Call it first, before ctx.dataset() and all else that makes tensors"
                )
            ]
        ) from None


def _parameter_server(
    cluster_spec: ClusterSpec, job_name: str, task_index: int, serve: Callable[[], None]
) -> tf.distribute.Strategy:
    import tensorflow as tf

    if Role.CHIEF not in cluster_spec or Role.WORKER not in cluster_spec:
        has = ", ".join(f"{len(tasks)} {job}" for job, tasks in cluster_spec.items())
        raise ConfigError(
            [
                (
                    "ParameterServerStrategy needs a chief that coordinates and at least one worker beside it; "
                    f"this cluster has {has}. Ask for master_node='chief' and a larger cluster_size"
                )
            ]
        )
    if not Role(job_name).in_tf_cluster:
        return tf.distribute.get_strategy()
    spec = tf.train.ClusterSpec(tf_cluster_spec(cluster_spec))
    if job_name != Role.CHIEF:
        os.environ["GRPC_FAIL_FAST"] = "use_caller"
        server = start_server(cluster_spec, job_name, task_index, serve)
        server.join()
    require_peers(cluster_spec, job_name, task_index)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec, task_type=Role.CHIEF.value, task_id=0, rpc_layer="grpc"
    )
    return tf.distribute.ParameterServerStrategy(resolver)
