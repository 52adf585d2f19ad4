"""Rows from a DataFrame to the nodes: first epochs compared with an empty `mapInArrow`, later epochs with tf.data.

Both sides are warm when the clock starts: Spark's Python workers have run the job before, and a feed of a few rows has
started TensorFlow and the pipelines of the nodes. Later epochs and passes over the rows in memory take turns, and their
medians count: a pass takes only some 50 ms, and begins with setting up its pipeline.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tfos_lab
from benchmarks.measure import Row, median, seconds_of
from benchmarks.sessions import local_session
from tfos_lab.data.prepare import prepare

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROUNDS = 5
# As many as MNIST has for training.
_ROWS = 60_000
_PIXELS = 784
_BATCH = 128
_WARMING_ROWS = 1_000
# Until what has just started is idle again.
_PAUSE_S = 0.5
_PASSES = 15
_NARROW_ROWS = 10_000_000


def measure() -> Iterator[Row]:
    """Take turns, so that changes of the machine's speed affect both sides."""
    with tempfile.TemporaryDirectory() as folder, local_session() as spark:
        for name, rows, frame in _frames(spark, folder):
            yield from _first_and_later_epochs(name, rows, frame)
        yield _narrow(spark)


def _frames(spark: SparkSession, folder: str) -> Iterator[tuple[str, int, DataFrame]]:
    """Yield the same rows, as large and as many as MNIST's, in the forms that users have them in.

    Spark needs so little time for MNIST as bytes that the fixed costs of a job matter: these are fed five-fold, too.
    """
    from pyspark.ml.functions import array_to_vector

    pixels = np.random.default_rng(0).integers(0, 256, (_ROWS, _PIXELS))
    for name, kind in (("int array", pa.int32()), ("float array", pa.float32())):
        column = pa.FixedSizeListArray.from_arrays(pa.array(pixels.ravel()).cast(kind), _PIXELS).cast(pa.list_(kind))
        pq.write_table(pa.table({"x": column}), f"{folder}/{name}.parquet", row_group_size=5_000)
        yield name, _ROWS, spark.read.parquet(f"{folder}/{name}.parquet").repartition(4).cache()
    rows = pixels.astype(np.uint8)
    pq.write_table(pa.table({"x": pa.array([row.tobytes() for row in rows])}), f"{folder}/bytes.parquet")
    once = f"{folder}/bytes.parquet"
    yield "bytes", _ROWS, spark.read.parquet(once).repartition(4).cache()
    yield f"bytes, {5 * _ROWS:,} rows", 5 * _ROWS, spark.read.parquet(*[once] * 5).repartition(4).cache()
    floats = spark.read.parquet(f"{folder}/float array.parquet")
    yield "vector", _ROWS, floats.select(array_to_vector("x").alias("x")).repartition(4).cache()


def _first_and_later_epochs(name: str, rows: int, frame: DataFrame) -> Iterator[Row]:
    assert frame.count() == rows  # fills the cache, so that the transfer is measured and not the source
    _do_nothing(frame)
    _feed(frame, name)
    nothing, stored, first, later, memory = [], [], [], [], []
    for _ in range(_ROUNDS):
        nothing.append(rows / seconds_of(lambda: _do_nothing(frame)))
        stored.append(rows / _feed_sleepers(frame))
        result = _feed(frame, name)
        first.append(rows / result["first_s"])
        later.append(result["later_rows_s"])
        memory.append(result["memory_rows_s"])
    frame.unpersist()
    ours, theirs = median(stored), median(nothing)
    yield Row(f"{name}: rows stored on 2 nodes", "rows/s", ours, theirs, "≥ 0.9 ×", ours >= 0.9 * theirs, _ROUNDS)
    ours = median(first)
    yield Row(f"{name}: first epoch, read meanwhile", "rows/s", ours, theirs, "≥ 0.9 ×", ours >= 0.9 * theirs, _ROUNDS)
    ours, theirs = median(later), median(memory)
    yield Row(
        f"{name}: later epochs (tf.data in memory)", "rows/s", ours, theirs, "≥ 0.9 ×", ours >= 0.9 * theirs, _ROUNDS
    )


def _do_nothing(frame: DataFrame) -> None:
    """Send all rows through Python and drop them: a `mapInArrow` that returns its input."""
    forms = prepare(frame)
    forms.mapInArrow(lambda batches: batches, forms.schema).write.format("noop").mode("overwrite").save()


