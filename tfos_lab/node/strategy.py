"""The ``tf.distribute`` strategy that fits the shape of the cluster, and a node's ``tf.distribute.Server``.

Before TensorFlow waits for peers in silence, nodes are asked whether they can be reached: firewalls, networks apart.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfos_lab.core.node_addresses import NODE_NETWORK_VARIABLE, NODE_PORTS_VARIABLE
from tfos_lab.core.roles import Role, count_training, tf_cluster_spec, tf_config
from tfos_lab.errors import ConfigError
from tfos_lab.node.invoke import NodeServed
from tfos_lab.node.keras.versions import warn_of_misfit
from tfos_lab.node.spark_task import task_resources

if TYPE_CHECKING:
    import tensorflow as tf

    from tfos_lab.node.context.context import NodeContext


ClusterSpec = Mapping[str, list[str]]


# Longer than a link may be down, and longer than a lost peer goes untold.
_PATIENCE_S = 20.0
_AGAIN_S = 0.5
# In a large cluster a node asks those that follow it; all of them together ask everybody.
_MAX_ASKED = 16
_THIS_HOST = ("127.0.0.1", "localhost", "[::1]")


def strategy_for(cluster_spec: ClusterSpec, job_name: str, task_index: int) -> tf.distribute.Strategy:
    """Return the strategy for a node, or raise `NodeServed` on one that only serves a ``ParameterServerStrategy``."""
    import tensorflow as tf

    if Role.PS in cluster_spec:
        return _parameter_server(cluster_spec, job_name, task_index)
    if not Role(job_name).in_tf_cluster or count_training(cluster_spec) == 1:
        several = len(tf.config.list_physical_devices("GPU")) > 1
        return tf.distribute.MirroredStrategy() if several else tf.distribute.get_strategy()
    from tfos_lab.node.keras.workers import patch_keras

    patch_keras()  # the function may have imported Keras itself
    warn_of_misfit()
    require_peers(cluster_spec, job_name, task_index)
    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        if "at program startup" not in str(error):
            raise
        problem = (
            "ctx.strategy() comes too late: TensorFlow connects the nodes before its first operation, and this node "
            "has run some already. Call it first, before ctx.dataset() and all else that makes tensors"
        )
        raise ConfigError([problem]) from None


def _parameter_server(cluster_spec: ClusterSpec, job_name: str, task_index: int) -> tf.distribute.Strategy:
    import tensorflow as tf

    if Role.CHIEF not in cluster_spec or Role.WORKER not in cluster_spec:
        has = ", ".join(f"{len(tasks)} {job}" for job, tasks in cluster_spec.items())
        problem = (
            "ParameterServerStrategy needs a chief that coordinates and at least one worker beside it; this cluster "
            f"has {has}. Ask for master_node='chief' and a larger cluster_size"
        )
        raise ConfigError([problem])
    if not Role(job_name).in_tf_cluster:
        return tf.distribute.get_strategy()
    spec = tf.train.ClusterSpec(tf_cluster_spec(cluster_spec))
    if job_name != Role.CHIEF:
        os.environ["GRPC_FAIL_FAST"] = "use_caller"
        server = start_server(cluster_spec, job_name, task_index)
        server.join()  # raises at the end of training
    require_peers(cluster_spec, job_name, task_index)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec, task_type=Role.CHIEF.value, task_id=0, rpc_layer="grpc"
    )
    return tf.distribute.ParameterServerStrategy(resolver)


def start_server(
    cluster_spec: Mapping[str, list[str]],
    job_name: str,
    task_index: int,
    *,
    protocol: str = "grpc",
    config: Any = None,
) -> tf.distribute.Server:
    """Return the node's server, which runs."""
    import tensorflow as tf

    node = f"{job_name}:{task_index}"
    if not Role(job_name).in_tf_cluster:
        advice = "it works beside the cluster that trains: read checkpoints or saved models there"
        raise ConfigError([f"ctx.start_server() on {node}: TensorFlow's cluster has no such node; {advice}"])
    require_peers(cluster_spec, job_name, task_index)
    spec = tf.train.ClusterSpec(tf_cluster_spec(cluster_spec))
    try:
        return tf.distribute.Server(spec, job_name=job_name, task_index=task_index, protocol=protocol, config=config)
    except tf.errors.OpError as error:
        problem = (
            f"ctx.start_server() on {node}: TensorFlow could not serve at {cluster_spec[job_name][task_index]} "
            f"({error.message}); a node has one server only: ctx.strategy() and MultiWorkerMirroredStrategy start "
            "their own, and keep what an earlier ctx.start_server() has returned"
        )
        raise ConfigError([problem]) from error


