"""Feeding Python objects: whatever an RDD holds arrives as it is, once per epoch, in batches of `ctx.data_feed`."""

import threading

import numpy as np
import pytest

from tfos_lab.errors import FeedError, NodeFailed

# Through Spark Connect there are no RDDs; on other hosts: tests/hosts/test_two_hosts.py.
pytestmark = [pytest.mark.leaves_nothing, pytest.mark.back_ends("local-session")]

PATIENCE_S = 60.0
# With `frame`, a test runs where there is a session.
INLINE_TOO = pytest.mark.back_ends("inline-session", "local-session")
ROWS = [
    "text",
    "",
    None,
    True,
    7,
    2.5,
    b"bytes",
    bytearray(b"more"),
    [1, [2, 3], []],
    [[4.0], None],
    (1, (None, "x"), ()),
    {"a": {1: [2]}},
    {3, 4},
    np.arange(6, dtype=np.float16).reshape(2, 3),
    np.int8(5),
]


# Functions are made where they are asked for: nodes elsewhere cannot import this module.


def batches_of(size, **options):
    """Return a function that returns its batches, as text that tells types, too."""

    def read(args, ctx):
        def told(value):
            if hasattr(value, "dtype"):
                return f"{value.dtype}{value.shape}{value.tolist()}"
            return f"{type(value).__name__} {value!r}"

        feed, batches = ctx.data_feed(**options), []
        while not feed.should_stop():
            batch = feed.next_batch(size)
            batches.append({k: list(map(told, v)) for k, v in batch.items()} if options.get("input_mapping") else
                           list(map(told, batch)))  # fmt: skip
        end = feed.next_batch(size)
        assert not any(end.values() if isinstance(end, dict) else end)
        return batches

    return read


def told(value):
    """Describe a row as the nodes do."""
    if hasattr(value, "dtype"):
        return f"{value.dtype}{value.shape}{value.tolist()}"
    return f"{type(value).__name__} {value!r}"


def rows_of(results):
    return sorted(row for batches in results.values() for batch in batches for row in batch)


@pytest.fixture
def parallelize(spark):
    """Make an RDD with partitions of the given rows."""

    def make(*partitions):
        context = spark.sparkContext
        return context.union([context.parallelize(rows, 1) for rows in partitions])

    return make


@pytest.fixture
def fifties(parallelize, back_end):
    """Eight partitions of 50 rows; the last four never come, where the function runs beside Spark's tasks."""

    def slow(index, rows):
        import time

        if index > 3:
            time.sleep(600)
        return rows

    if back_end.is_inline:
        return parallelize(*[["x"] * 50] * 4)
    return parallelize(*[["x"] * 50] * 8).mapPartitionsWithIndex(slow)


@pytest.fixture
def fed(back_end, run, parallelize, frame, once):
    """A cluster that is fed rows of every kind in uneven partitions, twice over, then numbers, then nothing."""

    def feed():
        cluster = run(batches_of(4), cluster_size=2)
        cluster.train(parallelize(ROWS[:2], ROWS[2:13], ROWS[13:]), epochs=2)
        cluster.train(parallelize(range(10)))
        cluster.train(parallelize([]))
        return {"results": dict(cluster.wait(timeout=PATIENCE_S)), "view": cluster.view()}

    return once("objects", feed)


@INLINE_TOO
def test_rows_of_every_kind_arrive_as_they_are_once_in_each_epoch(fed):
    assert rows_of(fed.results) == sorted([*map(told, ROWS * 2), *map(told, range(10))])


@INLINE_TOO
def test_batches_go_on_across_partitions_epochs_and_feeds_and_only_the_last_is_short(fed):
    for batches in fed.results.values():
        assert {len(batch) for batch in batches[:-1]} == {4}
        assert 1 <= len(batches[-1]) <= 4


@INLINE_TOO
def test_nodes_share_the_rows_evenly_and_the_view_counts_them(fed):
    counts = [sum(map(len, batches)) for batches in fed.results.values()]
    assert max(counts) - min(counts) <= 3  # one row in each pass over odd rows
    assert [view.rows for view in fed.view.nodes] == counts
    assert [(sum(feed.rows.values()), feed.epochs) for feed in fed.view.feeds] == [(len(ROWS), 2), (10, 1), (0, 1)]
    assert fed.view.notes == ()