def _feed(frame: DataFrame, name: str) -> dict[str, float]:
    """Feed two nodes and let them read; the first epoch counts until the last row has been read."""
    with tfos_lab.run(read, name, cluster_size=2, master_node=None) as cluster:
        warm_up(cluster, frame)
        started = time.time()
        cluster.train(frame, epochs=2 + _PASSES)
        results = cluster.wait()
    return {
        "first_s": max(result["first_end"] for result in results.values()) - started,
        "later_rows_s": sum(result["later_rows_s"] for result in results.values()),
        "memory_rows_s": sum(result["memory_rows_s"] for result in results.values()),
    }


def warm_up(cluster: tfos_lab.Cluster, frame: DataFrame) -> None:
    """Feed a few rows, and wait until all nodes report that they have read them and Java has compiled what it ran."""
    cluster.train(frame.limit(_WARMING_ROWS))
    while len(cluster.reports_after()[0]) < len(cluster.nodes) and not cluster.ended:
        time.sleep(0.01)
    time.sleep(_PAUSE_S)


def _feed_sleepers(frame: DataFrame) -> float:
    """Return how long it takes to store the rows on two nodes that are idle meanwhile."""
    with tfos_lab.run(sleep, cluster_size=2, master_node=None) as cluster:
        cluster.train(frame.limit(_WARMING_ROWS))
        time.sleep(_PAUSE_S)
        return seconds_of(lambda: cluster.train(frame))


def sleep(_args: object, ctx: Any) -> None:
    """Take no rows."""
    ctx.wait_for_training(600)


def read(name: str, ctx: Any) -> dict[str, float]:
    """Read two epochs, then later ones in turns with tf.data over the same rows in memory, as a loop sees them."""
    import time
    from statistics import median

    import numpy as np
    import tensorflow as tf

    def seconds_of_pass(pipeline: tf.data.Dataset) -> float:
        started = time.perf_counter()
        for batch in pipeline:
            batch["x"].shape[0]
        return time.perf_counter() - started

    seconds_of_pass(ctx.dataset(_BATCH))
    ctx.report(warm=1)
    dataset = ctx.dataset(_BATCH)
    seconds_of_pass(dataset)
    first_end = time.time()
    kept = [batch["x"] for batch in dataset]
    if name.startswith("bytes"):
        everything = np.concatenate([batch.numpy() for batch in kept])
    else:
        everything = tf.concat(kept, axis=0).numpy()
    del kept
    # The same as a feed's batches: the column and the weights.
    source = {"x": everything, "sample_weight": np.ones(len(everything), np.float32)}
    # As in the feed's own pipeline: with the tuner, iterators end late on busy cores.
    options = tf.data.Options()
    options.autotune.enabled = False
    in_memory = tf.data.Dataset.from_tensor_slices(source).batch(_BATCH).prefetch(2).with_options(options)
    seconds_of_pass(in_memory)
    turns = [(seconds_of_pass(dataset), seconds_of_pass(in_memory)) for _ in range(_PASSES)]
    later_s, memory_s = (median(times) for times in zip(*turns, strict=True))
    return {
        "first_end": first_end,
        "later_rows_s": len(everything) / later_s,
        "memory_rows_s": len(everything) / memory_s,
    }


def _narrow(spark: SparkSession) -> Row:
    """Feed many rows of two numbers with a spool that holds a fraction of them, and watch the nodes' memory."""
    rows = spark.range(_NARROW_ROWS, numPartitions=64).selectExpr("id as x", "cast(id as float) as y")
    with tfos_lab.run(count, cluster_size=2, master_node=None) as cluster:
        cluster.wait_until_running()
        started = time.perf_counter()
        cluster.train(rows, spool_bytes=32 << 20)
        results = cluster.wait()
        seconds = time.perf_counter() - started
    fed = sum(rows for rows, _ in results.values())
    peak_mb = max(peak for _, peak in results.values())
    what = f"10^7 narrow rows, spool of 32 MB ({_NARROW_ROWS / seconds:,.0f} rows/s): memory that grew on a node"
    return Row(what, "MB", peak_mb, None, "≤ 500 MB, all rows", peak_mb <= 500 and fed == _NARROW_ROWS, 1)


def count(_args: object, ctx: Any) -> tuple[int, float]:
    """Count the rows; return their number, and by how many MB this process grew."""
    import resource

    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = sum(int((batch["sample_weight"].numpy() != 0).sum()) for batch in ctx.dataset(4096))
    return rows, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1024
