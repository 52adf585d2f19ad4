"""Feeding a cluster from Spark: each row exactly once per epoch, equal ends, and what happens when a query fails."""

import psutil
import pytest

from tests.support.processes import gone
from tfos_lab.errors import ConfigError, FeedError, NodeFailed

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.tensorflow]

BATCH_SIZE = 8


def make_reader():
    """Return a function that reads ``args`` feeds to their ends, and for each of them returns a list of its epochs."""
    batch_size = BATCH_SIZE

    def read(args, ctx):
        feeds = []
        for _ in range(args):
            epochs = []
            for _ in range(ctx.epochs):
                rows, sizes, padding = [], [], 0
                for batch in ctx.dataset(batch_size):
                    weights = batch["sample_weight"].numpy()
                    sizes.append(len(weights))
                    rows += batch["x"].numpy()[weights > 0.0].tolist()
                    padding += int((weights == 0.0).sum())
                epochs.append({"steps": len(sizes), "rows": rows, "sizes": sizes, "padding": padding})
            feeds.append(epochs)
        return feeds

    return read


def rows_of(results, feed, epoch):
    return [row for node in results.values() for row in node[feed][epoch]["rows"]]


@pytest.fixture
def fed(back_end, run, frame, once):
    """A cluster that takes every slot and is fed many rows, one row, none, whole batches, two rows, and many padded."""

    def feed():
        cluster = run(make_reader(), 6, cluster_size=back_end.ranks)
        cluster.train(frame(1, 60, 40), epochs=2)
        cluster.train(frame(1))
        cluster.train(frame(0))
        cluster.train(frame(*[BATCH_SIZE] * back_end.ranks))
        cluster.train(frame(2))
        cluster.train(frame(60, 40), remainder="pad")
        return {"cluster": cluster, "results": dict(cluster.wait(timeout=200)), "view": cluster.view()}

    return once("fed", feed)


def test_each_row_is_read_once_in_every_epoch(fed):
    for epoch in (0, 1):
        assert sorted(rows_of(fed.results, 0, epoch)) == list(range(101))


def test_an_epoch_that_is_read_again_is_the_same_on_each_node(fed):
    for node in fed.results.values():
        first, second = node[0]
        assert sorted(first["rows"]) == sorted(second["rows"])


def test_rows_are_distributed_evenly(fed):
    counts = [len(node[0][0]["rows"]) for node in fed.results.values()]
    assert max(counts) - min(counts) <= 1


def test_all_nodes_take_the_same_steps_and_have_a_row_for_each(fed):
    for epoch in (0, 1):
        steps = {node[0][epoch]["steps"] for node in fed.results.values()}
        assert len(steps) == 1
        for node in fed.results.values():
            told = node[0][epoch]
            assert sum(told["sizes"]) == len(told["rows"])
            assert min(told["sizes"]) >= 1
            assert told["padding"] == 0


def test_batches_are_padded_on_request(fed):
    for node in fed.results.values():
        (told,) = node[5]
        assert set(told["sizes"]) == {BATCH_SIZE}
        assert len(told["rows"]) + told["padding"] == told["steps"] * BATCH_SIZE
    assert sorted(rows_of(fed.results, 5, 0)) == list(range(100))


def test_one_row_is_read_by_one_node_and_the_others_take_the_same_steps(fed):
    assert rows_of(fed.results, 1, 0) == [0]
    assert {node[1][0]["steps"] for node in fed.results.values()} == {1}


def test_no_rows_are_an_epoch_without_steps(fed):
    assert {node[2][0]["steps"] for node in fed.results.values()} == {0}


def test_rows_that_fill_their_batches_are_read_once_and_the_next_feed_follows(fed):
    assert sorted(rows_of(fed.results, 3, 0)) == list(range(BATCH_SIZE * len(fed.results)))
    assert {(node[3][0]["steps"], node[3][0]["padding"]) for node in fed.results.values()} == {(1, 0)}
    assert sorted(rows_of(fed.results, 4, 0)) == [0, 1]


def test_the_view_counts_rows_that_were_fed_and_read(fed):
    whole = BATCH_SIZE * len(fed.results)
    taken = {view.name: view.rows for view in fed.view.nodes}
    assert sum(taken.values()) == 2 * 101 + 1 + whole + 2 + 100
    told = [(feed.number, sum(feed.rows.values()), feed.epochs, feed.complete) for feed in fed.view.feeds]
    assert told[:3] == [(0, 101, 2, True), (1, 1, 1, True), (2, 0, 1, True)]
    assert told[3:] == [(3, whole, 1, True), (4, 2, 1, True), (5, 100, 1, True)]
    assert all(feed.total_partitions == feed.partitions for feed in fed.view.feeds)
    assert 0 < fed.view.timings["feeding"] <= fed.view.timings["fed"] <= fed.view.timings["done"]


