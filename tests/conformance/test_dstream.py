"""DStreams: each micro-batch is fed as an RDD, until the context is stopped, the nodes want no more, or it fails."""

import pytest

from tests.support.eventually import eventually
from tfos_lab.errors import ClusterEnded, ConfigError, NodeFailed

pytestmark = [
    pytest.mark.leaves_nothing,
    pytest.mark.tensorflow,
    pytest.mark.back_ends("local-session"),
    pytest.mark.filterwarnings("ignore:DStream is deprecated"),
]

PATIENCE_S = 60.0


def read_all(args, ctx):
    feed, rows = ctx.data_feed(), []
    while not feed.should_stop():
        rows += feed.next_batch(4)
        if args and len(rows) >= args:
            feed.terminate()
    return rows


@pytest.fixture
def streaming(spark):
    """A function that makes a stream of micro-batches with the given rows; its context is stopped at the end."""
    from pyspark.streaming import StreamingContext

    contexts = []

    def make(*batches):
        context = StreamingContext(spark.sparkContext, 0.3)
        contexts.append(context)
        rdds = [spark.sparkContext.parallelize(rows, 2) for rows in batches]
        return context, context.queueStream(rdds)

    yield make
    for context in contexts:
        context.stop(stopSparkContext=False)


def wait_for_rows(cluster, count):
    eventually(lambda: sum(node.rows for node in cluster.nodes) >= count)


def rows_of(cluster):
    return sorted(row for rows in cluster.wait(timeout=PATIENCE_S).values() for row in rows)


def test_each_row_of_each_micro_batch_is_read_once_until_the_context_stops(run, streaming):
    context, stream = streaming(["a", "b", "c"], [], ["d"], ["e", "f"])
    cluster = run(read_all)
    feed = cluster.train(stream)
    assert feed.is_active
    context.start()
    wait_for_rows(cluster, 6)
    context.stop(stopSparkContext=False)
    assert rows_of(cluster) == list("abcdef")
    assert not feed.is_active
    [told] = cluster.view().feeds
    assert (told.kind, sum(told.rows.values())) == ("stream", 6)


def test_a_stream_that_is_stopped_leaves_its_context_alone_and_more_can_be_fed(run, streaming, spark):
    context, stream = streaming([1, 2, 3], [4])
    cluster = run(read_all)
    feed = cluster.train(stream)
    context.start()
    wait_for_rows(cluster, 4)
    feed.stop()
    feed.stop()
    cluster.train(spark.sparkContext.parallelize([5, 6]), objects=True)
    assert rows_of(cluster) == [1, 2, 3, 4, 5, 6]


def test_nodes_that_want_no_more_rows_end_the_stream(run, streaming):
    context, stream = streaming(*([row] * 4 for row in range(30)))
    cluster = run(read_all, 4)
    feed = cluster.train(stream)
    context.start()
    assert rows_of(cluster)[:4] == [0] * 4
    feed.join(PATIENCE_S)
    assert not feed.is_active


def test_columns_of_a_stream_are_one_epoch_of_a_dataset(run, streaming):
    def read(args, ctx):
        return [int(x) for batch in ctx.dataset(4) for x in batch["_1"].numpy()[batch["sample_weight"].numpy() > 0]]

    context, stream = streaming([(1, "a"), (2, "b")], [], [(3, "c"), (4, "d")])
    cluster = run(read)
    cluster.train(stream)
    context.start()
    wait_for_rows(cluster, 4)
    context.stop(stopSparkContext=False)
    assert rows_of(cluster) == [1, 2, 3, 4]


def test_rows_that_cannot_be_computed_fail_the_cluster_with_the_cause(run, streaming):
    context, stream = streaming([1, 0])
    cluster = run(read_all)
    cluster.train(stream.map(lambda row: 1 // row))
    context.start()
    with pytest.raises(Exception, match="ZeroDivisionError"):
        cluster.wait(timeout=PATIENCE_S)


def test_a_node_that_fails_in_mid_stream_is_the_cause(run, streaming):
    def fail(args, ctx):
        ctx.data_feed().next_batch(1)
        raise ValueError("enough")

    context, stream = streaming([1, 2], [3, 4])
    cluster = run(fail)
    feed = cluster.train(stream)
    context.start()
    with pytest.raises(NodeFailed, match="enough"):
        cluster.wait(timeout=PATIENCE_S)
    feed.join(PATIENCE_S)
    assert not feed.is_active


def test_what_makes_no_sense_for_a_stream_is_refused(run, streaming):
    _, stream = streaming([1])
    cluster = run(read_all)
    with pytest.raises(ConfigError, match="epochs=2: a stream is read once"):
        cluster.train(stream, epochs=2)
    with pytest.raises(ConfigError, match=r"data=DStream: only cluster\.train takes one"):
        cluster.inference(stream)
    cluster.stop()
    with pytest.raises(ClusterEnded):
        cluster.train(stream)
