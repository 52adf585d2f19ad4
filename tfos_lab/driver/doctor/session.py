"""Checks of the Spark session: whether it lives, has a free slot, and has the archive that executors are to unpack."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tfos_lab.data.spark_python import python_of
from tfos_lab.driver.doctor.executors import PACK, check_executors
from tfos_lab.driver.doctor.finding import Finding
from tfos_lab.driver.environment.checks import alias_of, problem_with
from tfos_lab.driver.environment.inventory import Inventory
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.launchers.spark.slots import Slots, slots_of
from tfos_lab.texts import format_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Executors of a new session take some seconds to come, and longer where a queue grants them; tasks of a cluster that
# has ended take a moment to leave.
_COMING_S = 20.0
_GRANTED_S = 60.0
_LEAVING_S = 1.0
_POLL_S = 0.1
_DAEMON, _OURS = "spark.python.daemon.module", "tfos_lab.spark_daemon"


def check_session(session: SparkSession | None) -> list[Finding]:
    """Check the session and, on a real cluster, its executors."""
    if session is None:
        return [Finding("Spark session", ok=True, found="none in this process: nodes would run on this machine")]
    death = spark_session.why_unusable(session)
    if death is not None:
        advice = spark_session.advice_for(session) or "make one: SparkSession.builder.getOrCreate()"
        return [Finding("Spark session", ok=False, found=death, advice=advice)]
    master = spark_session.master_of(session) or "Spark Connect"
    if spark_session.is_local(session):
        return [Finding("Spark session", ok=True, found=f"{master}: nodes run as processes of this machine")]
    slots = None if spark_session.allocates_dynamically(session) else slots_soon(session)
    findings = [check_slots(master, slots), *check_archive(session), *check_books(session, master)]
    # A job would wait for a slot, and this check with it.
    return [*findings, *check_executors(session)] if findings[0].ok else findings


def slots_soon(session: SparkSession) -> Slots | None:
    """Return the session's slots as soon as one is free, or when none is to be expected; None if Spark is silent."""
    called_s = time.monotonic()
    granted = spark_session.master_of(session).startswith(("yarn", "k8s"))
    coming_s = _GRANTED_S if granted else _COMING_S
    while True:
        slots = slots_of(session)
        if slots is None or slots.free:
            return slots
        if time.monotonic() - called_s > (_LEAVING_S if slots.total else coming_s):
            return slots
        time.sleep(_POLL_S)


def check_slots(master: str, slots: Slots | None) -> Finding:
    """Return the finding for the slots of a session."""
    if slots is None:
        return Finding("Spark session", ok=True, found=master)
    if not slots.total:
        advice = (
            "its cluster has no free cores or memory for this application, or executors cannot start: look at the "
            "master's page, stop other applications, or ask for less (spark.executor.cores, spark.executor.memory)"
        )
        return Finding("Spark session", ok=False, found=f"{master}, no executor has come", advice=advice)
    advice = "add executors or cores, or stop what holds them (%tfos stop all)"
    found = f"{master}, {slots.free} of {format_count(slots.total, 'task slot')} free"
    return Finding("Spark session", slots.free > 0, found, advice)


def check_books(session: SparkSession, master: str) -> list[Finding]:
    """Tell whether YARN counts the memory of nodes as that of their containers."""
    if not master.startswith("yarn"):
        return []
    if spark_session.conf(session, _DAEMON) == _OURS:
        return [Finding("memory", ok=True, found="YARN counts that of nodes as their containers'")]
    found = (
        f"YARN counts that of nodes while the task lives that has started them; with {_DAEMON}={_OURS}, always, "
        "where executors have tfos_lab"
    )
    return [Finding("memory", ok=True, found=found)]


def check_archive(session: SparkSession) -> list[Finding]:
    """Check the archive that executors get their Python from, if they are to have one."""
    python = python_of(session)
    if not alias_of(python):
        return []
    archives = spark_session.conf(session, "spark.archives") or spark_session.conf(session, "spark.yarn.dist.archives")
    problem = problem_with(archives, python, Inventory.of_this_python())
    return [Finding("environment", not problem, problem or f"{python}, from {archives}", PACK)]
