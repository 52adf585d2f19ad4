"""Starts the cluster that `TFCluster.run` asks for."""

from __future__ import annotations

import contextlib
import functools
import os
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tfos_lab.compat import reservation
from tfos_lab.compat.main_function import NodeSettings, run_main
from tfos_lab.core.config import ClusterConfig, ClusterOptions
from tfos_lab.core.roles import Role
from tfos_lab.data.frames import default_fs
from tfos_lab.driver.start import make_cluster
from tfos_lab.errors import ConfigError, NodeFailed, NoSession
from tfos_lab.launchers.spark import session as spark_session

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from tfos_lab.driver.cluster import Cluster
    from tfos_lab.driver.state.events import NodeView


def session_of(sc: SparkContext) -> SparkSession:
    """Return a session of a SparkContext; a session is accepted as well.

    Raises
    ------
    ConfigError
        For anything else.
    NoSession
        If the context was stopped.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if isinstance(sc, SparkSession):
        session = sc
    elif not isinstance(sc, SparkContext):
        raise ConfigError([f"sc={type(sc).__name__}: a SparkContext is needed, such as spark.sparkContext"])
    elif sc._jsc is None:  # noqa: SLF001 - there is no public way to ask
        raise NoSession(reason="the SparkContext was stopped")
    else:
        session = SparkSession.builder.getOrCreate()
    spark_session.require_alive(session)
    return session


def default_fs_of(session: SparkSession) -> str:
    """Return Spark's default file system as TFoS writes it: ``file://`` and ``hdfs://namenode:8020``."""
    found = default_fs(session)
    return found[:-1] if found.startswith("file:///") and found.endswith("/") else found


def start_cluster(
    sc: SparkContext,
    map_fun: Callable[[Any, Any], object],
    tf_args: Any,
    *,
    queues: Sequence[str],
    release_port: bool,
    frees_slots: bool,
    options: ClusterOptions,
) -> dict[str, Any]:
    """Start the nodes, wait until all of them run, and return the attributes of a `TFCluster`.

    A function that fails at once has run, too: its error is raised by `TFCluster.train` and `TFCluster.shutdown`. With
    ``frees_slots``, the nodes give Spark its task slots back, so that programs may compute their rows beside them.
    """
    session = session_of(sc)
    settings = NodeSettings(default_fs_of(session), os.getcwd(), tuple(queues), release_port)  # noqa: PTH109 - a string
    main = functools.partial(run_main, map_fun, settings)
    if (gpus := gpus_wanted(tf_args)) is not None:
        options["gpus"] = gpus
    cluster = make_cluster(main, tf_args, spark=session, config=ClusterConfig(**options))
    try:
        cluster.launch()
        with contextlib.suppress(NodeFailed):
            cluster.wait_until_running()
        if not all(node.address for node in cluster.nodes):
            cluster.wait()  # raises why a node has failed before it could run
        if frees_slots:
            cluster.head.launcher.free_slots()
        return _attributes(session.sparkContext, cluster, settings)
    except BaseException:
        cluster.stop(grace=0.0)
        raise


def _attributes(context: SparkContext, cluster: Cluster, settings: NodeSettings) -> dict[str, Any]:
    url = cluster.tensorboard_url
    nodes = cluster_info(cluster, url)
    template = cluster_template(cluster)
    on_executors = [node for job, ranks in template.items() for node in ranks if not _is_on_driver(cluster, job)]
    server = reservation.Server(len(nodes))
    for node in nodes:
        server.reservations.add(node)
    meta = {
        "id": random.getrandbits(64),
        "cluster_template": template,
        "num_executors": len(nodes),
        "default_fs": settings.default_fs,
        "working_dir": settings.working_dir,
        "server_addr": server.start(),
        "release_port": settings.release_port,
    }
    return {
        "sc": context,
        "defaultFS": settings.default_fs,
        "working_dir": settings.working_dir,
        "num_executors": len(nodes),
        "nodeRDD": context.parallelize(on_executors, len(on_executors)),
        "cluster_id": meta["id"],
        "cluster_info": nodes,
        "cluster_meta": meta,
        "meta": meta,
        "server": server,
        "_cluster": cluster,
        "_tensorboard_url": url,
    }


def _is_on_driver(cluster: Cluster, job: str) -> bool:
    return job == Role.PS and cluster.config.driver_ps


def gpus_wanted(tf_args: Any) -> int | None:
    """Return how many GPUs a node is to have, where the program's arguments say so: ``args.num_gpus``."""
    values = tf_args if isinstance(tf_args, Mapping) else getattr(tf_args, "__dict__", {})
    wanted = values.get("num_gpus")
    return None if wanted is None else int(wanted)


def cluster_info(cluster: Cluster, tensorboard_url: str | None) -> list[dict[str, Any]]:
    """Return a dict for each node, in the order of ``executor_id``.

    The keys are TFoS's. ``tb_port`` is the port of ``tensorboard_url`` on the chief, and 0 elsewhere. There is no
    manager to connect to and no process to end by its pid, so ``addr``, ``authkey`` and ``tb_pid`` are empty.
    """
    tb_port = _port_of(tensorboard_url) if tensorboard_url else 0
    return [_node_info(rank, view, tb_port if view.is_chief else 0) for rank, view in enumerate(cluster.nodes)]


def _node_info(rank: int, view: NodeView, tb_port: int) -> dict[str, Any]:
    host, _, port = view.address.rpartition(":")
    return {
        "executor_id": rank,
        "host": host.strip("[]"),
        "job_name": view.job_name,
        "task_index": view.task_index,
        "port": int(port),
        "tb_pid": 0,
        "tb_port": tb_port,
        "addr": None,
        "authkey": b"",
    }


def _port_of(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def cluster_template(cluster: Cluster) -> dict[str, list[int]]:
    """Return the numbers of the nodes of each job."""
    template: dict[str, list[int]] = {}
    for rank, view in enumerate(cluster.nodes):
        template.setdefault(view.job_name, []).append(rank)
    return template
