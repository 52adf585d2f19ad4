"""Two workers that train in lock-step: through a cluster, and as two processes started by hand with TF_CONFIG."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import tfos_lab
from benchmarks.by_hand import run_cluster
from benchmarks.measure import Row, median

_ROUNDS = 3


def measure() -> Iterator[Row]:
    """Take turns, so that a machine whose speed drifts drifts for both."""
    code = f"{inspect.getsource(train)}\nprint(train(None, None))"
    ours, by_hand = [], []
    for _ in range(_ROUNDS):
        results = tfos_lab.run(train, cluster_size=2, master_node=None, local="processes").wait()
        ours.append(min(results.values()))
        by_hand.append(min(float(text.split()[-1]) for text in run_cluster(code, 2)))
    met = median(ours) >= 0.97 * median(by_hand)
    yield Row("2-worker training", "steps/s", median(ours), median(by_hand), "≥ 0.97 ×", met, _ROUNDS)


def train(_args: object, _ctx: object) -> float:
    """Train a small network on random rows in a custom loop; returns steps per second after a warm-up."""
    import time

    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        weights = [
            tf.Variable(tf.random.stateless_normal((rows, columns), (1, 2), stddev=0.05))
            for rows, columns in ((784, 256), (256, 256), (256, 10))
        ]
    x = tf.random.stateless_uniform((256, 784), (3, 4))
    y = tf.random.stateless_uniform((256,), (5, 6), maxval=10, dtype=tf.int32)

    def step(x: tf.Tensor, y: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(tf.nn.relu(x @ weights[0]) @ weights[1]) @ weights[2]
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, hidden))
        gradients = tape.gradient(loss, weights)
        context = tf.distribute.get_replica_context()
        for variable, gradient in zip(weights, context.all_reduce("mean", gradients), strict=True):
            variable.assign_sub(0.01 * gradient)

    compiled = tf.function(lambda: strategy.run(step, args=(x, y)), autograph=False)
    for _ in range(20):
        compiled()
    started = time.perf_counter()
    for _ in range(400):
        compiled()
    weights[0].numpy()
    return 400 / (time.perf_counter() - started)
