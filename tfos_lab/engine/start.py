"""`tfos_lab.run`: checks everything that the user asks for, then makes a cluster and launches it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.roles import assign_roles
from tfos_lab.data.frames import default_fs
from tfos_lab.data.spark_python import use_right_python
from tfos_lab.engine import registry
from tfos_lab.engine.cluster import Cluster, runtime_of
from tfos_lab.engine.generation_maker import GenerationMaker
from tfos_lab.engine.launchers.capacity import require_room
from tfos_lab.engine.run_dir import RunDir
from tfos_lab.engine.runtime import ClusterRuntime
from tfos_lab.engine.spark import session as spark_session
from tfos_lab.errors import NoSession
from tfos_lab.payload.packing import pack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(
    map_fun: Callable[..., Any],
    args: Any = None,
    *,
    spark: SparkSession | None = None,
    cluster_size: int = 1,
    num_ps: int = 0,
    master_node: str | None = "chief",
    eval_node: bool = False,
    tensorboard: bool = False,
    log_dir: str | None = None,
    name: str | None = None,
    local: str = "auto",
    restarts: int = 0,
    gpus: int | None = None,
    env: Mapping[str, str] | None = None,
    output: str = "chief",
    output_limit_bytes: int = 8 << 30,
    reservation_timeout_s: float = 600.0,
    grace_s: float = 10.0,
) -> Cluster:
    """Start ``map_fun(args, ctx)`` on a cluster of nodes; returns when all of them run.

    Parameters
    ----------
    map_fun : callable
        Runs on every node, in a process of its own; takes ``(args, ctx)``, ``(args)`` or nothing.
    args : object
        What the function gets as ``args`` (pickled with cloudpickle).
    spark : SparkSession, optional
        Whose executors to use; the active session by default.
    cluster_size, num_ps, master_node, eval_node, tensorboard, log_dir, name, local, restarts, gpus, env, \
output, output_limit_bytes, reservation_timeout_s, grace_s
        See `tfos_lab.core.config.ClusterConfig`.

    Returns
    -------
    Cluster
        Also a context manager, which stops it at the end.

    Raises
    ------
    ConfigError, NoSession, NotEnoughSlots, NotEnoughRoom, ExecutorMismatch, PayloadError
        Before anything is started.
    ReservationTimeout, NodeFailed
        If the nodes do not come up; nothing is left running.

    Examples
    --------
    >>> import tfos_lab
    >>> with tfos_lab.run(lambda args, ctx: args * ctx.num_workers, 21, cluster_size=2) as cluster:
    ...     dict(cluster.wait())
    {'chief:0': 42, 'worker:0': 42}
    """
    config = ClusterConfig(
        cluster_size=cluster_size,
        num_ps=num_ps,
        master_node=master_node,
        eval_node=eval_node,
        tensorboard=tensorboard,
        log_dir=log_dir,
        name="cluster" if name is None else name,
        local=local,
        restarts=restarts,
        gpus=gpus,
        env=dict(env or {}),
        output=output,
        output_limit_bytes=output_limit_bytes,
        reservation_timeout_s=reservation_timeout_s,
        grace_s=grace_s,
    )
    cluster = make_cluster(map_fun, args, spark=spark, config=config)
    try:
        runtime_of(cluster).launch()
        cluster.wait_until_running()
    except BaseException:
        cluster.stop(grace_s=0.0)
        raise
    return cluster


def make_cluster(
    map_fun: Callable[..., Any], args: Any = None, *, spark: SparkSession | None = None, config: ClusterConfig
) -> Cluster:
    """Check what is asked for, and return a cluster that is not launched yet; `run` does both and waits."""
    called_s = time.time()
    session, launcher = choose_launcher(config, spark)
    if session is not None:
        use_right_python(session)
    inline = launcher == "inline"
    node_specs = assign_roles(ClusterConfig(name=config.name) if inline else config)
    if launcher == "local":
        require_room(len(node_specs))
    payload = b"" if inline else pack(map_fun, args)
    hosts = spark_session.driver_hosts(session) if launcher == "spark" and session else ("127.0.0.1", "127.0.0.1")

    maker = GenerationMaker(
        config=config,
        node_specs=node_specs,
        launcher=launcher,
        spark=session,
        call=(map_fun, args),
        payload=payload,
        called_s=called_s,
        hosts=hosts,
        default_fs=default_fs(session) if session is not None else "",
    )
    runtime = ClusterRuntime(maker, RunDir.make(config.name, config.log_dir))
    if inline and config.cluster_size > 1:
        runtime.note(f"inline runs one node instead of {config.cluster_size}")
    cluster = Cluster(runtime)
    registry.register(cluster)
    return cluster


def choose_launcher(config: ClusterConfig, spark: SparkSession | None) -> tuple[SparkSession | None, str]:
    """Return the session to use, if any, and the launcher's name.

    Raises
    ------
    NoSession
        If Spark is insisted on and there is no session, or the one that was given is dead.
    """
    if spark is not None:
        spark_session.require_alive(spark)
    session = spark if spark is not None else spark_session.active_session()
    if config.local == "inline":
        return session, "inline"
    if config.local == "processes":
        return session, "local"
    if config.local == "false":
        if session is None:
            raise NoSession(reason="local=false insists on Spark, but there is no SparkSession")
        return session, "spark"
    return session, "local" if session is None or spark_session.is_local(session) else "spark"