def end_servers_with_training(serve: Callable[[], None]) -> None:
    """Have ``join()`` of a server that this node's function calls itself call ``serve()``, and then end the function.

    ``serve()`` reports that the node serves, and waits until training has ended. TensorFlow's own ``join`` never
    returns, and programs rely on that.
    """
    import tensorflow as tf

    process, join_for_ever = os.getpid(), tf.distribute.Server.join

    def join(server: tf.distribute.Server) -> None:
        if os.getpid() != process or threading.current_thread() is not threading.main_thread():
            join_for_ever(server)  # the function goes on beside it
        serve()
        raise NodeServed

    tf.distribute.Server.join = join


def require_peers(cluster_spec: Mapping[str, list[str]], job_name: str, task_index: int) -> None:
    """Raise `ConfigError` if a node of TensorFlow's cluster cannot be reached from here.

    Whoever refuses a connection is reached: its TensorFlow has not begun to listen.
    """
    at = {
        f"{job}:{index}": address
        for job, addresses in tf_cluster_spec(cluster_spec).items()
        for index, address in enumerate(addresses)
    }
    node, names = f"{job_name}:{task_index}", list(at)
    own = names.index(node) if node in at else 0
    others = [name for name in (*names[own + 1 :], *names[:own]) if name != node][:_MAX_ASKED]
    asked = [name for name in others if at[name].rpartition(":")[0] not in _THIS_HOST]
    if not asked:
        return
    deadline = time.monotonic() + _PATIENCE_S
    with ThreadPoolExecutor(len(asked), thread_name_prefix="tfos-peers") as pool:
        reasons = dict(zip(asked, pool.map(lambda name: _why_not(at[name], deadline), asked), strict=True))
    missed = [f"{name} at {at[name]} ({reason})" for name, reason in reasons.items() if reason]
    if missed:
        problem = (
            f"{node} on {socket.gethostname()} cannot connect to {', '.join(missed)}. Open the nodes' ports between "
            f"all hosts of the cluster ({NODE_PORTS_VARIABLE}=20000-20099 fixes a range), or name the network on which "
            f"they reach one another ({NODE_NETWORK_VARIABLE}=10.2.0.0/16)"
        )
        raise ConfigError([problem])


def _why_not(address: str, deadline: float) -> str:
    """Return why an address cannot be reached until the deadline; "" if it can."""
    host, _, port = address.rpartition(":")
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), max(0.1, deadline - time.monotonic())).close()
        except ConnectionRefusedError:
            return ""
        except OSError as error:
            if time.monotonic() + _AGAIN_S > deadline:
                return error.strerror or str(error)
            time.sleep(_AGAIN_S)
        else:
            return ""


# ---- on the nodes of `tfos_lab.compat.MirroredStrategyRunner` -------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TrainFnSettings:
    """How a node runs the function."""

    # How many GPUs, or workers without any, train; and how many nodes there are for them.
    num_slots: int
    num_tasks: int
    # Spark's name of the GPUs that each task has got; "" to leave CUDA_VISIBLE_DEVICES as it is.
    gpu_resource: str = ""
    # Whether the function runs in the scope of a strategy that is made for it.
    makes_strategy: bool = True
    # Whether the node is a worker of a cluster, also of one worker.
    sets_tf_config: bool = True


def run_train_fn(
    train_fn: Callable[..., Any], settings: TrainFnSettings, kwargs: Mapping[str, Any], ctx: NodeContext
) -> Any:
    """Call the function on a node; returns what it returns on the first one, and None elsewhere."""
    if name := settings.gpu_resource:
        # Of the GPUs that Spark gave to this task, as many as fall to it of all.
        wanted = settings.num_slots // settings.num_tasks + (ctx.task_index < settings.num_slots % settings.num_tasks)
        found = task_resources().get(name, [])
        if len(found) < wanted:
            raise ConfigError([f"Spark gave {len(found)} of the resource '{name}' to this task, which needs {wanted}"])
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(checked_gpus(name, found)[:wanted])
    if settings.sets_tf_config:
        os.environ["TF_CONFIG"] = tf_config(ctx.cluster_spec, ctx.job_name, ctx.task_index)
    if settings.makes_strategy:
        import tensorflow as tf

        with tf.distribute.MultiWorkerMirroredStrategy().scope():
            value = train_fn(**kwargs)
    else:
        value = train_fn(**kwargs)
    return value if ctx.task_index == 0 else None


def checked_gpus(name: str, addresses: list[str]) -> list[str]:
    """Return a resource's addresses if they can stand in CUDA_VISIBLE_DEVICES.

    Raises ConfigError if they are not numbers, as a discovery script reports them.
    """
    if all(address.isdecimal() and str(int(address)) == address for address in addresses):
        return addresses
    raise ConfigError(
        [
            (
                f"the GPU addresses {addresses} of the resource '{name}' are not all in the format that "
                "CUDA_VISIBLE_DEVICES takes: the discovery script has to report indices without padding, such as "
                f'{{"name": "{name}", "addresses": ["0", "1"]}}'
            )
        ]
    )
