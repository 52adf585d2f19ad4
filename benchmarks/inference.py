"""Rows answered by a cluster's nodes, beside Spark's own `predict_batch_udf` with the same model and batch size."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tfos_lab
from benchmarks.measure import Row, median, seconds_of
from benchmarks.sessions import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROUNDS = 3
_ROWS = 40_000
_PIXELS = 784
_BATCH = 256


def measure() -> Iterator[Row]:
    """Take turns; both are warm: their processes have imported TensorFlow and built the model."""
    rng = np.random.default_rng(0)
    weights = [
        (0.05 * rng.standard_normal(shape)).astype(np.float32) for shape in ((_PIXELS, 128), (128,), (128, 10), (10,))
    ]
    with tempfile.TemporaryDirectory() as folder, local_session() as spark:
        pixels = pa.array(rng.random(_ROWS * _PIXELS, np.float32))
        column = pa.FixedSizeListArray.from_arrays(pixels, _PIXELS).cast(pa.list_(pa.float32()))
        pq.write_table(pa.table({"x": column}), f"{folder}/rows.parquet", row_group_size=5_000)
        frame = spark.read.parquet(f"{folder}/rows.parquet").repartition(4).cache()
        frame.count()
        with tfos_lab.run(answer, weights, cluster_size=2, master_node=None) as cluster:
            ours = cluster.inference(frame, schema="prediction array<float>")
            theirs = _by_udf(frame, weights)
            yield _compare("inference by 2 nodes (predict_batch_udf)", ours, theirs)
            cluster.wait()


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
    """Answer for all rows."""
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
