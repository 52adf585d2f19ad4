"""Starts this node's ``tf.distribute.Server``; see `NodeContext.start_server`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tfos_lab.core.roles import Role, tf_cluster_spec
from tfos_lab.errors import ConfigError
from tfos_lab.node.invoke import NodeServed
from tfos_lab.node.peers import require_peers

if TYPE_CHECKING:
    import tensorflow as tf


def start_server(
    cluster_spec: Mapping[str, list[str]],
    job_name: str,
    task_index: int,
    serve: Callable[[], None],
    *,
    protocol: str = "grpc",
    config: Any = None,
) -> tf.distribute.Server:
    """Return the node's server, which runs; its ``join()`` calls ``serve()`` and then ends the node's function.

    ``serve()`` reports that the node serves, and waits until training has ended.
    """
    import tensorflow as tf

    node = f"{job_name}:{task_index}"
    if not Role(job_name).in_tf_cluster:
        advice = "it works beside the cluster that trains: read checkpoints or saved models there"
        raise ConfigError([f"ctx.start_server() on {node}: TensorFlow's cluster has no such node; {advice}"])
    require_peers(cluster_spec, job_name, task_index)
    spec = tf.train.ClusterSpec(tf_cluster_spec(cluster_spec))
    try:
        server = tf.distribute.Server(spec, job_name=job_name, task_index=task_index, protocol=protocol, config=config)
    except tf.errors.OpError as error:
        raise ConfigError([_refusal(node, cluster_spec[job_name][task_index], error)]) from error
    server.join = lambda: _join(serve)
    return server


def _refusal(node: str, address: str, error: tf.errors.OpError) -> str:
    advice = (
        "a node has one server only: ctx.strategy() and MultiWorkerMirroredStrategy start their own, and keep what an "
        "earlier ctx.start_server() has returned"
    )
    return f"ctx.start_server() on {node}: TensorFlow could not serve at {address} ({error.message}); {advice}"


def _join(serve: Callable[[], None]) -> None:
    """Serve until training has ended. TensorFlow's own ``join`` never returns, and programs rely on that."""
    serve()
    raise NodeServed