@pytest.mark.back_ends("standalone", "connect")
def test_a_cluster_that_leaves_slots_free_is_fed_beside_its_tasks(run, frame):
    cluster = run(make_reader(), 1, cluster_size=1)
    cluster.train(frame(5, 5))
    assert sorted(rows_of(cluster.wait(timeout=200), 0, 0)) == list(range(10))


@pytest.mark.back_ends("local-session", "connect")
def test_rows_that_cannot_be_fed_are_refused_and_the_cluster_goes_on(run, frame):
    cluster = run(make_reader(), 1)
    with pytest.raises(ConfigError) as error:
        cluster.train(frame(3), columns=["X"])
    assert "X" in str(error.value)
    assert "x" in str(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError) as error:
        cluster.train(17, epochs=0, remainder="wrap", timeout=0, spool_bytes=0.5)
    named = [problem.partition("=")[0] for problem in error.value.problems]
    assert sorted(named) == ["data", "epochs", "remainder", "spool_bytes", "timeout"]
    cluster.train(frame(3))
    assert sorted(rows_of(cluster.wait(timeout=200), 0, 0)) == [0, 1, 2]


@pytest.mark.back_ends("local-session")
def test_a_column_that_is_not_fed_is_named_with_the_nearest_one(run, frame):
    def map_fun(args, ctx):
        ctx.dataset(4, label="labels")

    rows = frame(3).withColumnRenamed("x", "label")
    with pytest.raises(NodeFailed) as error:
        _train_and_wait(run(map_fun), rows)
    assert "labels" in str(error.value)
    assert "label" in str(error.value).replace("labels", "")


def _train_and_wait(cluster, rows):
    cluster.train(rows)
    return cluster.wait(timeout=200)


@pytest.mark.back_ends("local-session")
def test_tensorflow_s_autotuner_does_not_delay_the_end_of_an_epoch(run, frame):
    """On busy cores TensorFlow's iterators end with the tuner's next round, up to as late as they were long."""

    def tuned(args, ctx):
        import tensorflow as tf

        dataset = ctx.dataset(4).map(lambda batch: batch["x"], num_parallel_calls=tf.data.AUTOTUNE)
        return dataset.options().autotune.enabled, sum(len(x) for x in dataset)

    assert set(_train_and_wait(run(tuned), frame(20, 20)).values()) == {(False, 20)}


@pytest.mark.back_ends("local-session")
def test_a_function_of_the_dataframe_s_that_raises_is_named_with_its_line(run, spark):
    from pyspark.sql import functions as f

    @f.udf("bigint")
    def refuse(x):
        raise ValueError(f"no such value: {x}")

    cluster = run(make_reader(), 1)
    told = r"^Spark's job failed: ValueError: no such value: 0 \(test_feed\.py, line \d+, in refuse\)$"
    with pytest.raises(FeedError, match=told):
        cluster.train(spark.range(1).select(refuse("id").alias("x")))


@pytest.mark.back_ends("inline-session", "local-session", "connect")
def test_a_query_that_fails_in_the_middle_fails_the_feed_with_its_cause(run, frame, spark, back_end):
    from pyspark.sql import functions as f

    cluster = run(make_reader(), 1)
    processes = [psutil.Process(node.pid) for node in cluster.nodes if node.pid and not back_end.is_inline]
    failing = frame(10, 90).select(f.expr("if(x = 77, raise_error('no such digit'), x) as x"))
    with pytest.raises(FeedError, match="no such digit") as error:
        cluster.train(failing)
    assert not isinstance(error.value, TimeoutError)
    assert cluster.state == "failed"
    with pytest.raises((NodeFailed, FeedError), match="no such digit"):
        cluster.wait(timeout=60)
    assert gone(processes)
    assert spark.range(3).count() == 3


@pytest.mark.back_ends("local-session")
def test_a_feed_that_must_fit_and_does_not_is_refused(run, frame):
    cluster = run(make_reader(), 1)
    with pytest.raises(FeedError, match=r"do not fit into the node's spool .* as they are read 2 times"):
        cluster.train(frame(3000, 3000), epochs=2, spool_bytes=1000)
    assert cluster.state == "failed"
