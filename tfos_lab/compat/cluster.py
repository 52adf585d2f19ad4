"""What `TFCluster` and `TFParallel` do on the driver: start nodes, feed them, wait for them. Nodes do without it."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfos_lab.compat.TFSparkNode import NodeSettings, run_instance, run_main
from tfos_lab.core.config import ClusterConfig, ClusterOptions
from tfos_lab.core.options import is_int
from tfos_lab.core.roles import Role
from tfos_lab.core.states import NodeState, RunState
from tfos_lab.data.frames import default_fs
from tfos_lab.driver.start import make_cluster
from tfos_lab.driver.state.instructions import Failure
from tfos_lab.errors import (
    ClusterEnded,
    ConfigError,
    FeedTimeout,
    NodeFailed,
    NoSession,
    ShutdownTimeout,
    TfosError,
)
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.notebook.parallel import run_all
from tfos_lab.notebook.start import bring_up

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from tfos_lab.driver.cluster import Cluster
    from tfos_lab.driver.head import Head

logger = logging.getLogger(__name__)

_STEP_S = 0.05
_STREAM_STEP_S = 0.5
# A node that is stopped gets this long before it is killed.
_GRACE_S = 5.0


# ---- what a program gives --------------------------------------------------------------------------------------------


def session_of(sc: SparkContext) -> SparkSession:
    """Return a session of a SparkContext; a session is accepted as well."""
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


def node_settings(session: SparkSession, queues: Sequence[str] = (), *, release_port: bool = True) -> NodeSettings:
    """Return what nodes have to know, with Spark's default file system as TFoS writes it: ``file://``, ``hdfs://nn``."""
    found = default_fs(session)
    root = found[:-1] if found.startswith("file:///") and found.endswith("/") else found
    return NodeSettings(root, os.getcwd(), tuple(queues), release_port)  # noqa: PTH109 - a string


def gpus_wanted(tf_args: Any) -> int | None:
    """Return how many GPUs a node is to have, by the program's ``args.num_gpus``; None without it."""
    values = tf_args if isinstance(tf_args, Mapping) else getattr(tf_args, "__dict__", {})
    wanted = values.get("num_gpus")
    return None if wanted is None else int(wanted)


# ---- independent instances -------------------------------------------------------------------------------------------


def run_instances(
    sc: SparkContext, map_fn: Callable[[Any, Any], object], tf_args: Any, num_executors: int, *, use_barrier: bool
) -> None:
    """Run the instances to their ends; see `TFParallel.run`."""
    if not is_int(num_executors) or num_executors < 1:
        raise ConfigError([f"num_executors={num_executors!r}: a whole number of instances, 1 or more, is needed"])
    session, gpus = session_of(sc), gpus_wanted(tf_args)
    settings = node_settings(session)
    instance = functools.partial(run_instance, map_fn, tf_args, settings, num_executors, 1 if gpus is None else gpus)
    run_all(instance, range(num_executors), at_once=bool(use_barrier), spark=session, name="TFParallel")


# ---- a cluster's start -----------------------------------------------------------------------------------------------


def start_cluster(
    sc: SparkContext,
    map_fun: Callable[[Any, Any], object],
    tf_args: Any,
    *,
    queues: Sequence[str],
    release_port: bool,
    frees_slots: bool,
    options: ClusterOptions,
) -> tuple[Cluster, NodeSettings]:
    """Start the nodes, shown in a notebook, wait until all of them run, and return them, and what they know.

    A function that fails at once has run, too: its error is raised by `TFCluster.train` and `TFCluster.shutdown`. With
    ``frees_slots``, the nodes give Spark its task slots back, so that programs may compute their rows beside them.
    """
    session = session_of(sc)
    settings = node_settings(session, queues, release_port=release_port)
    main = functools.partial(run_main, map_fun, settings)
    options["gpus"] = gpus_wanted(tf_args)
    cluster = make_cluster(main, tf_args, spark=session, config=ClusterConfig(**options))
    try:
        with contextlib.suppress(NodeFailed):
            bring_up(cluster, folds_error=True)
        if not all(node.address for node in cluster.nodes):
            cluster.wait()  # raises why a node has failed before it could run
        if frees_slots:
            cluster.head.launcher.free_slots()
    except BaseException:
        cluster.stop(grace=0.0)
        raise
    return cluster, settings


# ---- its rows --------------------------------------------------------------------------------------------------------


