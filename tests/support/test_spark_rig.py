"""The rig itself: sessions of every mode run the kind of job that launchers start nodes with."""

from __future__ import annotations

import os
import signal
import sys
import time

import psutil
import pytest

from tests.support.spark import SPARK_MODES, is_alive


def who_runs(batches):
    """Say which JVM this task works for; drains its input, as every task of ours must."""
    import os

    import pyarrow as pa

    rows = sum(batch.num_rows for batch in batches)
    daemon = os.getppid()
    with open(f"/proc/{daemon}/stat") as file:  # noqa: PTH123 - runs on an executor
        executor = int(file.read().rpartition(")")[2].split()[1])
    yield pa.RecordBatch.from_pydict({"rows": [rows], "executor": [executor]})


def executors_of_two_tasks(session, expected):
    """Run two tasks at once, until both work for as many JVMs as expected: an executor may come late."""
    deadline = time.monotonic() + 60.0
    while len(executors := run_two_tasks(session)) != expected and time.monotonic() < deadline:
        time.sleep(0.5)
    return executors


def run_two_tasks(session):
    """Run two tasks at once, and return the JVM that each of them worked for."""
    job = session.range(0, 2, 1, 2).mapInArrow(_by_value(who_runs), "rows long, executor long", barrier=True)
    answers = job.collect()
    assert [answer.rows for answer in answers] == [1, 1]
    return {answer.executor for answer in answers}


def _by_value(function):
    """Make a function travel whole, so that executors need not find this file."""
    return type(function)(function.__code__, {"__builtins__": __builtins__, "__name__": "__main__"})


@pytest.mark.parametrize("spark_mode", SPARK_MODES)
def test_a_session_of_every_mode_runs_a_barrier_stage(spark, spark_mode):
    expected = 1 if spark_mode in ("local", "connect") else 2
    assert len(executors_of_two_tasks(spark, expected)) == expected


@pytest.mark.parametrize("spark_mode", ["standalone"])
def test_the_standalone_cluster_runs_an_executor_on_each_worker(spark, standalone_cluster):
    parents = {psutil.Process(executor).ppid() for executor in executors_of_two_tasks(spark, 2)}
    assert parents == {worker.pid for worker in standalone_cluster.workers}


def test_tests_of_a_mode_share_its_session(spark_sessions, spark):
    assert spark_sessions.get("local") is spark


def test_a_stopped_session_is_replaced(spark_sessions, spark):
    spark.stop()
    assert not is_alive(spark)
    assert spark_sessions.get("local").range(3).count() == 3


def test_a_session_whose_jvm_was_killed_is_replaced(spark_sessions, spark):
    os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
    spark.sparkContext._gateway.proc.wait()
    assert not is_alive(spark)
    assert spark_sessions.get("local").range(3).count() == 3


def test_a_test_can_have_a_session_of_its_own(new_spark, standalone):
    session = new_spark(standalone, conf={"spark.app.name": "mine", "spark.executor.cores": "1"})
    assert session.sparkContext.appName == "mine"
    assert session.sparkContext.master == standalone


def test_ending_a_session_ends_its_jvm_and_restores_what_it_changed(spark_sessions):
    spark_sessions.close()
    environment, handler = dict(os.environ), signal.getsignal(signal.SIGINT)
    session = spark_sessions.get("local")
    jvm = psutil.Process(session.sparkContext._gateway.proc.pid)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    spark_sessions.close()
    assert not jvm.is_running()
    assert dict(os.environ) == environment
    assert signal.getsignal(signal.SIGINT) is handler
