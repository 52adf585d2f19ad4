"""Rows of megabytes on a Spark whose own limit is lowered from 2 GiB to 8 MB."""

import itertools

import pytest

from tests.support.clusters import running_clusters
from tests.support.quick import QUICK_ENV
from tests.support.spark_home import QUICK_JVM
from tfos_lab.errors import FeedError, NodeFailed

pytestmark = pytest.mark.leaves_nothing


# As large in proportion as the 64 MiB that end a batch of Spark's.
CONF = {
    "spark.driver.extraJavaOptions": f"{QUICK_JVM} -Darrow.vector.max_allocation_bytes=8000000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "250000",
}
TOLD = r"Spark needs room for \d[\d,]+ bytes of column 'x' in one Arrow batch, and 8,000,000 is the most: make several"


def measure(args, ctx):
    """Return the lengths of the rows that this node is fed or asked for."""
    feed, lengths = ctx.data_feed(train_mode=not args), []
    while not feed.should_stop():
        rows = [len(row[1]) for row in feed.next_batch(1)]
        lengths += rows
        if args and rows:
            feed.batch_results(rows)
    return lengths


def fail(cluster, rows):
    cluster.train(rows)
    cluster.wait(timeout=100)


def test_large_rows_are_fed_and_too_large_ones_are_told_with_their_column(new_spark):
    spark = new_spark("local[2]", conf=CONF)  # with the lower limit

    def rows(size, count):
        text = f"cast(repeat(char(97 + id % 7), {size}) as binary) as x"
        return spark.range(0, count, 1, 1).selectExpr("id", text)

    with running_clusters({"spark": spark, "local": "processes", "env": QUICK_ENV}) as start:
        cluster = start(measure)
        cluster.train(rows(3_000_000, 5))
        assert sorted(itertools.chain(*cluster.wait(timeout=100).values())) == [3_000_000] * 5
        cluster = start(measure)
        with pytest.raises((FeedError, NodeFailed), match=TOLD):
            fail(cluster, rows(9_000_000, 1))
        cluster = start(measure, "answer")
        answered = cluster.inference(rows(3_000_000, 5), schema="prediction long")
        assert [row.prediction for row in answered.select("prediction").collect()] == [3_000_000] * 5
        cluster.stop()
        cluster = start(measure, "answer")
        with pytest.raises(FeedError, match=TOLD):
            cluster.inference(rows(9_000_000, 1))
        assert rows(1, 3).count() == 3
