"""An epoch that is fed while it trains, compared with the longer of the two alone.

Measured with steps that compute, which on a small machine compete with Spark for the same cores, and with steps that
only wait, as the processor does while an accelerator trains: an epoch of about 1.5 s, and one of about 4 s.
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
from benchmarks.feed import sleep, warm_up
from benchmarks.measure import Row, median, seconds_of
from benchmarks.sessions import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROUNDS = 3
_ROWS = 60_000
_PIXELS = 784
_BATCH = 128
# Rows count once their whole partition has arrived: with many partitions, training begins early.
_PARTITIONS = 16
# The seconds that a step waits; None if it computes.
_KINDS = {
    "steps compute on the same cores": None,
    "steps wait 6 ms, as for an accelerator": 0.006,
    "steps wait 15 ms, as for an accelerator": 0.015,
}


def measure() -> Iterator[Row]:
    """Take turns, so that changes of the machine's speed affect all."""
    with tempfile.TemporaryDirectory() as folder, local_session() as spark:
        pixels = pa.array(np.random.default_rng(0).random(_ROWS * _PIXELS, np.float32))
        column = pa.FixedSizeListArray.from_arrays(pixels, _PIXELS).cast(pa.list_(pa.float32()))
        pq.write_table(pa.table({"x": column}), f"{folder}/rows.parquet", row_group_size=5_000)
        frame = spark.read.parquet(f"{folder}/rows.parquet").repartition(_PARTITIONS).cache()
        frame.count()
        _feed_alone(frame)
        for kind, wait_s in _KINDS.items():
            both, longer = [], []
            for _ in range(_ROUNDS):
                feed_s = _feed_alone(frame)
                both_s, train_s = _feed_and_train(frame, wait_s)
                both.append(both_s)
                longer.append(max(feed_s, train_s))
            ours, theirs = median(both), median(longer)
            what = f"an epoch fed while it trains, {kind} (the longer of both alone)"
            yield Row(what, "s", ours, theirs, "≤ 1.1 ×", ours <= 1.1 * theirs, _ROUNDS)


def _feed_alone(frame: DataFrame) -> float:
    """Feed nodes that do nothing."""
    with tfos_lab.run(sleep, cluster_size=2, master_node=None) as cluster:
        cluster.wait_until_running()
        return seconds_of(lambda: cluster.train(frame))


def _feed_and_train(frame: DataFrame, wait_s: float | None) -> tuple[float, float]:
    """Return how long the first epoch takes from the call to the last step, and an epoch from the spool."""
    with tfos_lab.run(train, wait_s, cluster_size=2, master_node=None) as cluster:
        warm_up(cluster, frame)
        started = time.time()
        cluster.train(frame, epochs=2)
        results = cluster.wait().values()
    return max(first_end for first_end, _ in results) - started, max(alone_s for _, alone_s in results)


def train(wait_s: float | None, ctx: Any) -> tuple[float, float]:
    """Train for three epochs: a short one, one that is fed meanwhile, and one from the spool."""
    import time

    import tensorflow as tf

    weights = [
        tf.Variable(tf.random.stateless_normal(shape, (1, 2), stddev=0.05))
        for shape in ((_PIXELS, 512), (512, 512), (512, 10))
    ]

    @tf.function(autograph=False)
    def compute(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(tf.nn.relu(x @ weights[0]) @ weights[1]) @ weights[2]
            loss = tf.reduce_mean(hidden**2)
        for variable, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            variable.assign_sub(0.01 * gradient)

    def epoch(dataset: tf.data.Dataset) -> float:
        started = time.perf_counter()
        for batch in dataset:
            if wait_s is None:
                compute(batch["x"])
            else:
                time.sleep(wait_s)
        weights[0].numpy()
        return time.perf_counter() - started

    epoch(ctx.dataset(_BATCH))
    ctx.report(warm=1)
    dataset = ctx.dataset(_BATCH)
    epoch(dataset)
    return time.time(), epoch(dataset)