@INLINE_TOO
def test_rows_that_could_be_columns_go_as_the_nodes_ask(run, parallelize, frame):
    cluster = run(batches_of(4), cluster_size=2)
    cluster.train(parallelize([(1, "a")], [[2, "b"], (3, None)]))
    assert rows_of(cluster.wait(timeout=PATIENCE_S)) == ["list [2, 'b']", "tuple (1, 'a')", "tuple (3, None)"]


@INLINE_TOO
@pytest.mark.tensorflow
def test_rows_that_could_be_columns_are_columns_for_a_dataset(run, parallelize, frame):
    def read(args, ctx):
        return sorted(x for batch in ctx.dataset(4) for x in batch["_1"].numpy()[batch["sample_weight"] > 0].tolist())

    cluster = run(read, cluster_size=2)
    cluster.train(parallelize([(1, "a")], [(2, "b"), (3, "c")]))
    assert sorted(x for node in cluster.wait(timeout=PATIENCE_S).values() for x in node) == [1, 2, 3]


def test_rows_of_the_user_s_own_classes_arrive(run, parallelize, frame):
    def read(args, ctx):
        feed, points = ctx.data_feed(), []
        while not feed.should_stop():
            points += [(point.x, point.twice()) for point in feed.next_batch(2)]
        return points

    def to_point(x):
        class Point:
            def __init__(self, x):
                self.x = x

            def twice(self):
                return 2 * self.x

        return Point(x)

    cluster = run(read, cluster_size=2)
    cluster.train(parallelize(range(3), range(3, 5)).map(to_point))
    results = cluster.wait(timeout=PATIENCE_S)
    assert sorted(point for node in results.values() for point in node) == [(i, 2 * i) for i in range(5)]


@pytest.mark.back_ends("local-session", "connect")
def test_rows_of_a_dataframe_are_those_that_it_collects(run, spark, frame):
    from pyspark.sql import functions as F  # noqa: N812

    df = frame(3, 4).select(
        "x",
        (F.col("x") / 2).alias("half"),
        F.col("x").cast("string").alias("text"),
        F.col("x").cast("string").cast("binary").alias("raw"),
        F.col("x").cast("decimal(9,2)").alias("money"),
        (F.col("x") > 2).alias("flag"),
        F.array(F.col("x"), -F.col("x")).alias("both"),
        F.array(F.array(F.lit("a"), F.col("x").cast("string"))).alias("deep"),
        F.expr("date_add(date'2024-02-28', cast(x as int))").alias("day"),
        F.expr("timestamp_millis(x * 86400001)").alias("time"),
        F.expr("to_timestamp_ntz('2024-01-01 00:00:01')").alias("clock"),
    )
    cluster = run(batches_of(4), cluster_size=2)
    cluster.train(df)
    assert rows_of(cluster.wait(timeout=PATIENCE_S)) == sorted(map(told, df.collect()))


def test_a_dataframe_s_rows_may_go_as_objects_whatever_is_in_them(run, spark, frame):
    df = spark.createDataFrame([(1, None, [1.0]), (2, "b", [2.0, 3.0])], "n long, s string, ragged array<double>")
    cluster = run(batches_of(4), cluster_size=2)
    cluster.train(df, objects=True)
    assert rows_of(cluster.wait(timeout=PATIENCE_S)) == sorted(map(told, df.collect()))


def test_queues_are_read_apart(run, parallelize, frame):
    def read(args, ctx):
        def all_of(queue):
            feed, rows = ctx.data_feed(queue=queue), []
            while not feed.should_stop():
                rows += feed.next_batch(3)
            return rows

        return {"b": all_of("b"), "a": all_of("a")}

    cluster = run(read, cluster_size=2)
    for queue in ("a", "b", "a"):
        cluster.train(parallelize([queue] * 4, [queue]), queue=queue)
    results = cluster.wait(timeout=PATIENCE_S).values()
    assert sorted(row for node in results for row in node["a"]) == ["a"] * 10
    assert sorted(row for node in results for row in node["b"]) == ["b"] * 5


