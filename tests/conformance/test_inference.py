"""Inference: nodes answer for the rows of a DataFrame, and the results are beside the rows, in order."""

import threading

import pytest

from tests.support.eventually import eventually
from tfos_lab.errors import ClusterEnded, ConfigError, FeedError, NodeFailed

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.tensorflow]

# Results are computed on the thread on which inline would answer.
SOMEWHERE_ELSE = pytest.mark.back_ends("local-session", "standalone", "connect")
# No multiple of the batch size: each partition ends with a batch that has to be filled up.
PARTITIONS = (45, 0, 1, 30)


def double(args, ctx):
    """Answer until there is nothing more to answer; returns how many rows there were."""
    rows = 0
    for batch in ctx.dataset(8):
        rows += int((batch["sample_weight"].numpy() != 0).sum())
        ctx.put_results({"double": 2 * batch["x"], "pair": [[int(x), -int(x)] for x in batch["x"]]})
    return rows


@pytest.fixture
def answered(back_end, run, frame, once):
    """Two inferences on one cluster that takes every slot, the first one computed twice."""

    def infer():
        from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

        cluster = run(double, cluster_size=back_end.ranks)
        df = frame(*PARTITIONS).select(
            "x", F.concat(F.lit("row "), "x").alias("name"), F.spark_partition_id().alias("p")
        )
        lazy = cluster.inference(df, ["x"])
        rows = lazy.collect()
        again = lazy.agg(F.sum("double").alias("total")).collect()[0]["total"]
        other = cluster.inference(df.filter("x < 5"), columns=["x"]).collect()
        results = dict(cluster.wait(timeout=100))
        with pytest.raises(
            Exception, match=r"the cluster has to live until then; if it has failed, cluster.wait\(\) says why"
        ):
            lazy.collect()
        told = [(feed.kind, feed.number, sum(feed.rows.values()), feed.partitions) for feed in cluster.view().feeds]
        return {"schema": lazy.schema, "rows": rows, "again": again, "other": other, "results": results, "told": told}

    return once("answered", infer)


@SOMEWHERE_ELSE
def test_every_row_has_its_results_beside_all_its_columns_in_order(answered):
    count = sum(PARTITIONS)
    assert answered.schema.names == ["x", "name", "p", "double", "pair"]
    assert [(row.x, row.name, row.double, row.pair) for row in answered.rows] == [
        (x, f"row {x}", 2 * x, [x, -x]) for x in range(count)
    ]
    assert [row.p for row in answered.rows] == sorted(row.p for row in answered.rows)


@SOMEWHERE_ELSE
def test_an_inference_can_be_computed_again_and_followed_by_another(answered):
    count = sum(PARTITIONS)
    assert answered.again == count * (count - 1)
    assert [row.double for row in answered.other] == [0, 2, 4, 6, 8]


@SOMEWHERE_ELSE
def test_every_node_with_rows_on_its_host_takes_part(answered, back_end):
    # One row was sent to find out the types of the results.
    assert sum(answered.results.values()) == 2 * sum(PARTITIONS) + 5 + 1
    if back_end.name in {"local-session", "standalone"}:
        assert sum(rows > 1 for rows in answered.results.values()) > 1


@SOMEWHERE_ELSE
def test_events_count_the_answered_rows_of_each_inference(answered):
    filled = sum(rows > 0 for rows in PARTITIONS)
    assert answered.told == [("inference", 0, 2 * sum(PARTITIONS), 2 * filled), ("inference", 1, 5, 1)]


@pytest.mark.back_ends("local-session", "connect")
def test_a_function_that_fails_fails_the_query_and_the_cluster(run, frame):
    def fail_late(args, ctx):
        for number, batch in enumerate(ctx.dataset(4)):
            if number == 3:
                raise ValueError("enough")
            ctx.put_results(batch["x"])

    cluster = run(fail_late)
    lazy = cluster.inference(frame(40), schema="prediction bigint")
    told = r"FeedError: the cluster has failed: (chief|worker):0: ValueError: enough \(cluster\.wait\(\) raises it with"
    with pytest.raises(Exception, match=told):
        lazy.collect()
    with pytest.raises(NodeFailed, match="enough"):
        cluster.wait(timeout=100)
    with pytest.raises(Exception, match=told):
        lazy.collect()
    with pytest.raises(NodeFailed, match="enough"):
        cluster.inference(frame(1))


@pytest.mark.back_ends("inline-session")
def test_inline_cannot_compute_and_answer_on_one_thread(run, frame):
    with pytest.raises(ConfigError, match="inline answers on the very thread"):
        run(double).inference(frame(3))


@pytest.mark.back_ends("local-session")
def test_requests_that_cannot_be_answered_are_refused(run, frame):
    cluster = run(double)
    df = frame(3)
    with pytest.raises(ConfigError, match="there is no row to find the type of results with"):
        cluster.inference(frame(0))
    assert cluster.state == "running"
    with pytest.raises(ConfigError, match="have a column 'double' already"):
        cluster.inference(df.select("x", (df.x + 1).alias("Double")), ["x"])
    with pytest.raises(ConfigError, match=r"answer for \(x: bigint\), these rows are \(z: double\)"):
        cluster.inference(df.select(df.x.cast("double").alias("z")))
    cluster.stop()
    with pytest.raises(ClusterEnded):
        cluster.inference(df)


