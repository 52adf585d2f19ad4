"""Sessions, masters and executors that go, on Spark clusters of a test's own; and folders that are not shared."""

import socket
import time

import pytest

import tfos_lab
from tests.faults.conftest import failure_of
from tests.faults.scene import Family, executors, wait_forever
from tests.support.clusters import running_clusters
from tests.support.eventually import eventually
from tests.support.processes import gone
from tests.support.quick import QUICK_ENV
from tests.support.standalone import standalone_cluster as run_standalone_cluster
from tfos_lab.core.threads import on_a_thread
from tfos_lab.errors import ClusterEnded, NodeFailed, NoSession, NotEnoughSlots

pytestmark = pytest.mark.leaves_nothing

QUICK = {"env": QUICK_ENV, "grace": 1.0}


@pytest.fixture
def doomed(tmp_path):
    with run_standalone_cluster(tmp_path / "doomed", workers=1) as cluster:
        yield cluster


def test_a_lost_master_is_told_where_something_fails_for_want_of_it(new_spark, doomed):
    options = {"spark": new_spark(doomed.master_url), **QUICK}
    lost = (
        f"Spark's master at {doomed.master_url} does not answer (Connection refused): what runs goes on, but Spark "
        "starts no executor until the master is back"
    )
    with tfos_lab.run(wait_forever, cluster_size=1, **options) as cluster:
        doomed.master.stop(grace_s=0)
        assert cluster.state == "running"
        with pytest.raises(NotEnoughSlots, match="Spark has 1 free task slot of 2: Spark's master at spark://"):
            tfos_lab.run(wait_forever, cluster_size=2, **options)
        victims = executors()
        for executor in victims:
            executor.kill()
        error = failure_of(cluster)
        assert (error.node, error.kind) == ("chief:0", "Lost")
        assert error.message.endswith(lost)
        assert gone(victims)


# ---- dynamic allocation ---------------------------------------------------------------------------------------------
# Spark takes back an executor on which no task runs, and nodes run no task once rows come. One has both nodes.

IDLE_S = 2
CACHED = "spark.dynamicAllocation.cachedExecutorIdleTimeout"
INITIAL = "spark.dynamicAllocation.initialExecutors"
CONF = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.executorIdleTimeout": f"{IDLE_S}s",
    INITIAL: "1",
    "spark.dynamicAllocation.maxExecutors": "1",
    "spark.executor.cores": "2",
    "spark.executor.memory": "512m",
}


def work(seconds, ctx):
    """Work, and say so each second; then count the rows that have come."""
    for second in range(seconds):
        ctx.report(step=second)
        time.sleep(1.0)
    feed, rows = ctx.data_feed(), 0
    while not feed.should_stop():
        rows += len(feed.next_batch(500))
    return rows


@pytest.fixture
def feed_on():
    """A function that fills a session's two slots with nodes that work for some seconds, and feeds them."""
    with running_clusters({"local": "off", **QUICK}) as start:

        def run(session, seconds):
            cluster = start(work, seconds, spark=session)
            cluster.train(session.range(1000))
            return cluster

        yield run


def test_nodes_outlive_the_parents_of_spark_s_python_workers_and_end_with_the_session(new_spark, standalone, feed_on):
    """Their executor comes for them, lives as long as their cluster, and goes when that has ended."""
    session = new_spark(standalone, conf={**CONF, INITIAL: "0"})
    cluster = feed_on(session, 4 * IDLE_S)
    assert sum(cluster.wait(timeout=120).values()) == 1000
    # They are idle now, to all who look.
    eventually(lambda: not executors())

    no_more = r"free task slots of 2: spark\.dynamicAllocation\.maxExecutors=1 allows no more\. Ask for cluster_size=2"
    with pytest.raises(NotEnoughSlots, match=no_more):
        tfos_lab.run(wait_forever, spark=session, cluster_size=3, **QUICK)

    cluster = tfos_lab.run(wait_forever, spark=session, cluster_size=1, **QUICK)
    family = Family.of(cluster)
    # Spark does this itself when a task is interrupted while its worker is being forked.
    daemons = [child for executor in executors() for child in executor.children()]
    assert daemons
    for daemon in daemons:
        daemon.terminate()
    assert gone(daemons)
    rows = session.range(10)
    assert rows.count() == 10
    assert cluster.state == "running"

    jobs, other = set(session.sparkContext.statusTracker().getActiveJobsIds()), QUICK_ENV | {"OTHER": "1"}
    starts = on_a_thread(lambda: tfos_lab.run(wait_forever, spark=session, env=other), name="starts")
    eventually(lambda: set(session.sparkContext.statusTracker().getActiveJobsIds()) - jobs)
    session.stop()
    with pytest.raises(NoSession, match="the SparkSession was stopped"):
        starts.result()
    with pytest.raises((NodeFailed, ClusterEnded)):
        cluster.wait(timeout=120)
    assert gone(family.nodes)
    cluster.stop()
    with pytest.raises(NoSession, match=r"the SparkSession was stopped\. Make one"):
        tfos_lab.run(wait_forever, spark=session)
    with pytest.raises(NoSession, match=r"the SparkSession was stopped\. Make one .* \(or pass spark=\.\.\.\)\.$"):
        tfos_lab.run(wait_forever, data=rows)


def test_behind_spark_connect_nobody_tells_why_an_executor_is_lost(new_spark, feed_on):
    cluster = feed_on(new_spark("local-cluster[1,2,1024]", connect=True, conf=CONF), 600)
    eventually(lambda: all((node.step or 0) > 3 * IDLE_S for node in cluster.nodes))  # they live on
    assert cluster.state == "running"
    executors()[0].kill()
    error = failure_of(cluster)
    assert error.kind == "Lost"
    assert "is gone: its executor has ended. Whether it failed, or Spark took it back, Spark Connect does not" in str(
        error
    )


def test_a_node_whose_executor_spark_takes_all_the_same_says_so_and_why(new_spark, standalone, feed_on):
    with pytest.raises(NodeFailed) as failed:  # the feed is told, where its rows have taken as long
        feed_on(new_spark(standalone, conf={**CONF, CACHED: f"{IDLE_S}s"}), 600).wait(timeout=120)
    error = failed.value
    assert error.kind == "Lost"
    assert "is gone: Spark took its executor back (Executor killed by driver), which it does after" in error.message
    assert f"{CACHED}={IDLE_S}s" in error.message


# ---- folders that are not shared ------------------------------------------------------------------------------------


@pytest.mark.parametrize("spark_mode", ["standalone"])
def test_a_model_that_the_notebook_will_not_find_is_reported_before_it_is_saved(
    run, spark, spark_mode, tmp_path, monkeypatch
):
    def save(args, ctx):
        return [ctx.model_dir(path) for path in args]

    monkeypatch.chdir(tmp_path)
    # /proc/self/cwd is another folder for each process, as a local path is for each host.
    paths = ["/proc/self/cwd/tfos-model/model.keras", str(tmp_path / "model.keras"), "relative/model.keras"]
    cluster = run(save, paths)
    *full, relative = cluster.wait(timeout=120)["chief:0"]
    assert full == paths[:2]
    assert relative == str(tmp_path / "relative" / "model.keras")
    advice = "use ctx.save_model or ctx.output_dir to have it here"
    folder = ", or give ctx.model_dir the full path of a folder that is shared"
    host = socket.gethostname()
    assert cluster.view().notes == (
        f"chief:0 saves to {paths[0]} on {host}, where this machine does not see it: {advice}{folder}",
    )
    cluster.stop()
    assert not list(tmp_path.rglob(".tfos-*"))
