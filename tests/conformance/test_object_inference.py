"""Inference over Python objects: one result for each element of an RDD, of any type, in order."""

import functools
import threading
import time

import numpy as np
import pytest

from tests.support.quick import QUICK_ENV
from tfos_lab.errors import ConfigError, FeedTimeout, NodeFailed

# Through Spark Connect there are no RDDs; inline answers on the thread that computes the results. On other hosts:
# tests/hosts/test_two_hosts.py.
pytestmark = [pytest.mark.leaves_nothing, pytest.mark.back_ends("local-session")]

PARTITIONS = ((0, 45), (), (45, 46), (46, 10_046))


@pytest.fixture
def run(run):
    """The functions need no TensorFlow."""
    return functools.partial(run, env=QUICK_ENV)


def echo(args, ctx):
    """Answer with what came, in batches of 8; returns the sizes of all batches, by their partition."""
    feed = ctx.data_feed(train_mode=False)
    sizes = []
    while not feed.should_stop():
        batch = feed.next_batch(8)
        sizes.append(len(batch))
        feed.batch_results([(row, type(row).__name__) for row in batch])
    return sizes


def parts(spark, *bounds):
    """Return an RDD of numbers, with partitions of the given ranges."""
    return spark.sparkContext.parallelize([range(*bound) for bound in bounds], len(bounds)).flatMap(lambda part: part)


@pytest.fixture
def answered(back_end, run, spark, once):
    """Several inferences of one cluster that takes every slot, over the same data feed."""

    def infer():
        cluster = run(echo, cluster_size=back_end.ranks)
        lazy = cluster.inference(parts(spark, *((bound or (0, 0)) for bound in PARTITIONS)))
        rows = lazy.map(lambda result: result[0]).collect()
        again = lazy.map(lambda result: result[0]).sum()
        values = [
            *("text", "", b"\0", None, True, 3, 2.5, 10**30, 1 + 2j, (1, (None, "a")), [1, [2]], {"k": [1.0]}, {1, 2}),
            *(np.float32(1.5), np.int64(7), np.arange(3, dtype=np.uint8), np.zeros((2, 2), np.float16), np.str_("x")),
        ]
        kinds = cluster.inference(spark.sparkContext.parallelize(values, 3), objects=True).collect()
        lengths = lazy.mapPartitions(lambda part: [sum(1 for _ in part)]).collect()
        results = dict(cluster.wait(timeout=100))
        with pytest.raises(Exception, match=r"the cluster has to live until then; if it has failed, cluster.wait\(\)"):
            lazy.count()
        told = [(feed.kind, feed.number, sum(feed.rows.values())) for feed in cluster.view().feeds]
        return {"rows": rows, "again": again, "values": values, "kinds": kinds, "lengths": lengths} | {
            "results": results,
            "told": told,
        }

    return once("answered objects", infer)


def test_each_element_has_one_result_in_order_within_its_partition(answered):
    assert answered.rows == list(range(10_046))
    assert answered.again == sum(range(10_046))
    assert answered.lengths == [45, 0, 1, 10_000]
    assert answered.told == [("inference", 0, 3 * 10_046), ("inference", 1, len(answered.values))]


def test_types_are_exact_in_both_directions(answered):
    for sent, (came, name) in zip(answered.values, answered.kinds, strict=True):
        assert (type(came), name) == (type(sent), type(sent).__name__)
        assert getattr(came, "dtype", None) == getattr(sent, "dtype", None)
        assert np.array_equal(came, sent) if isinstance(sent, np.ndarray) else came == sent


def test_a_batch_ends_with_its_partition_and_only_there(answered):
    sizes = [size for sizes in answered.results.values() for size in sizes]
    # 45 and 1 rows are no multiples of 8; 10,000 are. The values were in three partitions of six.
    assert sorted(size for size in sizes if size != 8) == sorted([*3 * [45 % 8, 1], 6, 6, 6])


def test_feeds_and_inferences_follow_one_another_over_one_data_feed(run, spark):
    def learn_or_answer(args, ctx):
        feed, seen = ctx.data_feed(train_mode=False), []
        while not feed.should_stop():
            batch = feed.next_batch(4)
            if isinstance(batch[0], str):
                feed.batch_results([f"{row}!" for row in batch])
            else:
                seen += batch
        return seen

    cluster = run(learn_or_answer)
    numbers, texts = spark.sparkContext.parallelize(range(20), 4), spark.sparkContext.parallelize(list("abcdefg"), 3)
    answers = cluster.inference(texts)
    assert answers.collect() == [f"{text}!" for text in "abcdefg"]
    cluster.train(numbers, objects=True)
    assert answers.union(answers).count() == 14
    cluster.train(numbers, objects=True)
    results = cluster.wait(timeout=100)
    assert sorted(row for seen in results.values() for row in seen) == sorted([*range(20), *range(20)])


