"""Inference by a cluster's nodes, compared with Spark's own `predict_batch_udf` for the same model and batch size.

Also the memory that is used for many rows, compared with few.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import tfos_lab
from benchmarks.measure import Row, median, seconds_of
from benchmarks.memory import family, pss
from benchmarks.sessions import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROUNDS = 5
_ROWS = 40_000
_PIXELS = 784
_BATCH = 256
_SIZES = _FEW, _MORE, _MANY = 10**5, 10**6, 10**7
_SAMPLE_S = 0.1
_MIB = 2**20


def measure() -> Iterator[Row]:
    """Take turns; both sides are warm: their processes have imported TensorFlow and built the model.

    Each side has its own Python workers of Spark, as in a session that uses only one of them: after every task a worker
    collects garbage, which takes long in a worker that has imported TensorFlow.
    """
    rng = np.random.default_rng(0)
    weights = [
        (0.05 * rng.standard_normal(shape)).astype(np.float32) for shape in ((_PIXELS, 128), (128,), (128, 10), (10,))
    ]
    with tempfile.TemporaryDirectory() as folder, local_session() as spark:
        yield _memory(spark)
        pixels = pa.array(rng.random(_ROWS * _PIXELS, np.float32))
        column = pa.FixedSizeListArray.from_arrays(pixels, _PIXELS).cast(pa.list_(pa.float32()))
        pq.write_table(pa.table({"x": column}), f"{folder}/rows.parquet", row_group_size=5_000)
        frame = spark.read.parquet(f"{folder}/rows.parquet").repartition(4).cache()
        frame.count()
        with tfos_lab.run(answer, weights, cluster_size=2, master_node=None) as cluster:
            ours = cluster.inference(frame, schema="prediction array<float>")
            with _other_workers(spark):
                theirs = _by_udf(frame, weights)
            yield _compare("inference by 2 nodes (predict_batch_udf)", ours, theirs)
            cluster.wait()


@contextlib.contextmanager
def _other_workers(spark: SparkSession) -> Iterator[None]:
    """Have functions that are created in this block run in other Python workers."""
    environment = spark.sparkContext.environment
    environment["TFOS_LAB_BENCH_WORKERS"] = "other"
    yield
    del environment["TFOS_LAB_BENCH_WORKERS"]


def _compare(what: str, ours: DataFrame, theirs: DataFrame) -> Row:
    for frame in (ours, theirs):
        _use(frame)
    rates: list[list[float]] = [[], []]
    for _ in range(_ROUNDS):
        for frame, rate in zip((ours, theirs), rates, strict=True):
            rate.append(_ROWS / seconds_of(lambda frame=frame: _use(frame)))
    mine, udf = median(rates[0]), median(rates[1])
    return Row(what, "rows/s", mine, udf, "≥ 0.8 ×", mine >= 0.8 * udf, _ROUNDS)


def _use(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def answer(weights: list[np.ndarray], ctx: Any) -> None:
    """Put results for all rows."""
    import tensorflow as tf

    @tf.function(autograph=False)
    def model(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax(tf.nn.relu(x @ weights[0] + weights[1]) @ weights[2] + weights[3])

    for batch in ctx.dataset(_BATCH):
        ctx.put_results(model(batch["x"]))


def _by_udf(frame: DataFrame, weights: list[np.ndarray]) -> DataFrame:
    from pyspark.ml.functions import predict_batch_udf
    from pyspark.sql.types import ArrayType, FloatType

    def make_predict() -> Callable[[np.ndarray], np.ndarray]:
        import tensorflow as tf

        @tf.function(autograph=False, reduce_retracing=True)
        def model(x: tf.Tensor) -> tf.Tensor:
            return tf.nn.softmax(tf.nn.relu(x @ weights[0] + weights[1]) @ weights[2] + weights[3])

        return lambda x: model(tf.constant(x, tf.float32)).numpy()

    predict = predict_batch_udf(
        make_predict, return_type=ArrayType(FloatType()), batch_size=_BATCH, input_tensor_shapes=[[_PIXELS]]
    )
    return frame.withColumn("prediction", predict("x"))


def _memory(spark: SparkSession) -> Row:
    """Compare the peak memory of nodes and Spark's Python workers for few rows and for many."""
    with tfos_lab.run(double, cluster_size=2, master_node=None) as cluster:
        frames = {rows: spark.range(rows, numPartitions=4).selectExpr("cast(id as float) as x") for rows in _SIZES}
        for frame in (frames[_FEW], frames[_FEW]):
            _use(cluster.inference(frame, schema="double float"))
        peaks = {rows: _peak_mib(cluster, frames[rows]) for rows in _SIZES}
        cluster.wait()
    what = f"inference of 10^7 rows (10^5; 10^6: {peaks[_MORE]:,.0f} MiB): nodes and Python workers hold at most"
    return Row(what, "MiB", peaks[_MANY], peaks[_FEW], "≤ 1.2 ×", peaks[_MANY] <= 1.2 * peaks[_FEW], 1)


def _peak_mib(cluster: tfos_lab.Cluster, frame: DataFrame) -> float:
    """Return the largest sum of proportional set sizes during the inference."""
    workers = [
        process
        for process in psutil.Process().children(recursive=True)
        if "pyspark.daemon" in (process.as_dict(["cmdline"])["cmdline"] or ())
    ]
    processes = [*family(cluster), *workers]
    done = threading.Event()
    peak = 0.0

    def watch() -> None:
        nonlocal peak
        while not done.wait(_SAMPLE_S):
            peak = max(peak, sum(pss(process) for process in processes))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        _use(cluster.inference(frame, schema="double float"))
    finally:
        done.set()
        watcher.join()
    return peak / _MIB


def double(_args: object, ctx: Any) -> None:
    """Put results for all rows."""
    for batch in ctx.dataset(4096):
        ctx.put_results({"double": 2 * batch["x"]})