@pytest.mark.back_ends("local-session")
def test_a_function_that_puts_no_results_is_reported(run, frame, monkeypatch):
    monkeypatch.setattr("tfos_lab.driver.feed.inference._PROBE_NOTE_S", 0.5)

    def look(args, ctx):
        for _ in ctx.dataset(8):
            pass

    cluster = run(look)

    def stop_when_told():
        eventually(lambda: cluster.view().notes)
        cluster.stop()

    threading.Thread(target=stop_when_told).start()
    with pytest.raises((FeedError, ClusterEnded)):
        cluster.inference(frame(5))
    [note] = cluster.view().notes
    assert note.startswith(
        "inference has waited for the results of a single row for a while: see whether map_fun calls"
    )


@pytest.mark.back_ends("local-session")
def test_a_wrong_number_of_results_is_refused_by_column(run, frame):
    def put_one(args, ctx):
        for _ in ctx.dataset(8):
            ctx.put_results([1, 2, 3])

    cluster = run(put_one)
    with pytest.raises((FeedError, NodeFailed)):
        cluster.inference(frame(5))
    with pytest.raises(NodeFailed, match="put_results got 3 results for a batch of"):
        cluster.wait(timeout=100)


@pytest.mark.back_ends("local-session")
def test_vectors_go_in_as_arrays_and_stay_vectors_and_an_rdd_gives_an_rdd(run, spark):
    from pyspark.ml.linalg import Vectors

    def total(args, ctx):
        for batch in ctx.dataset(4):
            ctx.put_results(batch["v"].numpy().sum(axis=1))

    rows = [(i, Vectors.dense([i, 1.0])) for i in range(10)]
    df = spark.createDataFrame(rows, ["i", "v"])
    cluster = run(total)
    lazy = cluster.inference(df, ["v"])
    assert lazy.columns == ["i", "v", "prediction"]
    assert [(row.i, row.v, row.prediction) for row in lazy.collect()] == [(i, v, i + 1.0) for i, v in rows]
    assert cluster.inference(df.rdd, ["v"]).collect() == [i + 1.0 for i in range(10)]


@pytest.mark.back_ends("local-session")
def test_one_cluster_can_train_and_then_answer_rows(run, frame):
    def learn_and_answer(args, ctx):
        seen = sum(int(batch["x"].numpy().sum()) for batch in ctx.dataset(4))
        for batch in ctx.dataset(4):
            ctx.put_results({"sum": batch["x"] * 0 + seen})
        return seen

    cluster = run(learn_and_answer, cluster_size=2)
    cluster.train(frame(8, 8))
    sums = {row["sum"] for row in cluster.inference(frame(10, 10)).collect()}
    learnt = set(cluster.wait(timeout=100).values())
    assert sum(learnt) == sum(range(16))
    assert sums <= learnt


@pytest.mark.back_ends("local-session")
def test_inferences_that_are_lazily_joined_are_computed_at_the_same_time(run, frame):
    cluster = run(double)
    first = cluster.inference(frame(20, 20).select("x"))
    second = cluster.inference(frame(30)).withColumnRenamed("double", "again").select("x", "again")
    joined = first.select("x", "double").join(second, "x").collect()
    assert sorted((row["x"], row["double"], row["again"]) for row in joined) == [(x, 2 * x, 2 * x) for x in range(30)]


@pytest.fixture
def small_batches(spark):
    """Spark hands rows over twenty at a time."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 20)
    yield
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


@pytest.mark.back_ends("local-session")
def test_an_inference_of_an_inference_is_computed_in_one_pass(run, frame, small_batches):
    def increase(args, ctx):
        for batch in ctx.dataset(8):
            ctx.put_results({"more": batch["x"] + 1})

    cluster = run(increase)
    once = cluster.inference(frame(450, 0, 30)).select("more").withColumnRenamed("more", "x")
    twice = cluster.inference(once)
    assert [(row["x"], row["more"]) for row in twice.collect()] == [(x + 1, x + 2) for x in range(480)]


@pytest.mark.back_ends("local-session")
def test_an_rdd_gives_an_rdd_in_the_order_of_its_rows(run, spark):
    from pyspark.sql import Row

    cluster = run(double)
    rows = spark.sparkContext.parallelize(range(100), 4).map(lambda i: Row(x=99 - i))
    answers = cluster.inference(rows)
    assert answers.getNumPartitions() == 4
    assert [row["double"] for row in answers.collect()] == [2 * (99 - i) for i in range(100)]
    assert answers.map(lambda row: row["double"]).sum() == 99 * 100


@pytest.mark.back_ends("local-session")
def test_results_of_types_that_spark_lacks_become_wider_ones(run, frame):
    def infer(args, ctx):
        import tensorflow as tf

        for batch in ctx.dataset(8):
            x = batch["x"]
            ctx.put_results(
                {"half": tf.cast(x, tf.bfloat16), "pixel": tf.cast(x, tf.uint8), "big": tf.cast(x, "uint64")}
            )

    cluster = run(infer, cluster_size=1)
    scored = cluster.inference(frame(5))
    assert scored.dtypes[-3:] == [("half", "float"), ("pixel", "smallint"), ("big", "bigint")]
    assert [tuple(row)[-3:] for row in scored.collect()] == [(float(i), i, i) for i in range(5)]


@pytest.mark.back_ends("local-session")
def test_results_that_change_their_type_are_reported(run, frame):
    def infer(args, ctx):
        for batch in ctx.dataset(8):
            x = batch["x"].numpy()
            ctx.put_results({"x2" if x[0] < 16 else "other": x * 2})

    cluster = run(infer, cluster_size=1)
    with pytest.raises(
        Exception, match=r"put_results gave \(x2: int64\) for the first rows and \(other: int64\) for later"
    ):
        cluster.inference(frame(50), ["x"]).collect()
