"""Checks everything that the user asks for, then makes a cluster; and which clusters this process has."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.util
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfos_lab.core.config import ClusterConfig, assign_roles
from tfos_lab.core.launchers import LAUNCHERS, LauncherTraits, launcher_for
from tfos_lab.core.package_versions import require_fitting
from tfos_lab.core.paths import is_local
from tfos_lab.core.payload import pack
from tfos_lab.core.processes import allow_descriptors
from tfos_lab.core.roles import NodeSpec
from tfos_lab.data.frames import is_connect
from tfos_lab.data.session_stores import stores_of
from tfos_lab.data.spark_python import use_right_python
from tfos_lab.driver.cluster import Cluster
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.driver.run_store import with_store
from tfos_lab.errors import ConfigError, NoSession
from tfos_lab.launchers.capacity import require_room
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.texts import format_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOPBACK = ("127.0.0.1", "127.0.0.1")
# What a kernel opens itself, and what it holds open for a node: two connections and a log.
_OWN_DESCRIPTORS, _NODE_DESCRIPTORS = 512, 3
_lock = threading.Lock()
_clusters: list[Cluster] = []


def make_cluster(
    map_fun: Callable[..., Any],
    args: Any = None,
    *,
    spark: SparkSession | None = None,
    config: ClusterConfig,
    chief_stays_here: bool = True,
    kind: type[Cluster] = Cluster,
) -> Cluster:
    """Check what is asked for, and return a cluster that is not launched yet.

    With ``chief_stays_here=False``, a chief on this machine works in its own folder, as all other nodes do.
    ``kind`` is the class of the handle.
    """
    called_s = time.time()
    session, launcher = choose_launcher(config, spark)
    node_specs = node_specs_of(config, launcher)
    if not launcher.runs_inline:
        allow_descriptors(_OWN_DESCRIPTORS + _NODE_DESCRIPTORS * len(node_specs))
    if launcher.checks_capacity:
        require_room(len(node_specs))
    payload = b"" if launcher.runs_inline else pack(map_fun, args, with_modules=True)
    hosts, stores = driver_hosts(session, launcher), stores_of(session)
    config = with_store(config, session)
    # Nodes would find out one by one. A client of Spark Connect may not reach a store that its executors reach.
    is_far = launcher.spans_hosts and session is not None and is_connect(session)
    if config.log_dir and not is_local(config.log_dir) and not is_far:
        from tfos_lab.data.file_systems import require_folder

        require_folder(config.log_dir)

    cluster = kind(
        config,
        (map_fun, args),
        launcher=launcher,
        node_specs=node_specs,
        files=RunDir.make(config.name, config.log_dir),
        payload=payload,
        spark=session,
        hosts=hosts,
        stores=stores,
        called_s=called_s,
        chief_stays_here=chief_stays_here,
    )
    if len(node_specs) < config.cluster_size:
        too_few = f"{format_count(len(node_specs), 'node')} instead of {config.cluster_size}"
        cluster.history.add_note(f"{launcher.name} runs {too_few}")
    with _lock:
        if not _clusters:
            atexit.register(stop_all)
        _clusters.append(cluster)
    return cluster


def node_specs_of(config: ClusterConfig, launcher: LauncherTraits) -> list[NodeSpec]:
    """Return the nodes that the launcher takes of those that were asked for; inline, that is a chief."""
    return assign_roles(ClusterConfig(name=config.name) if launcher.runs_inline else config)


def driver_hosts(session: SparkSession | None, launcher: LauncherTraits) -> tuple[str, str]:
    """Return the address that this process listens on for its nodes, and the one that they connect to."""
    return spark_session.driver_hosts(session) if launcher.spans_hosts and session else _LOOPBACK


def choose_launcher(config: ClusterConfig, spark: SparkSession | None) -> tuple[SparkSession | None, LauncherTraits]:
    """Return the session to use, if any, and the launcher; Spark will run the session's tasks with the right Python.

    Raises ConfigError if versions of what is installed cannot work, or nodes cannot run on this machine; and NoSession
    if Spark is insisted on and there is no session, or the one that was given is dead.
    """
    require_fitting()
    session = spark if spark is not None else spark_session.active_session()
    # The active one is alive, but its Spark Connect server may be silent.
    if session is not None and (session is spark or is_connect(session)):
        spark_session.require_alive(session)
    lost = spark_session.lost_session() if session is None and launcher_for(config.local) is None else None
    if lost is not None:
        # Nodes that were a cluster's would take this machine's memory instead, and nobody would have asked for it.
        spark_session.require_alive(lost)
    on_cluster = session is not None and not spark_session.is_local(session)
    launcher = launcher_for(config.local) or LAUNCHERS["spark" if on_cluster else "local"]
    if launcher.needs_session and session is None:
        raise NoSession(reason=f"local={config.local} insists on Spark, but there is no SparkSession")
    if launcher.checks_capacity and sys.platform != "linux":
        raise ConfigError(["nodes as processes need Linux: use local=inline, or a session on a Spark cluster"])
    if launcher.checks_capacity and importlib.util.find_spec("tensorflow") is None:
        advice = "pip install 'tfos_lab[tensorflow]', or make a session of a cluster, whose executors have it"
        raise ConfigError([f"nodes of this machine need TensorFlow, which is not installed: {advice}"])
    if session is not None:
        use_right_python(session)
    return session, launcher


class Clusters(list[Cluster]):
    """Clusters as a list, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        # The driver draws nothing, and works without the notebook's part.
        commands = importlib.import_module("tfos_lab.notebook.commands")
        return str(commands.StatusTable(self).html)


def clusters() -> list[Cluster]:
    """Return all clusters of this process, oldest first, ended ones included."""
    with _lock:
        return Clusters(_clusters)


def stop_all() -> None:
    """Stop every cluster at once, and remove what other processes see of them; when Python exits."""
    for cluster in clusters():
        with contextlib.suppress(Exception):  # the next one must still be stopped
            cluster.close()