def test_queues_have_their_own_rows(run, spark):
    def two(args, ctx):
        def answer(queue):
            feed = ctx.data_feed(train_mode=False, queue=queue)
            while not feed.should_stop():
                feed.batch_results([(queue, row) for row in feed.next_batch(4)])

        threads = [threading.Thread(target=answer, args=(queue,)) for queue in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    cluster = run(two)
    rows = parts(spark, (0, 10), (10, 20))
    first, second = (cluster.inference(rows, queue=queue) for queue in ("a", "b"))
    assert first.zip(second).collect() == [(("a", row), ("b", row)) for row in range(20)]
    cluster.wait(timeout=100)


def test_columns_can_be_answered_by_a_data_feed(run, frame):
    def total(args, ctx):
        feed = ctx.data_feed(train_mode=False)
        while not feed.should_stop():
            feed.batch_results([row[0] + len(row[1]) for row in feed.next_batch(4)])

    cluster = run(total)
    df = frame(9, 3).selectExpr("x", "cast(x as string) as text")
    assert [(row.x, row.prediction) for row in cluster.inference(df).collect()] == [
        (x, x + len(str(x))) for x in range(12)
    ]


# ---- what goes wrong ------------------------------------------------------------------------------------------------


def test_terminate_ends_the_action_with_a_sentence_and_the_cluster_well(run, spark):
    def leave(args, ctx):
        feed = ctx.data_feed(train_mode=False)
        feed.batch_results(feed.next_batch(4))
        feed.terminate()
        return feed.should_stop(), feed.next_batch(4)

    cluster = run(leave)
    with pytest.raises(Exception, match=r"wants no more rows: it has called terminate\(\)|has returned before it gave"):
        cluster.inference(parts(spark, (0, 40), (40, 80))).collect()
    assert cluster.view().state in ("running", "done")
    cluster.stop()


def test_a_function_that_returns_early_is_named_in_the_action(run, spark):
    def leave_early(args, ctx):
        feed = ctx.data_feed(train_mode=False)
        feed.batch_results(feed.next_batch(4))

    cluster = run(leave_early, cluster_size=1)
    told = "the node's function has returned before it gave all results: have it loop until should_stop"
    with pytest.raises(Exception, match=told):
        cluster.inference(parts(spark, (0, 40)), objects=True).collect()
    cluster.wait(timeout=100)


def test_rows_that_get_no_results_time_out(run, spark):
    def take_only(args, ctx):
        feed = ctx.data_feed(train_mode=False)
        while not feed.should_stop():
            feed.next_batch(4)

    cluster = run(take_only)
    told = r"10 rows of queue 'lost' wait for their results, and none has come for 0.5 s: see whether .*queue='lost'"
    with pytest.raises(Exception, match=told):
        cluster.inference(parts(spark, (0, 10)), objects=True, queue="lost", timeout=0.5).collect()
    with pytest.raises(Exception, match=r"10 rows wait for their results, and none has come for 0.5 s"):
        cluster.inference(parts(spark, (0, 10)), timeout=0.5).collect()
    cluster.wait(timeout=100)


def test_values_that_cannot_be_pickled_or_computed_are_named(run, spark):
    def locked(args, ctx):
        feed = ctx.data_feed(train_mode=False)
        while not feed.should_stop():
            batch = feed.next_batch(4)
            feed.batch_results([threading.Lock() if row == 5 else row for row in batch])

    cluster = run(locked, cluster_size=1)
    rows = parts(spark, (0, 3))
    with pytest.raises(Exception, match=r"a row of type _thread\.lock cannot be pickled"):
        cluster.inference(rows.map(lambda row: threading.Lock())).collect()
    with pytest.raises(Exception, match="ZeroDivisionError") as error:
        cluster.inference(rows.map(lambda row: 1 // row)).collect()
    assert "no node of cluster" not in str(error.value)
    assert cluster.inference(rows).collect() == [0, 1, 2]
    with pytest.raises(Exception, match=r"a result of type _thread\.lock cannot be pickled"):
        cluster.inference(parts(spark, (5, 6))).collect()
    with pytest.raises(NodeFailed, match="a result of type"):
        cluster.wait(timeout=100)


def test_requests_that_make_no_sense_are_refused(run, spark):
    cluster = run(echo)
    rows = parts(spark, (0, 3))
    for options, words in (
        ({"objects": True, "columns": ["x"]}, r"columns=\['x'\]: rows that are objects have none"),
        ({"objects": True, "schema": "x long"}, "schema='x long': results of objects have any type"),
        ({"timeout": 0}, "timeout=0: a number of seconds above 0 is needed"),
    ):
        with pytest.raises(ConfigError, match=words):
            cluster.inference(rows, **options)
    assert cluster.inference(rows).map(lambda result: result[0]).collect() == [0, 1, 2]


def test_a_function_that_never_asks_for_rows_is_named(run, spark):
    def work(args, ctx):
        time.sleep(60)

    cluster = run(work)
    with pytest.raises(FeedTimeout, match=r"neither asked for rows nor began to serve within 0\.3 s"):
        cluster.inference(parts(spark, (0, 3)), timeout=0.3)