def feed(cluster: Cluster, data: Any, epochs: int, *, feed_timeout: float, queue: str) -> None:
    """Feed rows to the nodes, as Python objects; return when they have taken all, or want no more.

    The rows of a stream are fed as they come: this returns at once. If no node takes a row for too long, all are
    stopped.
    """
    is_stream = hasattr(type(data), "foreachRDD")
    if not is_stream:
        with cluster.head.lock:
            cluster.head.feed_state.caller_waits = True
    try:
        cluster.train(data, 1 if is_stream else epochs, objects=True, queue=queue, timeout=feed_timeout)
    except ClusterEnded:
        if cluster.head.feed_state.stopped_by is None:
            raise
        logger.info("terminate() was called, and the nodes have finished: no rows are fed")
        return
    if not is_stream:
        _wait_until_taken(cluster, feed_timeout)


def _wait_until_taken(cluster: Cluster, timeout_s: float) -> None:
    def wait(head: Head) -> None:
        feeds = head.feed_state
        cluster.feeding.catch_up(head)
        feeds.caller_waits = True  # of nodes that were started again, too
        if not head.await_rows(lambda: not feeds.with_rows, timeout_s, moving=True):
            error = FeedTimeout(
                reason=f"{', '.join(feeds.with_rows)} took no row for {timeout_s:g} s, and there are more: see whether "
                "the function goes on calling next_batch, have it call terminate() where it wants no more, or raise "
                "feed_timeout"
            )
            head.fail(Failure("feed", type(error).__name__, error.reason))
            raise error

    with contextlib.suppress(ClusterEnded):
        cluster.feeding.with_head(wait)


# ---- its end ---------------------------------------------------------------------------------------------------------


def end_cluster(cluster: Cluster, ssc: Any, *, is_asked: Callable[[], bool], grace_s: float, timeout_s: float) -> None:
    """Wait until all nodes that train have returned, then end the others; the cluster is stopped in any case.

    Streams are ended first, once they are not wanted any more: ``is_asked`` returns whether their end was asked for. An
    evaluator, which may loop forever, gets ``grace_s`` after the last node that trains. Raises what went wrong,
    whenever it did; and `ShutdownTimeout` if nodes still run after ``timeout_s``, where 0 and less mean no limit.
    """
    deadline_s = time.monotonic() + timeout_s if timeout_s > 0 else float("inf")
    head = cluster.head
    try:
        if grace_s > cluster.config.grace:
            with contextlib.suppress(OSError):  # it has ended
                head.request(lambda now_s: head.state.let_evaluator_go_on(now_s, grace_s))
        if ssc is not None:
            _end_streams(cluster, ssc, is_asked, deadline_s)
        _end_training(cluster, deadline_s, timeout_s)
        if _await_end(cluster, time.monotonic() + grace_s, trains=False):
            cluster.stop(grace=_GRACE_S)
        cluster.wait()
    except TfosError:
        raise
    except Exception as error:  # a stream's, whose rows a node's failure has kept from being fed
        if cluster.state is RunState.FAILED:
            raise cluster.failure() from error
        raise
    finally:
        cluster.stop()


def _end_training(cluster: Cluster, deadline_s: float, timeout_s: float) -> None:
    cluster.feeding.end()
    if running := _await_end(cluster, deadline_s, trains=True):
        cluster.stop(grace=_GRACE_S)
        raise ShutdownTimeout(waited_s=timeout_s, still_running=running)


def _await_end(cluster: Cluster, deadline_s: float, *, trains: bool) -> list[str]:
    """Wait for the nodes that train, or for the evaluator; return those that still run at the deadline."""
    while True:
        head = cluster.head
        with head.lock:
            state, views = head.state.state, head.state.views
        going = [view for view in views if not view.state.ended and view.state is not NodeState.SERVING]
        roles = {view.name: Role(view.job_name) for view in going}
        # Others serve until they are stopped.
        running = [node for node, role in roles.items() if role.trains is trains and not role.serves]
        if state.ended or not running:
            return []
        if time.monotonic() >= deadline_s:
            return running
        time.sleep(_STEP_S)


def _end_streams(cluster: Cluster, ssc: Any, is_asked: Callable[[], bool], deadline_s: float) -> None:
    """Wait until streams have ended; end them, but not Spark, once no more rows are wanted."""
    while not ssc.awaitTerminationOrTimeout(_STREAM_STEP_S):
        is_late = time.monotonic() > deadline_s
        if is_asked() or cluster.head.feed_state.stopped_by is not None or cluster.ended or is_late:
            logger.info("no more rows are wanted: stopping the StreamingContext")
            ssc.stop(stopSparkContext=False, stopGraceFully=not is_late)
            return
