"""Dynamic allocation: Spark takes back executors on which no task runs, and nodes run no task once rows come."""

from __future__ import annotations

import threading
import time

import psutil
import pytest

from tests.misfortune.conftest import PATIENCE_S, failure_of
from tests.support.clusters import running_clusters, runtime_of
from tests.support.quick import QUICK_ENV
from tfos_lab.core.processes import command_line
from tfos_lab.errors import NodeFailed

pytestmark = pytest.mark.leaves_nothing

IDLE_S = 2
CACHED = "spark.dynamicAllocation.cachedExecutorIdleTimeout"
CONF = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.executorIdleTimeout": f"{IDLE_S}s",
    "spark.dynamicAllocation.initialExecutors": "3",
    "spark.dynamicAllocation.maxExecutors": "3",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
}


def work(done, ctx):
    """Work until there is a file ``done``; rows are none of its business."""
    import time
    from pathlib import Path

    while not Path(done).exists():
        time.sleep(0.1)
    ctx.stop_feed()


@pytest.fixture
def run_on(tmp_path):
    """A function that fills a session's three slots with nodes and feeds them."""
    with running_clusters({"local": "false", "cluster_size": 3, "env": QUICK_ENV, "grace_s": 1.0}) as start:

        def run(session):
            cluster = start(work, str(tmp_path / "done"), spark=session)
            cluster.train(session.range(1000))
            return cluster

        yield run


def executors():
    """Return what executors this process's Spark has, behind Spark Connect or not."""
    from pyspark import SparkContext

    scala = SparkContext._jvm.org.apache.spark.SparkContext.getOrCreate()
    names = scala.taskScheduler().runningTasksByExecutors().keySet().iterator()
    known = set()
    while names.hasNext():
        known.add(names.next())
    return known


def wait_until(predicate):
    deadline = time.monotonic() + PATIENCE_S
    while not predicate() and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    return predicate()


def lives_on(cluster):
    """Whether all nodes are there when executors that look idle are not."""
    return (
        not runtime_of(cluster).generation.server.over.wait(3.0 * IDLE_S)
        and [node.state for node in cluster.nodes] == ["running"] * 3
        and {node.executor for node in cluster.nodes} <= executors()
    )


def test_nodes_live_as_long_as_their_cluster_and_their_executors_no_longer(new_spark, standalone, run_on, tmp_path):
    cluster = run_on(new_spark(standalone, conf=CONF))
    assert lives_on(cluster)
    (tmp_path / "done").touch()
    cluster.wait(timeout_s=60)
    # They are idle now, to all who look.
    assert wait_until(lambda: not executors())


def test_they_do_so_behind_spark_connect_where_nobody_tells_why_one_is_lost(new_spark, run_on):
    from pyspark import SparkContext

    cluster = run_on(new_spark("local-cluster[3,1,1024]", connect=True, conf=CONF))
    assert lives_on(cluster)
    processes = psutil.Process(SparkContext._gateway.proc.pid).children(recursive=True)
    victim = next(each for each in processes if "CoarseGrainedExecutorBackend" in " ".join(command_line(each.pid)))
    victim.kill()
    error = failure_of(cluster)
    assert error.kind == "Lost"
    assert "is gone: its executor has ended. Whether it failed, or Spark took it back, Spark Connect does not" in str(
        error
    )
    assert wait_until(lambda: not executors())


def test_a_node_whose_executor_spark_takes_all_the_same_says_so_and_why(new_spark, standalone, run_on):
    with pytest.raises(NodeFailed) as failed:  # the feed is told, where its rows have taken as long
        run_on(new_spark(standalone, conf={**CONF, CACHED: f"{IDLE_S}s"})).wait(timeout_s=120)
    error = failed.value
    assert error.kind == "Lost"
    assert "is gone: Spark took its executor back (Executor killed by driver), which it does after" in error.message
    assert f"{CACHED}={IDLE_S}s" in error.message
