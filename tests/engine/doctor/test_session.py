"""What the doctor says of the Spark session."""

from __future__ import annotations

import pytest

from tfos_lab.engine.doctor import session as doctor
from tfos_lab.engine.spark.session import Slots


def test_without_a_session_nodes_would_run_here():
    [finding] = doctor.check_session(None)
    assert finding.ok
    assert "on this machine" in finding.found


def test_a_local_session_runs_nodes_on_this_machine(spark):
    [finding] = doctor.check_session(spark)
    assert finding.found == "local[2]: nodes run as processes of this machine"


def test_an_archive_that_is_missing_is_a_problem(spark, monkeypatch):
    assert doctor.check_archive(spark) == []
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    [finding] = doctor.check_archive(spark)
    assert finding.sentence == (
        "environment: executors are to run ./environment/bin/python, and spark.archives names no archive #environment "
        "that holds it; ship this environment: %tfos pack (or tfos-lab pack) makes the archive, and shows the settings"
    )


def test_slots_that_are_all_taken_are_a_problem():
    finding = doctor.check_slots("spark://h:7077", Slots(total=4, free=0))
    assert (finding.ok, finding.found) == (False, "spark://h:7077, 0 of 4 task slots free")
    assert "%tfos stop all" in finding.advice
    assert doctor.check_slots("spark://h:7077", Slots(total=4, free=1)).ok
    assert doctor.check_slots("Spark Connect", None).ok


def test_a_cluster_that_gives_no_executor_is_a_problem():
    finding = doctor.check_slots("spark://h:7077", Slots(total=0, free=0))
    assert finding.found == "spark://h:7077, no executor has come"
    assert "spark.executor.memory" in finding.advice


@pytest.mark.parametrize("total", [0, 4])
def test_slots_are_waited_for_and_not_for_ever(total, monkeypatch):
    monkeypatch.setattr(doctor, "_COMING_S", 0.0)
    monkeypatch.setattr(doctor, "_LEAVING_S", 0.0)
    answers = iter([Slots(total, 0), Slots(total, 0), Slots(total, 2)])
    monkeypatch.setattr(doctor.spark_session, "slots_of", lambda _session: next(answers))
    assert doctor.slots_soon(None) == Slots(total, 0)
    monkeypatch.setattr(doctor, "_COMING_S", 60.0)
    monkeypatch.setattr(doctor, "_LEAVING_S", 60.0)
    assert doctor.slots_soon(None) == Slots(total, 2)
