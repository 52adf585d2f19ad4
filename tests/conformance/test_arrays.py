"""Data of this process: pandas' DataFrames and NumPy's arrays are fed, and answered, as Spark's DataFrames are."""

import numpy as np
import pandas as pd
import pytest

from tests.support.quick import QUICK_ENV
from tfos_lab.errors import FeedError, NodeFailed, NoSession

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.tensorflow]


def collect(args, ctx):
    """Return the dtypes and shapes of a batch, and the rows of every feed."""
    seen, kinds = [], {}
    for _ in range(2):
        for batch in ctx.dataset(4):
            here = batch.pop("sample_weight").numpy() != 0
            kinds |= {name: (str(column.dtype.name), tuple(column.shape[1:])) for name, column in batch.items()}
            seen += [int(y) for y in batch["y"].numpy()[here]]
            assert (batch["x"].numpy()[here].sum(axis=(1, 2)) == 4 * batch["y"].numpy()[here]).all()
    return kinds, seen


@pytest.mark.back_ends("local-session", "connect")
def test_arrays_and_pandas_reach_the_nodes_with_their_shapes(run, frame):
    y = np.arange(10, dtype=np.int32)
    x = np.broadcast_to(y.astype(np.uint8)[:, None, None], (10, 2, 2))
    cluster = run(collect)
    cluster.train((x, y))
    cluster.train(pd.DataFrame({"x": list(x), "y": y}))
    results = cluster.wait(timeout=100)
    assert sorted(y for _, seen in results.values() for y in seen) == sorted([*range(10), *range(10)])
    assert all(kinds == {"x": ("int16", (2, 2)), "y": ("int32", ())} for kinds, _ in results.values())


@pytest.fixture
def spark_s_log(spark):
    """A function that returns what Spark has logged since."""
    jvm = spark.sparkContext._jvm
    log4j, writer = jvm.org.apache.logging.log4j, jvm.java.io.StringWriter()
    appender = log4j.core.appender.WriterAppender.createAppender(None, None, writer, "of a test", False, True)
    appender.start()
    root = log4j.LogManager.getContext(False).getConfiguration().getRootLogger()
    root.addAppender(appender, None, None)
    yield writer.toString
    root.removeAppender("of a test")


def count(args, ctx):
    feed, batches = ctx.data_feed(), 0
    while not feed.should_stop():
        batches += bool(feed.next_batch(1000))
    return batches


@pytest.mark.back_ends("local-session")
def test_no_warning_of_spark_s_says_that_tasks_with_rows_of_arrays_are_large(run, spark, spark_s_log):
    cluster = run(count, env=QUICK_ENV)
    cluster.train(np.zeros((20_000, 100)))
    assert dict(cluster.wait(timeout=100)) == {"chief:0": 10, "worker:0": 10}
    assert "very large size" not in spark_s_log()
    spark.sparkContext.parallelize([bytes(2_000_000)], 1).count()
    assert "very large size" in spark_s_log(), "of other tasks it does"


@pytest.mark.back_ends("local-session")
def test_rows_that_cannot_be_fed_are_one_sentence_and_no_traces_in_spark_s_log(run, spark, spark_s_log):
    cluster = run(count, env=QUICK_ENV)
    with pytest.raises(FeedError, match=r"column 'x' has 2 nulls"):
        cluster.train(spark.range(4).coalesce(1).selectExpr("if(id < 2, null, id) as x"))
    assert "Traceback" not in spark_s_log()
    assert "aborting job" not in spark_s_log()
    with pytest.raises(Exception, match="no such row"):
        spark.sparkContext.parallelize([0], 1).foreach(lambda row: {}["no such row"])
    assert "no such row" in spark_s_log(), "of other tasks it has them"


@pytest.mark.back_ends("local-session")
def test_an_inference_of_arrays_is_a_dataframe(run, frame):
    def total(args, ctx):
        for batch in ctx.dataset(4):
            ctx.put_results({"total": batch["x"].numpy().sum(axis=1)})

    cluster = run(total)
    answers = cluster.inference({"x": np.arange(20, dtype=np.float32).reshape(10, 2)})
    assert answers.dtypes == [("x", "array<float>"), ("total", "float")]
    assert [row.total for row in answers.collect()] == [4.0 * i + 1 for i in range(10)]


@pytest.mark.back_ends("local")
def test_without_a_session_arrays_are_refused_and_what_has_started_for_them_has_failed(run, spark_sessions):
    spark_sessions.close()  # of the tests before

    def wait(args, ctx):
        ctx.wait_for_training(60)

    told = "data is of type ndarray, but there is no SparkSession to read it"
    with pytest.raises(NoSession, match=told), run(wait, env=QUICK_ENV) as cluster:
        cluster.train(np.zeros(3))
    assert cluster.state == "failed"
    with pytest.raises(NodeFailed, match=told):
        cluster.wait()
