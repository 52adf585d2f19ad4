"""Python workers of Spark's that are killed: those that work on rows, and those that hold the nodes' slots."""

from __future__ import annotations

import contextlib
import re

import psutil
import pytest

from tests.misfortune.conftest import failure_of, wait_forever
from tfos_lab.errors import NodeFailed, PythonWorkerKilled

pytestmark = pytest.mark.leaves_nothing

PLACE = r"127\.0\.0\.1 \(executor \d+\)"
ADVICE = r": as a rule its host or container has run out of memory .*spark\.executor\.memoryOverhead"


def deadly(spark):
    """Rows of which some kill the Python worker that works on them, as the kernel does where memory is short."""

    def work(batches):
        import os
        import signal

        for batch in batches:
            if 33 in batch.column("x").to_pylist():
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    return spark.range(0, 40, 1, 4).selectExpr("id as x").mapInArrow(work, "x long")


@pytest.mark.parametrize("spark_mode", ["standalone"])
def test_a_python_worker_that_is_killed_in_a_feed_is_told_by_its_place_and_the_likely_cause(run, spark):
    def read(args, ctx):
        feed = ctx.data_feed()
        while not feed.should_stop():
            feed.next_batch(10)

    cluster = run(read)
    with pytest.raises(
        PythonWorkerKilled, match=f"^a Python worker process of Spark's on {PLACE} was killed"
    ) as failed:
        cluster.train(deadly(spark))
    assert re.search(ADVICE, str(failed.value))
    assert failed.value.times == 4
    assert cluster.state == "failed"
    with pytest.raises(NodeFailed, match="a Python worker process of Spark's"):
        cluster.wait(timeout_s=60)
    assert spark.range(10).count() == 10


def python_workers(standalone_cluster):
    """The Python workers of all executors: forks of Spark's daemons."""
    for worker in standalone_cluster.workers:
        for process in psutil.Process(worker.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if all("pyspark.daemon" in " ".join(one.cmdline()) for one in (process, process.parent())):
                    yield process


@pytest.mark.parametrize("spark_mode", ["standalone"])
def test_killed_python_workers_that_hold_the_nodes_slots_are_told_so(run, spark, standalone_cluster):
    cluster = run(wait_forever)
    for process in python_workers(standalone_cluster):
        process.kill()
    error = failure_of(cluster)
    assert "a Python worker process of Spark's was killed or has crashed: as a rule its host" in str(error)
    assert error.kind == "Lost"
    assert error.node in ("chief:0", "worker:0")
