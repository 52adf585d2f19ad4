"""Queries about a SparkSession: its errors, its slots, whether it is alive."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from tfos_lab.engine.spark import session as spark_session
from tfos_lab.engine.spark.session import cause_of, job_error
from tfos_lab.errors import FeedError, NoSession, RecordError
from tfos_lab.errors.channel import to_text

CONNECT = """(org.apache.spark.SparkRuntimeException) [USER_RAISED_EXCEPTION] no such digit SQLSTATE: P0001

JVM stacktrace:
org.apache.spark.SparkRuntimeException
\tat org.apache.spark.util.SparkErrorUtils.tryWithSafeFinally$(SparkErrorUtils.scala:83)
"""
CLASSIC = """An error occurred while calling o100.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Could not recover from a failed barrier stage.
ExecutorLostFailure (executor 0 exited caused by one of the running tasks) Reason: Command exited with code 137
\tat org.apache.spark.errors.SparkCoreErrors$.x(SparkCoreErrors.scala:1)
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (CONNECT, "(org.apache.spark.SparkRuntimeException) [USER_RAISED_EXCEPTION] no such digit SQLSTATE: P0001"),
        (
            CLASSIC,
            (
                "ExecutorLostFailure (executor 0 exited caused by one of the running tasks) Reason: Command exited "
                "with code 137"
            ),
        ),
        (": java.io.IOException: broken", "java.io.IOException: broken"),
        ("nothing that tells", "nothing that tells"),
        ("", "ValueError"),
    ],
    ids=["connect", "classic", "java", "other", "silent"],
)
def test_the_cause_is_a_line_of_the_message_and_not_of_a_stack_trace(text, cause):
    assert cause_of(ValueError(text)) == cause


def test_a_failed_job_raises_what_its_task_raised_or_names_the_cause():
    ours = RecordError(reason="a-file was cut off")
    theirs = ValueError(f"Job aborted due to stage failure: {to_text(ours)}")
    error = job_error(theirs)
    assert (type(error), error.reason, error.__cause__) == (RecordError, "a-file was cut off", theirs)
    assert job_error(ours) is ours
    error = job_error(ValueError(": java.io.IOException: broken"), "the stream failed")
    assert (type(error), error.reason) == (FeedError, "the stream failed: java.io.IOException: broken")


@pytest.mark.parametrize("spark_mode", ["standalone"])
def test_slots_are_counted_and_those_of_running_tasks_are_not_free(spark):
    spark.range(4).count()
    slots = spark_session.await_slots(spark, 4)
    assert slots == spark_session.Slots(total=4, free=4)
    begun, done = threading.Event(), threading.Event()

    def hold():
        begun.set()
        spark.range(0, 2, 1, 2).mapInArrow(_wait_a_little, "id long").collect()
        done.set()

    threading.Thread(target=hold).start()
    begun.wait(60)
    seen = []
    while not done.is_set():
        seen.append(spark_session.slots_of(spark).free)
    assert 2 in seen
    assert spark_session.await_slots(spark, 4).free == 4


def _wait_a_little(batches):
    import time

    for batch in batches:
        time.sleep(1.0)
        yield batch


@pytest.mark.parametrize("spark_mode", ["standalone"])
@pytest.mark.parametrize(("tag", "free"), [(spark_session.INSPECTION, 4), ("another", 0)])
def test_our_own_look_at_the_executors_is_waited_for_as_it_ends_soon(spark, monkeypatch, tmp_path, tag, free):
    monkeypatch.setattr(spark_session, "_LEAVING_S", 0.0)
    monkeypatch.setattr(spark_session, "_NEW_SESSION_S", 0.0)  # else more executors are waited for
    over = tmp_path / "over"

    def wait(batches):
        while not over.exists():
            time.sleep(0.02)
        yield from batches

    def look():
        with spark_session.tagged(spark, tag, "looks"):
            spark.range(0, 4, 1, 4).mapInArrow(wait, "id long").collect()

    looking = threading.Thread(target=look)
    looking.start()
    while spark_session.slots_of(spark).free:
        time.sleep(0.01)
    if free:
        threading.Timer(1.0, over.touch).start()
    assert spark_session.await_slots(spark, 4).free == free
    over.touch()
    looking.join()


@pytest.mark.parametrize(("jobs", "free"), [([], 4), ([17], 1)], ids=["cancelled", "at-work"])
def test_tasks_of_jobs_that_have_ended_are_waited_for_and_those_of_others_are_not(monkeypatch, jobs, free):
    told = iter([1, 1, 1, 4])
    monkeypatch.setattr(spark_session, "_LEAVING_S", 0.0)
    monkeypatch.setattr(spark_session, "slots_of", lambda _spark: spark_session.Slots(4, next(told)))
    tracker = SimpleNamespace(getActiveJobsIds=lambda: jobs)
    conf = SimpleNamespace(get=lambda _name, default: default)
    scala = SimpleNamespace(statusTracker=lambda: SimpleNamespace(getJobIdsForTag=lambda _tag: []))
    context = SimpleNamespace(startTime=0, statusTracker=lambda: tracker, _jsc=SimpleNamespace(sc=lambda: scala))
    session = SimpleNamespace(sparkContext=context, conf=conf)
    assert spark_session.await_slots(session, 3).free == free


@pytest.mark.parametrize("spark_mode", ["standalone", "local-cluster", "connect", "local"])
def test_a_session_is_described(spark, spark_mode):
    assert spark_session.active_session() is not None
    assert spark_session.death_of(spark) is None
    assert spark_session.is_local(spark) == (spark_mode in ("local", "connect"))
    assert spark_session.is_connect(spark) == (spark_mode == "connect")
    assert spark_session.driver_hosts(spark) == ("127.0.0.1", "127.0.0.1")
    assert spark_session.owner_of(spark)
    assert not spark_session.allocates_dynamically(spark)
    if spark_mode == "connect":
        assert spark_session.slots_of(spark) is None


def test_the_reason_of_a_dead_session_is_named(new_spark):
    session = new_spark("local[1]")
    session.stop()
    assert spark_session.active_session() is None
    with pytest.raises(NoSession, match="the SparkSession was stopped"):
        spark_session.require_alive(session)