def test_rows_of_a_queue_that_nobody_reads_are_told(run, parallelize, frame):
    cluster = run(batches_of(4), cluster_size=2)
    cluster.train(parallelize(["a"] * 4), queue="input")
    cluster.train(parallelize(["b"] * 4), queue="other")
    with pytest.raises(
        FeedError, match=r"no node has read any row of the queue 'other'.*ctx\.data_feed\(queue='other'\)"
    ):
        cluster.wait(timeout=PATIENCE_S)


@INLINE_TOO
def test_terminate_ends_the_feed_on_all_nodes_and_skips_the_rest_of_spark_s_work(run, fifties, frame):
    def read(args, ctx):
        feed = ctx.data_feed()
        if ctx.is_chief:
            rows = feed.next_batch(1)
            feed.terminate()
            assert feed.should_stop()
            return len(rows) + len(feed.next_batch(1))
        rows = 0
        while not feed.should_stop():
            rows += len(feed.next_batch(1000))
        return rows

    cluster = run(read, cluster_size=2)
    cluster.train(fifties)
    results = dict(cluster.wait(timeout=PATIENCE_S))
    assert results.pop("chief:0") == 1
    assert all(0 < rows <= 100 for rows in results.values())


@INLINE_TOO
def test_an_error_of_the_function_in_mid_feed_is_that_of_train_or_wait(run, fifties, frame, back_end):
    def read(args, ctx):
        raise ValueError(f"no good: {ctx.data_feed().next_batch(1)}")

    cluster = run(read, cluster_size=2)
    error = ValueError if back_end.is_inline else NodeFailed
    with pytest.raises(error, match=r"no good: \['x'\]"):  # noqa: PT012 - either of them tells it
        cluster.train(fifties)
        cluster.wait(timeout=PATIENCE_S)


def test_a_row_that_cannot_be_pickled_fails_the_feed_with_its_type_and_the_reason(run, parallelize, frame):
    cluster = run(batches_of(4), cluster_size=2)
    with pytest.raises(FeedError, match=r"a row of type _thread\.lock cannot be pickled \(TypeError: cannot pickle"):
        cluster.train(parallelize(["a"], ["b"]).map(lambda _: __import__("threading").Lock()), objects=True)
    assert cluster.ended


@pytest.mark.tensorflow
def test_a_dataset_of_objects_is_refused_with_what_to_do(run, parallelize, frame):
    def read(args, ctx):
        return list(ctx.dataset(4))

    cluster = run(read, cluster_size=1)
    with pytest.raises(  # noqa: PT012 - either of them tells it
        NodeFailed, match=r"rdd\.map\(lambda x: \(x,\)\); or read the rows as they are with ctx.data_feed"
    ):
        cluster.train(parallelize(["a"], ["b"]))
        cluster.wait(timeout=PATIENCE_S)


@pytest.mark.back_ends("standalone")
def test_partitions_that_are_tried_twice_are_read_once(run, parallelize, frame):
    def flaky(index, rows):
        from pyspark import TaskContext

        yield from rows
        if index == 1 and TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("try again")

    cluster = run(batches_of(4), cluster_size=2)
    rdd = parallelize(range(5), range(5, 9), range(9, 11)).mapPartitionsWithIndex(flaky)
    cluster.train(rdd)
    assert rows_of(cluster.wait(timeout=PATIENCE_S)) == sorted(map(told, range(11)))


def test_a_feed_may_wait_for_the_functions_to_ask(run, parallelize, frame):
    def read(args, ctx):
        import time

        time.sleep(1.0)
        feed, rows = ctx.data_feed(), 0
        while not feed.should_stop():
            rows += len(feed.next_batch(2))
        return rows

    cluster = run(read, cluster_size=2)
    feeding = threading.Thread(target=cluster.train, args=[parallelize([(1,), (2,)], [(3,)])])
    feeding.start()
    feeding.join(PATIENCE_S)
    assert sum(cluster.wait(timeout=PATIENCE_S).values()) == 3
