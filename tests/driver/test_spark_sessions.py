"""What is asked of a SparkSession: its errors, its slots, whether it is alive."""

from __future__ import annotations

import json
import threading
import time

import pytest

from tests.support.eventually import eventually
from tfos_lab.core.crossing import to_text
from tfos_lab.errors import FeedError, NoSession, RecordError
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.launchers.spark.session import cause_of, job_error
from tfos_lab.launchers.spark.slots import Slots, slots_of

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


def test_the_reason_of_a_dead_session_is_named(new_spark):
    session = new_spark("local[1]")
    session.stop()
    assert spark_session.active_session() is None
    with pytest.raises(NoSession, match="the SparkSession was stopped"):
        spark_session.require_alive(session)


def test_spark_tells_how_far_it_is_with_all_that_a_job_takes(spark):
    assert spark_session.tasks_of(spark, "no such tag") is None
    with spark_session.tagged(spark, "tfos-test-tasks", "a test"):
        spark.range(0, 100, numPartitions=3).repartition(2).collect()
    partitions, ended, total = eventually(lambda: spark_session.tasks_of(spark, "tfos-test-tasks"))
    assert partitions == 2
    assert ended == total >= 5


@pytest.mark.parametrize("spark_mode", ["standalone"])
def test_slots_of_running_tasks_are_not_free(spark, tmp_path):
    over = tmp_path / "over"

    def wait(batches):

        while not over.exists():
            time.sleep(0.02)
        yield from batches

    eventually(lambda: slots_of(spark) == Slots(total=4, free=4))
    holding = threading.Thread(target=lambda: spark.range(0, 2, 1, 2).mapInArrow(wait, "id long").collect())
    holding.start()
    eventually(lambda: slots_of(spark).free == 2)
    over.touch()
    holding.join(60)
    eventually(lambda: slots_of(spark).free == 4)


# ---- rows that are too large for Spark -------------------------------------------------------------------------------


TEXT = (
    "Caused by: org.apache.arrow.vector.util.OversizedAllocationException: Memory required for vector is "
    "(2147483648), which is overflow or more than max allowed (2147483647). You could consider using "
    "LargeVarCharVector/LargeVarBinaryVector for large strings/large bytes types"
)
NUMBERS = (
    "org.apache.arrow.vector.util.OversizedAllocationException: Memory required for vector capacity 536870912 is "
    "(2147483648), which is more than max allowed (2147483647)"
)
ROW = "IllegalArgumentException: Cannot grow BufferHolder by size 2000000008 because the size after growing exceeds size limitation 2147483632"  # noqa: E501 - as Spark says it


def schema_of(**types):
    return json.dumps({"fields": [{"name": name, "type": kind} for name, kind in types.items()]})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEXT, "Spark needs room for 2,147,483,648 bytes of column 'x' in one Arrow batch, and 2,147,483,647 is the"),
        (NUMBERS, "Spark needs room for 2,147,483,648 bytes of column 'x' in one Arrow batch, and 2,147,483,647 is"),
        (ROW, "Spark needs 2,000,000,008 bytes more for a row with column 'x', and a row has 2,147,483,632 at most"),
    ],
)
def test_the_only_column_that_may_be_large_is_named(text, said):
    error = job_error(ValueError(text), schema=schema_of(x="binary", n="long"))
    assert isinstance(error, FeedError)
    assert error.reason.startswith(said)
    assert "make several rows of a large one, or feed the path of a file" in error.reason


def test_one_of_many_columns_is_named_as_far_as_that_is_known():
    many = {f"a{n}": {"type": "array"} for n in range(7)}
    assert "bytes of one of the columns 'a0', 'a1', 'a2', 'a3', 'a4' and 2 more in" in str(
        job_error(ValueError(TEXT), schema=schema_of(n="long", **many))
    )
    assert "bytes of a column in one" in str(job_error(ValueError(TEXT)))
