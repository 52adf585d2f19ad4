"""The wait for executors, with a Spark whose slots the test sets."""

from __future__ import annotations

import threading

import pytest

from tfos_lab.engine.spark import arrival as module
from tfos_lab.engine.spark import session as spark_session
from tfos_lab.engine.spark.arrival import Arrival
from tfos_lab.engine.spark.asked import executors_asked
from tfos_lab.engine.spark.session import Slots

PENDING = "1 executor pod is pending: exec-2 (no room)"


@pytest.fixture
def slots(monkeypatch):
    """What Spark says of its slots, one after another; the last one stays."""
    said = {"slots": [Slots(1, 1)], "coming": 0, "pending": PENDING}

    def next_slots(spark, wanted=0):
        return said["slots"].pop(0) if len(said["slots"]) > 1 else said["slots"][0]

    monkeypatch.setattr(spark_session, "await_slots", next_slots)
    monkeypatch.setattr(spark_session, "slots_of", next_slots)
    monkeypatch.setattr(module, "coming_slots", lambda spark: said["coming"])
    monkeypatch.setattr(module, "pending_text", lambda spark: said["pending"])
    monkeypatch.setattr(module, "_QUIET_S", 0.0)
    monkeypatch.setattr(module, "_LEAVING_S", 0.3)
    monkeypatch.setattr(module, "_POLL_S", 0.01)
    return said


@pytest.fixture
def told():
    return []


def arrival(told, timeout_s=60.0):
    return Arrival(None, lambda: ["worker:0"], told.append, timeout_s=timeout_s)


def never():
    return False


def test_executors_that_are_on_their_way_are_waited_for_and_told_of_once(slots, told):
    slots.update(slots=[Slots(1, 1), Slots(1, 1), Slots(1, 1), Slots(2, 2)], coming=1)
    assert arrival(told).await_slots(2, never) == Slots(2, 2)
    assert told == [f"waiting for Spark's executors: {PENDING}"]


def test_more_than_can_come_is_not_waited_for(slots, told):
    slots.update(coming=1)
    assert arrival(told).await_slots(3, never) == Slots(1, 1)
    assert told == []


def test_slots_of_a_cluster_that_has_just_ended_count_for_a_moment(slots, told, monkeypatch):
    moment_s = module._LEAVING_S
    monkeypatch.setattr(module, "_LEAVING_S", 60.0)
    slots.update(slots=[Slots(2, 0), Slots(2, 1), Slots(3, 3)], coming=1)
    assert arrival(told).await_slots(3, never) == Slots(3, 3)
    monkeypatch.setattr(module, "_LEAVING_S", moment_s)
    slots.update(slots=[Slots(2, 1)])
    assert arrival(told).await_slots(3, never) == Slots(2, 1)


def test_the_wait_ends_when_the_time_is_up_or_nobody_wants_it_any_more(slots, told):
    slots.update(coming=1)
    late = arrival(told, timeout_s=0.05)
    assert late.await_slots(2, never) == Slots(1, 1)
    assert late.is_late
    assert arrival(told).await_slots(2, lambda: True) == Slots(1, 1)


def test_where_spark_does_not_tell_there_is_nothing_to_wait_for(slots, told):
    slots.update(slots=[None])
    assert arrival(told).await_slots(2, never) is None


def test_a_block_is_ended_when_the_time_is_up_and_what_was_pending_is_remembered(slots, told):
    cancelled = threading.Event()

    def cancel():
        slots.update(pending="")  # Spark no longer wants the pods
        cancelled.set()

    late = arrival(told, timeout_s=0.05)
    with late.watched("tfos-test", cancel):
        assert cancelled.wait(60)
    assert late.pending() == PENDING


@pytest.mark.parametrize(
    ("conf", "asked"),
    [
        ({"spark.master": "k8s://https://host", "spark.executor.instances": "5"}, 5),
        ({"spark.master": "yarn"}, 2),
        ({"spark.master": "yarn", "spark.dynamicAllocation.enabled": "true"}, 0),
        ({"spark.master": "spark://host:7077", "spark.executor.instances": "5"}, 0),
    ],
    ids=["kubernetes", "yarn", "dynamic", "standalone"],
)
def test_only_some_cluster_managers_are_asked_for_a_number_of_executors(monkeypatch, conf, asked):
    monkeypatch.setattr(spark_session, "conf", lambda spark, key, default="": conf.get(key, default))
    assert executors_asked(None) == asked
