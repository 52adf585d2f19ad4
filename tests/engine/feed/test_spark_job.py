"""Spark's side of a feed: its result, its error, its progress and its end, with Spark played by functions."""

from __future__ import annotations

import contextlib
import threading
from types import SimpleNamespace

import pytest

from tfos_lab.engine.feed import spark_job
from tfos_lab.engine.feed.spark_job import FrameRows, Produced, SparkJob, Tasks
from tfos_lab.node.feed.plan import FeedPlan

PATIENCE_S = 60.0
PLAN = FeedPlan(feed=0, token="t", locations={}, schema="{}")


class FakeSpark:
    """Stands in for the session: `collect` is the job."""

    def __init__(self):
        self.collect = list
        self.counts = None
        self.asked = []
        self.on_cancel = lambda: None
        self.answers = True

    def tasks_of(self, _session, tag):
        self.asked.append(tag)
        return self.counts

    def cancel_tagged(self, _session, tag):
        assert tag.startswith("tfos-feed-1-")
        self.on_cancel()
        return self.answers


@pytest.fixture
def fake_spark(monkeypatch):
    spark = FakeSpark()
    monkeypatch.setattr(spark_job, "map_batches", lambda _frame, _task, _schema: SimpleNamespace(collect=spark.collect))
    monkeypatch.setattr(spark_job, "make_task", lambda *_: None)
    monkeypatch.setattr(spark_job.spark_session, "tagged", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(spark_job.spark_session, "tasks_of", spark.tasks_of)
    monkeypatch.setattr(spark_job.spark_session, "cancel_tagged", spark.cancel_tagged)
    return spark


def start():
    return SparkJob(FrameRows(SimpleNamespace(sparkSession=None)), PLAN, label="tfos-feed-1", description="rows")


def test_rows_and_partitions_are_summed_up(fake_spark):
    fake_spark.collect = lambda: [{"rows": 3}, {"rows": 4}]
    job = start()
    assert job.has_ended(PATIENCE_S)
    assert (job.produced, job.error) == (Produced(rows=7, partitions=2), None)


def test_an_error_is_kept_for_the_thread_that_waits(fake_spark):
    error = RuntimeError("no")

    def fail():
        raise error

    fake_spark.collect = fail
    job = start()
    assert job.has_ended(PATIENCE_S)
    assert job.error is error


def test_a_job_under_way_has_not_ended_and_can_be_cancelled(fake_spark):
    end = threading.Event()
    fake_spark.collect = lambda: end.wait(PATIENCE_S) and []
    job = start()
    assert not job.has_ended(0.0)
    fake_spark.on_cancel = end.set
    job.cancel()
    assert job.has_ended(0.0)


def test_a_job_that_spark_cannot_be_asked_to_cancel_is_not_waited_for(fake_spark):
    end = threading.Event()
    fake_spark.collect = lambda: end.wait(PATIENCE_S) and []
    fake_spark.answers = False
    job = start()
    job.cancel()
    assert not job.has_ended(0.0)
    end.set()
    assert job.has_ended(PATIENCE_S)


def test_spark_is_asked_for_its_tasks_now_and_then_only(fake_spark, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(spark_job.time, "monotonic", lambda: now[0])
    job = start()
    assert job.tasks() == Tasks(partitions=None, ended=0)
    fake_spark.counts = (8, 3)
    assert job.tasks() == Tasks(partitions=None, ended=0)
    now[0] += 1.0
    assert job.tasks() == Tasks(partitions=8, ended=3)
    fake_spark.counts = None
    now[0] += 1.0
    assert job.tasks() == Tasks(partitions=8, ended=3)
    assert len(fake_spark.asked) == 3
    assert fake_spark.asked[0].startswith("tfos-feed-1-")
