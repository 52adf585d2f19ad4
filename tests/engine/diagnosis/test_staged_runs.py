"""Six staged runs of real nodes: each gets the verdict that fits, and one that tells nothing gets none."""

from __future__ import annotations

import contextlib
import re
import threading
import time

import pytest

from tests.support.clusters import running_clusters
from tests.support.quick import QUICK_ENV
from tfos_lab.engine import runtime
from tfos_lab.errors import TfosError

# On a busy machine nodes are slow to start, and need some seconds for figures that tell something.
PATIENCE_S = 90.0


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """``tfos_lab.run`` for two nodes on this machine."""
    with pytest.MonkeyPatch.context() as patch, running_clusters({"local": "processes", "grace_s": 0.5}) as start:
        patch.setenv("TFOS_LAB_RUNS", str(tmp_path_factory.mktemp("runs")))
        yield start


@pytest.fixture(autouse=True)
def record_in_any_case(monkeypatch):
    """Have `wait` and `stop` wait for the record, however slow the disk is."""
    monkeypatch.setattr(runtime, "RECORD_TIMEOUT_S", PATIENCE_S)


def report_often():
    """Have this node's process report more often, and forget sooner; called on nodes."""
    from tfos_lab.node.activity import sampler

    sampler.REPORT_S = 0.2


def wait_for(cluster, kind, *, says=""):
    """Wait until the diagnosis is of a kind and its verdict matches a pattern, and return it.

    Figures are of the last seconds: where one stage follows another, they are of both at first, and of what one node
    does between them, such as to end an iterator of TensorFlow.
    """
    deadline = time.monotonic() + PATIENCE_S
    seen = []
    while time.monotonic() < deadline and not cluster.ended:
        diagnosis = cluster.diagnose()
        if diagnosis.kind == kind and re.search(says, diagnosis.verdict):
            assert diagnosis.verdict == cluster.view().verdict or kind != "unknown"
            return diagnosis
        if not seen or seen[-1] != str(diagnosis):
            seen.append(str(diagnosis))
        time.sleep(0.1)
    raise AssertionError(f"{kind} was not seen, but {seen}; figures: {cluster.diagnose().nodes}")


# ---- with TensorFlow ------------------------------------------------------------------------------------------------

STAGES = ("healthy", "tf.data", "compute", "straggler", "peers")
SAID = {"straggler": r"^worker:0 is .*which wait for it .* in Python \(train_in_stages, "}


def train_in_stages(folder, ctx):
    """Train in lock-step, in one way after another: a stage ends when the test has written its file."""
    import pathlib
    import time

    import tensorflow as tf

    report_often()
    strategy = ctx.strategy()
    matrix = tf.ones((500, 500))

    def slowly(number):
        def sleep(number):
            time.sleep(0.1)
            return number

        return tf.ensure_shape(tf.numpy_function(sleep, [number], tf.int64), ())

    @tf.function
    def step(iterator, products, over):
        number = next(iterator)
        product = matrix * tf.cast(number % 2, tf.float32)
        for _ in tf.range(products):
            product = tf.linalg.matmul(product, matrix) / 500.0

        def sum_up(product, over):
            together = tf.distribute.get_replica_context()
            return together.all_reduce("sum", over + 0.0 * tf.reduce_sum(product))

        return strategy.run(sum_up, args=(product, over))

    for stage in STAGES:
        dataset = tf.data.Dataset.range(10**9)
        batches = iter(dataset.map(slowly) if stage == "tf.data" else dataset)
        products, over, taken = tf.constant({"compute": 60, "healthy": 5}.get(stage, 1)), 0.0, 0
        # All nodes end a stage with the same step.
        while not strategy.reduce("MEAN", step(batches, products, tf.constant(over)), axis=None):
            over = float(pathlib.Path(folder, stage).exists())
            taken += 1
            if is_late(stage, taken, ctx.rank):
                time.sleep(0.1)


def is_late(stage, taken, rank):
    """Whether a node is late for a step: a straggler for each one, else each node for every second one."""
    return (stage == "straggler" and rank == 1) or (stage == "peers" and taken % 2 == rank)


@pytest.mark.tensorflow
def test_what_limits_training_is_told_stage_by_stage(run, tmp_path):
    cluster = run(train_in_stages, str(tmp_path))
    told = {}
    for stage in STAGES:
        told[stage] = wait_for(cluster, stage, says=SAID.get(stage, "")).verdict
        (tmp_path / stage).touch()
    cluster.wait(timeout_s=PATIENCE_S)
    assert told["healthy"].startswith("healthy: ")
    assert told["tf.data"].startswith("waits for its tf.data pipeline ")
    assert told["compute"].startswith("compute bound: ")
    assert told["peers"].startswith("the nodes wait for one another ")


# ---- without ---------------------------------------------------------------------------------------------------------


def train_in_python(folder, ctx):
    """Take no step at first, and then slow ones."""
    import pathlib
    import time

    report_often()
    while not pathlib.Path(folder, "steps").exists():
        time.sleep(0.05)
    step = 0
    while not pathlib.Path(folder, "end").exists():
        time.sleep(0.5)  # long, so that a busy machine delays no node by as much as a straggler has
        step += 1
        ctx.report(step, total_steps=1_000_000)


def test_slow_steps_in_python_are_told_and_a_function_without_steps_gets_no_verdict(run, tmp_path):
    cluster = run(train_in_python, str(tmp_path), env=QUICK_ENV)
    deadline = time.monotonic() + PATIENCE_S
    while len(cluster.diagnose().nodes) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    silent = cluster.diagnose()
    assert (silent.kind, silent.verdict, len(silent.nodes)) == ("unknown", "", 2)
    (tmp_path / "steps").touch()
    slow = wait_for(cluster, "python")
    assert "a step takes" in slow.verdict
    assert "train_in_python" in slow.verdict
    assert all(activity.last_sign.startswith("step ") for activity in slow.nodes.values())
    assert 0 < slow.progress < 0.01
    (tmp_path / "end").touch()
    cluster.wait(timeout_s=PATIENCE_S)
    assert cluster.diagnose().kind == "python"
    assert cluster.diagnose().seconds_left is None
    from tfos_lab.engine.record.format import decode

    record = decode((cluster.run_dir / "run.json").read_bytes())
    assert record.verdict == cluster.diagnose().verdict
    assert all(node.activity.step > 0 for node in record.nodes)


def take_rows(args, ctx):
    """Read what comes."""
    report_often()
    feed = ctx.data_feed()
    while not feed.should_stop():
        feed.next_batch(10)


def slow_rows(spark):
    """Rows of which Spark makes 50 in 0.2 s, in many small partitions."""

    def slowly(batches):
        import time

        for batch in batches:
            time.sleep(0.2)
            yield batch

    return spark.range(0, 20_000, numPartitions=400).mapInPandas(slowly, "id long")


def train_until_stopped(cluster, rows):
    """Feed rows to a cluster that is stopped meanwhile."""
    with contextlib.suppress(TfosError):
        cluster.train(rows)


def test_a_slow_spark_is_told(run, spark):
    cluster = run(take_rows, env=QUICK_ENV, spark=spark)
    rows = slow_rows(spark)
    feeding = threading.Thread(target=train_until_stopped, args=(cluster, rows))
    feeding.start()
    verdict = wait_for(cluster, "rows").verdict
    assert verdict.startswith("waits for rows ")
    assert "Spark delivers " in verdict
    cluster.stop(grace_s=0.0)
    feeding.join(PATIENCE_S)
    assert not feeding.is_alive()
