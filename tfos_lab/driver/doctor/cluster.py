"""What the doctor checks of a cluster: its session, the archive that executors unpack, and the executors.

A small job has each executor report, and the reports are judged here.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tfos_lab.core.listener import PORT_VARIABLE, Listener
from tfos_lab.core.messages import DriverAddress
from tfos_lab.core.package_versions import Environment, compared_versions, differing, dotted
from tfos_lab.core.threads import on_a_thread
from tfos_lab.data.spark_python import python_of
from tfos_lab.driver.doctor import checks
from tfos_lab.driver.doctor.checks import Finding, alias_of
from tfos_lab.driver.pack import Inventory, read_manifest
from tfos_lab.driver.run_dir import make_probe, run_bases
from tfos_lab.errors import ConfigError, TfosError
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.launchers.spark.executors import ExecutorFacts, inspect_executors
from tfos_lab.launchers.spark.session import HOST_VARIABLE
from tfos_lab.launchers.spark.slots import Slots, await_slots, executors_asked
from tfos_lab.texts import format_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# ---- the session ----------------------------------------------------------------------------------------------------


# Where a queue grants executors, that may take longer than where they are taken.
_GRANTED_S = 60.0
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
    slots = await_slots(session, 1, patience_s=_GRANTED_S if executors_asked(session) else 0.0)
    findings = [check_slots(master, slots), *check_archive(session), *check_books(session, master)]
    # A job would wait for a slot, and this check with it.
    return [*findings, *check_executors(session)] if findings[0].ok else findings


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


# ---- the archive ----------------------------------------------------------------------------------------------------


_SHOWN = 3


def _archive_for(archives: str, alias: str) -> str | None:
    """Return the entry of ``spark.archives`` that is unpacked under a name, without that name."""
    for entry in archives.split(","):
        path, _, name = entry.strip().partition("#")
        if path and (name or Path(path).name) == alias:
            return path
    return None


def problem_with(archives: str, python: str, inventory: Inventory) -> str:
    """Return what is wrong with the archive from which executors get their Python, as half a sentence; "" if nothing.

    ``archives`` and ``python`` are Spark's settings; ``inventory`` is the environment that it is to be like, the
    notebook's.
    """
    alias = alias_of(python)
    place = _archive_for(archives, alias)
    if place is None:
        return f"executors are to run {python}, and spark.archives names no archive #{alias} that holds it"
    path = Path(place.removeprefix("file://"))
    if "://" in str(place) and not place.startswith("file://"):
        return ""  # what executors have unpacked tells
    if not path.exists():
        return f"spark.archives names {path}, which is not there"
    try:
        packed = read_manifest(path)
    except (OSError, ValueError):
        return ""  # made by another program
    return unlike(packed, inventory, sysconfig.get_platform(), str(path))


def unlike(packed: Environment, inventory: Inventory, platform: str, where: str) -> str:
    """Return why a packed environment does not fit the executors' platform or the notebook's packages, or ""."""
    if packed.platform != platform:
        return f"{where} was packed for {packed.platform}, and executors are {platform}"
    now = Inventory(inventory.prefix, inventory.site_packages, tuple(packed.exclude)).environment()
    if now.digest == packed.digest:
        return ""
    return f"{where} is stale: {differences(packed, now)}"


def differences(packed: Environment, now: Environment) -> str:
    """Return in which packages two environments differ, the first few by name."""
    if packed.python != now.python:
        return f"it has Python {packed.python}, and this is {now.python}"
    names = sorted(
        name for name in {*packed.packages, *now.packages} if packed.packages.get(name) != now.packages.get(name)
    )
    if not names:
        return "files of its packages have changed since"
    there, here = ({name: one.packages.get(name, "missing") for name in names} for one in (packed, now))
    texts = [f"{name} {there[name]} there, {here[name]} here" for name in names]
    more = f", and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more


def unpacked_problem(manifest: str, inventory: Inventory, platform: str) -> str:
    """Return what is wrong with the environment that an executor has unpacked, as it reported; "" if nothing is."""
    with contextlib.suppress(ValueError):
        if manifest:
            return unlike(Environment.from_json(manifest), inventory, platform, "its environment")
    return ""


# ---- the executors --------------------------------------------------------------------------------------------------


PACK = "ship this environment: tfos-lab pack makes the archive, and shows the settings"
# A job that waits for more than this, waits for something that does not come.
JOB_TIMEOUT_S = 60.0
CLOCK_TOLERANCE_S = 5.0
_CLOCK_ADVICE = (
    "set the clocks by NTP (timedatectl set-ntp true, or chronyd): times in logs, TensorBoard and certificates depend "
    "on them"
)
_ADVICE = f"give it the packages, point spark.pyspark.python at a Python that has them, or {PACK}"


def check_executors(session: SparkSession) -> list[Finding]:
    """Have the executors report, and judge what they say; it also begins to warm them."""
    bind_host, public_host = spark_session.driver_hosts(session)
    with listening(bind_host, public_host) as driver, probe_file() as probe:
        called_s = time.time()
        questions = {"probe": probe, "driver": b"" if driver is None else msgspec.msgpack.encode(driver)}
        tag = f"tfos-doctor-{secrets.token_hex(4)}"
        answer = on_a_thread(
            lambda: inspect_executors(session, 1, {}, tag=tag, questions=questions), name="tfos-doctor-job"
        )
        if not wait([answer], JOB_TIMEOUT_S).done:
            spark_session.cancel_tagged(session, tag)
            found = f"no report within {JOB_TIMEOUT_S:g} s: executors are there, and their Python does not start or run"
            return [Finding("executors", ok=False, found=found, advice="look at an executor's stderr in Spark's UI")]
        try:
            facts = answer.result()
        except TfosError as error:
            return [Finding("executors", ok=False, found=str(error), advice=PACK)]
        except Exception as error:  # noqa: BLE001 - whatever Spark raises is the finding
            return [Finding("executors", ok=False, found=f"{type(error).__name__}: {spark_session.cause_of(error)}")]
        return judge(facts, called_s, time.time(), driver, probe)


@contextlib.contextmanager
def probe_file() -> Iterator[str]:
    """Make a file in the run folder that others can only find in this very folder; yields "" if none can be made."""
    probe = make_probe(run_bases()[0])
    try:
        yield str(probe) if probe.exists() else ""  # another check reports it
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


# ---- judging --------------------------------------------------------------------------------------------------------


def judge(
    facts: Sequence[ExecutorFacts], called_s: float, answered_s: float, driver: DriverAddress | None, probe: str
) -> list[Finding]:
    """Return the findings for the reports of all executors, one of each.

    They were asked at ``called_s``, and all had answered at ``answered_s``, by this machine's clock. ``driver`` is
    where they tried to reach this machine, and ``probe`` the file in the run folder that they looked for, where there
    are such.
    """
    return [
        *[judge_executor(fact) for fact in facts],
        judge_clocks(facts, called_s, answered_s),
        judge_shared_memory(facts),
        *([judge_connection(facts, driver)] if driver is not None else []),
        *([judge_run_folder(facts, probe)] if probe else []),
    ]


def judge_executor(fact: ExecutorFacts) -> Finding:
    """Return the finding for what one executor has installed."""
    mine = dotted(sys.version_info[:2])
    problems = [fact.problem] if fact.problem else []
    if stale := unpacked_problem(fact.environment, Inventory.of_this_python(), fact.platform):
        problems.append(stale)
    if fact.python != mine:
        problems.append(f"its Python is {fact.python}, and this is {mine}")
    problems += differing(fact.versions, compared_versions())
    gpus = f", GPUs {fact.gpus}" if fact.gpus else ""
    found = f"{fact.host}: {'; '.join(problems) or f'Python {mine}, all packages'}{gpus}"
    return Finding(f"executor {fact.executor}".rstrip(), not problems, found, _ADVICE)


def judge_clocks(facts: Sequence[ExecutorFacts], called_s: float, answered_s: float) -> Finding:
    """Compare the executors' clocks with this one's; each was read between the call and the answer."""
    off = {}
    for fact in facts:
        ahead, behind = fact.clock_s - answered_s, called_s - fact.clock_s
        if max(ahead, behind) > CLOCK_TOLERANCE_S:
            off[fact.host] = f"at least {max(ahead, behind):.0f} s {'ahead' if ahead > behind else 'behind'}"
    found = ", ".join(f"{host} is {how}" for host, how in off.items())
    return Finding("clocks", not off, found or "executors' agree with this machine's", _CLOCK_ADVICE)


def judge_shared_memory(facts: Sequence[ExecutorFacts]) -> Finding:
    """Find executors whose shared memory is full."""
    full = {
        fact.host: checks.shared_memory_shortage(fact.shared_memory_bytes)
        for fact in facts
        if fact.shared_memory_bytes is not None and fact.shared_memory_bytes < checks.SHARED_MEMORY_NEEDED
    }
    found = "; ".join(f"{host}: {what}" for host, what in full.items())
    return Finding("shared memory there", not full, found or "not full", checks.SHARED_MEMORY_ADVICE)


def judge_connection(facts: Sequence[ExecutorFacts], driver: DriverAddress) -> Finding:
    """Find executors that cannot connect to this machine as nodes have to."""
    blocked = {fact.host: fact.unreachable for fact in facts if fact.unreachable}
    where = driver.endpoint.removeprefix("tcp://")
    found = "; ".join(f"{host} cannot connect to {where} ({why})" for host, why in blocked.items())
    return Finding("way back", not blocked, found or f"executors can connect to {where}", unreachable_advice(driver))


def judge_run_folder(facts: Sequence[ExecutorFacts], probe: str) -> Finding:
    """Find executors that do not see the folder of runs."""
    blind = sorted({fact.host for fact in facts if not fact.sees_probe})
    folder = Path(probe).parent
    advice = (
        "restarts and paths of your own need a folder that all hosts share: point log_dir= or TFOS_LAB_RUNS at one "
        "(NFS, or an address such as s3://…). Logs and output come home without it"
    )
    found = f"not on {', '.join(blind)}" if blind else "executors see it, too"
    return Finding("shared folder", not blind, f"{folder}: {found}", advice)


# ---- the way from executors to this machine -------------------------------------------------------------------------


@contextlib.contextmanager
def listening(bind_host: str, public_host: str) -> Iterator[DriverAddress | None]:
    """Listen as a cluster's driver does; yields what nodes connect with, or None where that cannot be."""
    try:
        listener = Listener(bind_host, public_host)
    except (ConfigError, OSError):
        yield None  # another check reports it
        return
    try:
        yield listener.address
    finally:
        listener.close()


def unreachable_advice(driver: DriverAddress) -> str:
    """Return what to do if executors cannot reach this machine."""
    return (
        f"let executors connect to this machine: open the port in the firewall or network policy ({PORT_VARIABLE}="
        f"9990-9999 fixes a range), and give an address that they know, with spark.driver.host or {HOST_VARIABLE} "
        f"(now {driver.host})"
    )
