"""Checks of the executors: a small job has each of them report, and the reports are judged here."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tfos_lab.core.code_archive import make_task
from tfos_lab.core.package_versions import compared_versions, differing
from tfos_lab.driver.doctor import machine
from tfos_lab.driver.doctor.finding import Finding, dotted
from tfos_lab.driver.doctor.network import Callback, answering, unreachable_advice
from tfos_lab.driver.environment.checks import unpacked_problem
from tfos_lab.driver.environment.inventory import Inventory
from tfos_lab.errors import TfosError
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.launchers.spark.executors import collect_from_executors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    with answering(bind_host, public_host) as callback, probe_file(os.environ) as probe:
        called_s = time.time()
        try:
            facts = _within(JOB_TIMEOUT_S, session, lambda tag: _reports(session, tag, callback, probe))
        except TimeoutError:
            found = f"no report within {JOB_TIMEOUT_S:g} s: executors are there, and their Python does not start or run"
            return [Finding("executors", ok=False, found=found, advice="look at an executor's stderr in Spark's UI")]
        except TfosError as error:
            return [Finding("executors", ok=False, found=str(error), advice=PACK)]
        except Exception as error:  # noqa: BLE001 - whatever Spark raises is the finding
            return [Finding("executors", ok=False, found=f"{type(error).__name__}: {spark_session.cause_of(error)}")]
        return judge(facts, called_s, time.time(), callback, probe)


def _reports(session: SparkSession, tag: str, callback: Callback, probe: str) -> list[HostFacts]:
    questions = {"host": callback.host, "port": callback.port, "token": callback.token, "probe": probe}
    task = make_task("tfos_lab.node.host_facts", "host_facts_task", spark_session.owner_of(session), questions)
    rows = collect_from_executors(session, 1, task, "facts string", tag=tag)
    facts = [decode_facts(row["facts"]) for row in rows]
    return list({(fact.host, fact.executor): fact for fact in facts}.values())


def _within(timeout_s: float, session: SparkSession, work: Callable[[str], list[HostFacts]]) -> list[HostFacts]:
    """Return what ``work`` returns; after ``timeout_s``, cancel the jobs of its tag and raise TimeoutError."""
    tag = f"tfos-doctor-{secrets.token_hex(4)}"
    ended: list[list[HostFacts] | Exception] = []

    def run() -> None:
        try:
            ended.append(work(tag))
        except Exception as error:  # noqa: BLE001 - raised by the caller
            ended.append(error)

    thread = threading.Thread(target=run, name="tfos-doctor-job", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not ended:
        spark_session.cancel_tagged(session, tag)
        raise TimeoutError
    if isinstance(ended[0], Exception):
        raise ended[0]
    return ended[0]


@contextlib.contextmanager
def probe_file(environ: Mapping[str, str]) -> Iterator[str]:
    """Make a file in the run folder that others can only find in this very folder; yields "" if none can be made."""
    probe = machine.existing_part(machine.run_folder(environ)) / f".tfos-doctor-{secrets.token_hex(8)}"
    try:
        probe.touch()
    except OSError:
        yield ""  # another check says so
        return
    try:
        yield str(probe)
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


# ---- judging --------------------------------------------------------------------------------------------------------


def judge(
    facts: Sequence[HostFacts], called_s: float, answered_s: float, callback: Callback, probe: str
) -> list[Finding]:
    """Return the findings for the reports of all executors.

    Parameters
    ----------
    facts : sequence of HostFacts
        One report of each executor.
    called_s, answered_s : float
        When they were asked and when all had answered, by this machine's clock.
    callback : Callback
        Where they tried to reach this machine.
    probe : str
        The file in the run folder that they looked for; "" if none could be made.
    """
    return [
        *[judge_executor(fact) for fact in facts],
        judge_clocks(facts, called_s, answered_s),
        judge_shared_memory(facts),
        *([judge_connection(facts, callback)] if callback.token else []),
        *([judge_run_folder(facts, probe)] if probe else []),
    ]


def judge_executor(fact: HostFacts) -> Finding:
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


def judge_clocks(facts: Sequence[HostFacts], called_s: float, answered_s: float) -> Finding:
    """Compare the executors' clocks with this one's; each was read between the call and the answer."""
    off = {}
    for fact in facts:
        ahead, behind = fact.clock_s - answered_s, called_s - fact.clock_s
        if max(ahead, behind) > CLOCK_TOLERANCE_S:
            off[fact.host] = f"at least {max(ahead, behind):.0f} s {'ahead' if ahead > behind else 'behind'}"
    found = ", ".join(f"{host} is {how}" for host, how in off.items())
    return Finding("clocks", not off, found or "executors' agree with this machine's", _CLOCK_ADVICE)


def judge_shared_memory(facts: Sequence[HostFacts]) -> Finding:
    """Find executors whose shared memory is full."""
    full = {
        fact.host: machine.shared_memory_shortage(fact.shared_memory_bytes)
        for fact in facts
        if fact.shared_memory_bytes is not None and fact.shared_memory_bytes < machine.SHARED_MEMORY_NEEDED
    }
    found = "; ".join(f"{host}: {what}" for host, what in full.items())
    return Finding("shared memory there", not full, found or "not full", machine.SHARED_MEMORY_ADVICE)


def judge_connection(facts: Sequence[HostFacts], callback: Callback) -> Finding:
    """Find executors that cannot connect to this machine as nodes have to."""
    blocked = {fact.host: fact.unreachable for fact in facts if fact.unreachable}
    where = f"{callback.host}:{callback.port}"
    found = "; ".join(f"{host} cannot connect to {where} ({why})" for host, why in blocked.items())
    return Finding("way back", not blocked, found or f"executors can connect to {where}", unreachable_advice(callback))


def judge_run_folder(facts: Sequence[HostFacts], probe: str) -> Finding:
    """Find executors that do not see the folder of runs."""
    blind = sorted({fact.host for fact in facts if not fact.sees_probe})
    folder = Path(probe).parent
    advice = (
        "restarts and paths of your own need a folder that all hosts share: point log_dir= or TFOS_LAB_RUNS at one "
        "(NFS, or an address such as s3://…). Logs and output come home without it"
    )
    found = f"not on {', '.join(blind)}" if blind else "executors see it, too"
    return Finding("shared folder", not blind, f"{folder}: {found}", advice)


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One executor's report, made by `tfos_lab.node.host_facts`.

    Attributes
    ----------
    host, executor : str
        The host's name, and Spark's id of the executor.
    python : str
        The minor version of its Python, such as ``"3.11"``.
    problem : str
        Why no node can run there, as half a sentence; "" if one can.
    platform, environment : str
        System and processor; the manifest of the archive that its Python is from, or "".
    gpus : str
        GPUs of the host, separated by commas.
    versions : dict of str to str
        Versions of the packages in `tfos_lab.core.package_versions.COMPARED`, those that are installed.
    clock_s : float
        What its clock showed, in seconds since the epoch.
    shared_memory_bytes : int or None
        Free bytes of /dev/shm; None where there is none.
    unreachable : str
        Why it cannot connect to the driver's machine; "" if it can, or was not asked to.
    sees_probe : bool
        Whether it finds the file that the driver has made in the run folder.
    """

    host: str
    python: str
    clock_s: float
    executor: str = ""
    problem: str = ""
    platform: str = ""
    environment: str = ""
    gpus: str = ""
    versions: dict[str, str] = {}
    shared_memory_bytes: int | None = None
    unreachable: str = ""
    sees_probe: bool = True


def decode_facts(text: str) -> HostFacts:
    """Read a report; raises `msgspec.ValidationError` if it is none."""
    return msgspec.json.decode(text, type=HostFacts)
