"""Feeds that are slow, end early or come too late, and files that are read again: what is no fault, or no row's."""

import re
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.faults.scene import wait_forever
from tests.faults.table import SMALL_BYTES, many_rows, read_all, read_one_and_wait
from tests.support.data_files import rows, write_records
from tests.support.eventually import eventually
from tfos_lab.errors import ClusterEnded, FeedError, NodeFailed

pytestmark = pytest.mark.leaves_nothing


def slow(spark, tasks, work_s):
    """Rows of tasks that each work for a while, before a shuffle."""

    def work(batches):
        for table in batches:
            time.sleep(work_s)
            yield table

    frame = spark.range(0, 100 * tasks, 1, tasks).selectExpr("id as x")  # one batch for each task
    return frame.mapInArrow(work, "x long").repartition(2)


def count(args, ctx):
    feed, taken = ctx.data_feed(), 0
    while not feed.should_stop():
        taken += len(feed.next_batch(500))
    return taken


@pytest.mark.full
def test_a_feed_that_is_slow_is_not_taken_for_one_that_is_stuck(scene, spark):
    """Spark works before the first row, for longer than the feed's patience; that rows move is told by a rule."""
    expected = slow(spark, 44, 0.0).count()  # Spark has started its Python by then
    scene.run(count)
    assert sum(scene.feed(slow(spark, 44, 1.0), timeout=20.0).values()) == expected


@pytest.mark.parametrize(
    ("spark_mode", "who"), [("local", ("chief:0", "worker:0")), ("standalone", ("worker:0",))], ids=["all", "one"]
)
def test_a_node_that_returns_in_the_middle_of_a_feed_ends_it_early(scene, spark, spark_mode, who):
    def read(args, ctx):
        feed, steps = ctx.data_feed(), 0
        while not feed.should_stop():
            steps += bool(feed.next_batch(50))
            if ctx.node in args:
                break
        return steps

    scene.run(read, who)
    results = scene.feed(many_rows(spark), spool_bytes=SMALL_BYTES, timeout=100)
    assert results["worker:0"] == 1
    [note] = scene.cluster.view().notes
    said = re.fullmatch(r"the feed ended early, after \d+ of its partitions, as (.+) returned", note)
    assert said[1].split(", ") in ([*who], [who[0]], [who[-1]])  # those that had returned by then
    assert spark.range(10).count() == 10


def test_nodes_of_which_one_has_returned_are_fed_nothing_more(run, spark):
    cluster = run(lambda args, ctx: ctx.is_chief and wait_forever(args, ctx))
    eventually(lambda: [node for node in cluster.nodes if node.state == "done"])
    with pytest.raises(ClusterEnded, match=r"half done \(worker:0 returned\)"):
        cluster.train(many_rows(spark))
    assert cluster.state == "running"


def test_rows_that_no_function_reads_are_told_as_they_come(run, spark, tmp_path):
    began = tmp_path / "began"

    def ignore(args, ctx):
        while not Path(args).exists():
            time.sleep(0.01)

    def begin(batches):
        began.touch()
        time.sleep(3600.0)
        yield from batches

    with pytest.raises(FeedError, match=r"returned, and no node has read any row: loop over ctx\.dataset"):
        run(ignore, str(began)).train(spark.range(8).mapInArrow(begin, "id long"))


@pytest.mark.parametrize("wants", [True, False])
def test_rows_of_a_run_whose_function_has_returned_before_they_come(run, spark, wants):
    """That is told, where it had not said that it wants none; and it is the same for one node and for all."""

    def ignore(args, ctx):
        if not args:
            ctx.stop_feed()
        return ctx.is_chief and wait_forever(args, ctx)

    cluster = run(ignore, wants)
    eventually(lambda: [node for node in cluster.nodes if node.state == "done"])
    told = pytest.raises(FeedError, match="worker:0 returned, and no node has read any row") if wants else nullcontext()
    with told, cluster.feeding.required():
        cluster.train(spark.range(8))
    eventually(lambda: cluster.state == ("failed" if wants else "running"))


def test_a_node_s_error_comes_before_rows_that_another_has_not_read(run, spark, tmp_path):
    def fail(args, ctx):
        while not ctx.is_chief:
            if Path(args).exists():
                raise ValueError("label 11 is outside the 10 classes")
            time.sleep(0.01)

    cluster = run(fail, str(tmp_path / "go"))
    eventually(lambda: cluster.nodes[0].state == "done")
    (tmp_path / "go").touch()
    eventually(lambda: cluster.ended)
    with pytest.raises(NodeFailed, match="label 11"), cluster.feeding.required():
        cluster.train(spark.range(8))


@pytest.mark.tensorflow
def test_two_feeds_at_once_run_one_after_the_other(run, spark):
    cluster = run(read_all, 2, env={})
    frames = [spark.range(first, first + 50, 1, 3).withColumnRenamed("id", "x") for first in (0, 1000)]
    threads = [threading.Thread(target=cluster.train, args=(frame,)) for frame in frames]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results = cluster.wait(timeout=120)
    feeds = [sorted(row for node in results.values() for row in node[feed]) for feed in (0, 1)]
    assert sorted(feeds) == [list(range(50)), list(range(1000, 1050))]


def rows_of(results):
    return sorted(row for some in results.values() for row in some)


def test_nodes_that_start_again_read_all_rows_of_a_file_again(run, tmp_path):
    cluster = run(read_one_and_wait, str(tmp_path), restarts=1)
    cluster.train(write_records(tmp_path / "a.tfrecord", rows(0, 9)))
    eventually(lambda: len(list(tmp_path.glob("began-*"))) == 2)
    (tmp_path / "fail").touch()
    (tmp_path / "go-on").touch()
    assert rows_of(cluster.wait(timeout=120)) == list(range(9))
    assert cluster.view().notes
