"""Feeds that go wrong: rows that fit no tensor, nodes that die, disks that are full, clusters that have ended."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time

import psutil
import pytest

from tests.misfortune.conftest import PATIENCE_S, Family
from tfos_lab.errors import ClusterEnded, FeedError, FeedTimeout, NodeFailed

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.tensorflow]

on_both = pytest.mark.parametrize("spark_mode", ["local", "standalone"])
# Small enough that rows have to be taken before more can be stored, so that failures happen in the middle of a feed.
SMALL_BYTES = 200_000


@pytest.fixture
def start(run, spark_mode):
    """`run` with a real TensorFlow: on the session's executors, or in processes of this machine."""
    where = "processes" if spark_mode == "local" else "false"
    return lambda map_fun, args=None, **options: run(map_fun, args, local=where, env={}, **options)


def read_all(args, ctx):
    """Return the rows of ``args`` feeds."""
    return [
        [
            int(x)
            for batch in ctx.dataset(8)
            for x in batch["x"].numpy().reshape(len(batch["sample_weight"]), -1)[batch["sample_weight"].numpy() > 0, 0]
        ]
        for _ in range(args)
    ]


def many_rows(spark):
    return spark.range(0, 20_000, 1, 40).selectExpr("id as x", "cast(repeat('x', 100) as binary) as filler")


@on_both
@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("if(id = 33, null, id) as x", r"column 'x'.* null"),
        ("if(id = 33, array(id), array(id, id)) as x", r"column 'x'"),
    ],
    ids=["null", "ragged"],
)
def test_rows_that_fit_no_tensor_fail_the_feed_by_the_name_of_their_column(start, spark, sql, text):
    cluster = start(read_all, 1)
    children = [psutil.Process(node.pid) for node in cluster.nodes]
    with pytest.raises((FeedError, NodeFailed), match=text):
        feed_and_wait(cluster, spark.range(0, 40, 1, 4).selectExpr(sql))
    assert cluster.state == "failed"
    assert psutil.wait_procs(children, PATIENCE_S)[1] == []


def feed_and_wait(cluster, rows, **options):
    cluster.train(rows, **options)
    return cluster.wait(timeout_s=100)


def slow(spark, tasks, work_s):
    """Rows of tasks that each work for a while."""

    def work(rows):
        import time

        for table in rows:
            time.sleep(work_s)
            yield table

    rows_per_batch = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    rows = spark.range(0, tasks * int(rows_per_batch), 1, tasks).selectExpr("id as x")
    return rows.mapInArrow(work, "x long")


@pytest.mark.parametrize(
    ("make_rows", "options", "step_s"),
    [
        # Each of them takes longer than the feed's patience, with a sign of life every half second.
        (lambda spark, work_s: slow(spark, 15, work_s).coalesce(1), {}, 0.0),
        (lambda spark, work_s: slow(spark, 30, work_s).repartition(2), {}, 0.0),
        (lambda spark, _work_s: many_rows(spark).coalesce(2), {"spool_bytes": SMALL_BYTES}, 0.5),
    ],
    ids=["one partition takes long", "Spark works before the first row", "nodes take their time"],
)
def test_a_feed_that_is_slow_is_not_taken_for_one_that_is_stuck(start, spark, make_rows, options, step_s):
    def count(step_s, ctx):
        import time

        rows = 0
        for batch in ctx.dataset(500):
            time.sleep(step_s)
            rows += int((batch["sample_weight"].numpy() != 0).sum())
        return rows

    expected = make_rows(spark, 0.0).count()  # Spark has started its Python by then
    rows = make_rows(spark, 0.5)
    assert sum(feed_and_wait(start(count, step_s), rows, timeout_s=7.0, **options).values()) == expected


def test_a_feed_that_is_stuck_ends_in_a_sentence(start, spark):
    def wait(args, ctx):
        import threading

        threading.Event().wait()

    cluster = start(wait)
    with pytest.raises(
        FeedTimeout, match=r"nothing has moved for 2.5 s: .*see whether map_fun reads its rows, or raise"
    ):
        cluster.train(many_rows(spark), timeout_s=2.5, spool_bytes=SMALL_BYTES)
    assert cluster.state == "failed"


@on_both
def test_a_node_that_dies_in_the_middle_of_a_feed_ends_it_by_its_name(start, spark):
    def die(args, ctx):
        import os
        import signal

        for step, _ in enumerate(ctx.dataset(50)):
            if step == 3 and not ctx.is_chief:
                os.kill(os.getpid(), signal.SIGKILL)

    cluster = start(die)
    family = Family.of(cluster)
    with pytest.raises(NodeFailed) as error:
        feed_and_wait(cluster, many_rows(spark), spool_bytes=SMALL_BYTES)
    assert (error.value.node, error.value.kind) == ("worker:0", "Exited")
    assert family.all_gone()
    assert spark.range(10).count() == 10


