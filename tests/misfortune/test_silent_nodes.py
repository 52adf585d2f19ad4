"""The node that stands still is the first cause: in Keras' `fit`, in the middle of a feed, on an executor."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.clusters import running_clusters
from tests.support.quick import QUICK_ENV
from tfos_lab.errors import FeedTimeout, NodeFailed

# Small enough that rows have to be taken before more can be stored.
SMALL_BYTES = 200_000
PATIENCE_S = 120.0


@pytest.fixture
def run(request, monkeypatch, tmp_path):
    """``tfos_lab.run`` for two nodes: on the executors of a test's ``spark``, if they are no local ones, or here."""
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))
    is_far = "spark" in request.fixturenames and request.getfixturevalue("spark_mode") != "local"
    where = {"spark": request.getfixturevalue("spark"), "local": "false"} if is_far else {"local": "processes"}
    with running_clusters({**where, "env": QUICK_ENV, "grace_s": 0.2}) as start:
        yield start


class Stopped:
    """Stops the process of a node with SIGSTOP for as long as the block runs."""

    def __init__(self, cluster, node):
        self.pid = next(view.pid for view in cluster.nodes if view.node == node)

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)

    def __exit__(self, *exc):
        with contextlib.suppress(ProcessLookupError):  # its run has failed, and it was killed
            os.kill(self.pid, signal.SIGCONT)


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return value


def fit(args, ctx):
    """Train for as long as it may take."""
    import numpy as np
    import tensorflow as tf

    class Slow(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            time.sleep(0.05)

    with ctx.strategy().scope():
        model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    rows = np.zeros((100_000, 4), "float32")
    dataset = tf.data.Dataset.from_tensor_slices((rows, rows[:, :1])).batch(8)
    model.fit(dataset, verbose=0, callbacks=[Slow()])


@pytest.mark.tensorflow
def test_in_keras_fit_a_stopped_worker_is_the_cause_and_not_the_healthy_chief(run):
    cluster = run(fit, env={})
    wait_for(lambda: all(view.activity and (view.activity.step or 0) > 3 for view in cluster.nodes))
    with Stopped(cluster, "worker:0"), pytest.raises(NodeFailed) as failed:
        cluster.wait(timeout_s=PATIENCE_S)
    error = failed.value
    assert (error.node, error.kind) == ("worker:0", "Hung")
    assert error.message.endswith("its process is stopped (SIGSTOP)")
    assert "is stopped (SIGSTOP, or a debugger)" in error.traceback
    assert list(error.consequences) == ["chief:0"]
    assert "chief:0 then failed too, because worker:0 hung" in str(error)


def many_rows(spark):
    return spark.range(0, 20_000, 1, 40).selectExpr("id as x", "cast(repeat('x', 100) as binary) as filler")


def test_a_feed_whose_node_is_stopped_names_it_with_the_rows_that_it_has_taken(run, spark):
    def read(args, ctx):
        feed = ctx.data_feed()
        while not feed.should_stop():
            feed.next_batch(100)
            time.sleep(0.01)

    cluster = run(read)
    first = many_rows(spark).limit(100)
    cluster.train(first)  # Spark has started its Python by then
    wait_for(lambda: sum(view.rows for view in cluster.nodes) == 100)
    taken = next(view.rows for view in cluster.nodes if view.node == "worker:0")
    with Stopped(cluster, "worker:0"):
        with pytest.raises(FeedTimeout) as failed:
            cluster.train(many_rows(spark), timeout_s=10.0, spool_bytes=SMALL_BYTES)
        text = str(failed.value)
        assert "nothing has moved for 10 s" in text
        assert f"worker:0 (has taken {taken})" in text
        assert "worker:0 takes none: its process is stopped (SIGSTOP)" in text
        with pytest.raises(NodeFailed) as failed:
            cluster.wait(timeout_s=PATIENCE_S)
    assert (failed.value.node, failed.value.kind) == ("worker:0", "FeedTimeout")


def ignore_rows(args, ctx):
    """Read no row on the worker."""
    if not ctx.is_chief:
        wait_in_user_code()
    feed = ctx.data_feed()
    while not feed.should_stop():
        feed.next_batch(10)


def wait_in_user_code():
    import threading

    threading.Event().wait()


def test_a_worker_that_never_reads_its_rows_is_warned_of_and_then_fails_the_run(run, tmp_path):
    pq.write_table(pa.table({"x": list(range(100))}), tmp_path / "rows.parquet")
    cluster = run(ignore_rows, hang_timeout_s=30.0)
    cluster.train(str(tmp_path / "rows.parquet"), timeout_s=5.0)
    with pytest.raises(NodeFailed) as failed:
        cluster.wait(timeout_s=PATIENCE_S)
    error = failed.value
    assert (error.node, error.kind) == ("worker:0", "FeedTimeout")
    assert error.message.startswith("it has taken none of its 50 rows for ")
    assert ", in wait_in_user_code" in error.message
    assert "--- stacks of worker:0 ---" in str(error)
    [note] = [note for note in cluster.view().notes if not note.startswith("chief:0 ")]  # which may be slow to begin
    assert note.startswith("worker:0 has taken none of its 50 rows, which had all come ")


def hang_at_step_3(args, ctx):
    """Hang in the user's code on the worker; the chief goes on."""
    import itertools
    import time

    for step in itertools.count(1):
        ctx.report(step=step)
        if step == 3 and not ctx.is_chief:
            wait_in_user_code()
        time.sleep(0.1)


@pytest.mark.parametrize("spark_mode", ["standalone"])
def test_a_node_that_hangs_on_an_executor_fails_the_run_with_its_stacks(run, spark):
    cluster = run(hang_at_step_3, hang_timeout_s=5.0, on_hang="fail")
    with pytest.raises(NodeFailed) as failed:
        cluster.wait(timeout_s=PATIENCE_S)
    error = failed.value
    assert (error.node, error.kind) == ("worker:0", "Hung")
    assert "; last: step 3; it is at " in error.message
    assert ", in wait_in_user_code" in error.message
    assert "threading.Event().wait()" in error.traceback