@on_both
@pytest.mark.parametrize("who", [("chief:0", "worker:0"), ("worker:0",)], ids=["all", "one"])
def test_a_node_that_returns_in_the_middle_of_a_feed_ends_it_early(start, spark, who):
    def read(args, ctx):
        steps = 0
        for _ in ctx.dataset(50):
            steps += 1
            if ctx.node in args:
                break
        return steps

    cluster = start(read, who)
    rows = many_rows(spark)
    results = feed_and_wait(cluster, rows, spool_bytes=SMALL_BYTES, timeout_s=30)
    assert results["worker:0"] == 1
    [note] = cluster.view().notes
    said = re.fullmatch(r"the feed ended early, after \d+ of its partitions, as (.+) returned", note)
    named = said[1].split(", ")
    assert named in ([*who], [who[0]], [who[-1]])  # those that had returned by then
    assert spark.range(10).count() == 10


@on_both
def test_nodes_of_which_one_has_returned_are_fed_nothing_more(start, spark):
    def read(args, ctx):
        import threading

        if not ctx.is_chief:
            return
        for _ in ctx.dataset(50):
            pass
        threading.Event().wait()

    cluster = start(read)
    wait_for(lambda: [node for node in cluster.nodes if node.state == "done"])
    with pytest.raises(ClusterEnded, match=r"half done \(worker:0 returned\)"):
        cluster.train(many_rows(spark))
    assert cluster.state == "running"


def wait_for(predicate):
    deadline = time.monotonic() + PATIENCE_S
    while not predicate():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_readers_of_an_interrupted_feed_get_its_reason(start, spark):
    def read_slowly(args, ctx):
        import time

        for _ in ctx.dataset(50):
            time.sleep(0.05)

    def interrupt(thread):
        wait_for(lambda: sum(node.rows for node in cluster.nodes))
        signal.pthread_kill(thread, signal.SIGINT)

    cluster = start(read_slowly)
    threading.Thread(target=interrupt, args=(threading.get_ident(),)).start()
    with pytest.raises(KeyboardInterrupt):
        cluster.train(many_rows(spark), spool_bytes=SMALL_BYTES)
    with pytest.raises(NodeFailed, match=r"FeedError: cluster\.train was interrupted before all rows had come"):
        cluster.wait(timeout_s=60)


@on_both
def test_a_disk_that_is_full_under_the_spool_is_named(start, spark):
    cluster = start(read_all, 2)
    family = Family.of(cluster)
    cluster.train(many_rows(spark).limit(40))
    # A limit on the size of files looks like a full disk to the tasks, which write on the nodes' host.
    unlimited = psutil.Process().rlimit(psutil.RLIMIT_FSIZE)
    limit_files_of_python_workers((20_000, unlimited[1]))
    try:
        with pytest.raises(FeedError, match=r"the node's spool in \S+ cannot be written: File too large$"):
            feed_and_wait(cluster, many_rows(spark))
    finally:
        limit_files_of_python_workers(unlimited)
    assert cluster.state == "failed"
    assert family.all_gone()


def limit_files_of_python_workers(limits):
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # nor any zombie
            if "pyspark.daemon" in process.cmdline():
                process.rlimit(psutil.RLIMIT_FSIZE, limits)


def test_a_cluster_that_has_ended_is_fed_nothing(start, spark):
    rows = spark.range(3).withColumnRenamed("id", "x")
    done = start(lambda: "done")
    done.wait(timeout_s=60)
    stopped = start(read_all, 1)
    stopped.stop()
    for cluster, state in ((done, "done"), (stopped, "stopped")):
        with pytest.raises(ClusterEnded, match=state):
            cluster.train(rows)
    failed = start(read_all, 1)
    with pytest.raises(FeedError):
        failed.train(rows.selectExpr("if(x = 1, raise_error('no row'), x) as x"))
    with pytest.raises((ClusterEnded, NodeFailed)):
        failed.train(rows)


@on_both
def test_two_feeds_at_once_run_one_after_the_other(start, spark):
    cluster = start(read_all, 2)
    frames = [spark.range(first, first + 50, 1, 3).withColumnRenamed("id", "x") for first in (0, 1000)]
    threads = [threading.Thread(target=cluster.train, args=(frame,)) for frame in frames]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    results = cluster.wait(timeout_s=60)
    feeds = [sorted(row for node in results.values() for row in node[feed]) for feed in (0, 1)]
    assert sorted(feeds) == [list(range(50)), list(range(1000, 1050))]


@pytest.mark.parametrize("spark_mode", ["local-cluster"])
def test_executors_of_one_slot_each_are_fed_while_all_of_them_are_nodes(start, spark):
    cluster = start(read_all, 1)
    assert len({node.executor for node in cluster.nodes}) == 2
    rows = spark.range(0, 100, 1, 5).withColumnRenamed("id", "x")
    results = feed_and_wait(cluster, rows)
    assert sorted(row for node in results.values() for row in node[0]) == list(range(100))
