"""Checks that everything a cluster needs is installed and working, and says what to do if not.

`examine` returns a `Finding` for each check; ``tfos-lab doctor`` and ``%tfos doctor`` show them. The checks change
nothing and do not import TensorFlow. Executors are checked only if there is a session already.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tfos_lab.core.runtime_files import scratch_root
from tfos_lab.data.spark_python import python_of
from tfos_lab.engine.environment.checks import alias_of, problem_with, unpacked_problem
from tfos_lab.engine.environment.inventory import Inventory
from tfos_lab.engine.spark import session as spark_session
from tfos_lab.engine.spark.executors import inspect_executors
from tfos_lab.errors import TfosError
from tfos_lab.node.forkserver.client import ForkServerConnection
from tfos_lab.node.forkserver.requests import FailedReply
from tfos_lab.node.gpus import free_gpus, visible_gpus
from tfos_lab.transport.frames import ConnectionClosed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYTHON_NEEDED = (3, 11)
JAVA_NEEDED = 17
SPARK_NEEDED = (4, 0)
TENSORFLOW_NEEDED = (2, 21)
FREE_BYTES_NEEDED = 2 * 1024**3
_GIB = 1024**3
_COMMAND_TIMEOUT_S = 20.0
_FORK_SERVER_TIMEOUT_S = 0.3

# Names of TensorFlow's packages; all of them install the same module.
_TENSORFLOW_NAMES = ("tensorflow", "tensorflow-cpu", "tensorflow-macos", "tf-nightly", "tensorflow-rocm")
_PACK = "ship this environment: %tfos pack (or tfos-lab pack) makes the archive, and shows the settings"
# Spark's Python on this machine needs pyarrow to feed rows.
_WORKER_PROBE = "import sys, pyarrow; print('%d.%d' % sys.version_info[:2])"


@dataclass(frozen=True)
class Finding:
    """The result of one check: what was checked, whether it is fine, what was found, and what to do if it is not."""

    what: str
    ok: bool
    found: str
    advice: str = ""

    @property
    def sentence(self) -> str:
        """The finding and the advice as one sentence."""
        return f"{self.what}: {self.found}" + (f"; {self.advice}" if self.advice and not self.ok else "")


def examine(spark: SparkSession | None = None) -> list[Finding]:
    """Run all checks; returns the findings in the order in which problems are best fixed.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession, optional
        The session whose executors are checked; the active one of this process by default.
    """
    findings = [
        check_python(),
        check_java(os.environ),
        check_package("pyspark", ("pyspark",), SPARK_NEEDED),
        check_spark_python(os.environ),
        check_package("TensorFlow", _TENSORFLOW_NAMES, TENSORFLOW_NEEDED),
        check_package("Keras", ("keras", "tf-keras")),
        check_gpus(),
        check_scratch(),
        check_runs(os.environ),
        check_fork_servers(),
    ]
    session = spark if spark is not None else spark_session.active_session()
    return [*findings, *check_session(session)]


def render_text(findings: Iterable[Finding]) -> str:
    """Return the findings as a table for a terminal, with a summary at the end."""
    findings = list(findings)
    width = max((len(finding.what) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{'✓' if finding.ok else '✗'} {finding.what:<{width}}  {finding.found}")
        if finding.advice and not finding.ok:
            lines.append(f"  {'':<{width}}  → {finding.advice}")
    return "\n".join([*lines, "", sum_up(findings)])


def sum_up(findings: Iterable[Finding]) -> str:
    """Return the findings in one sentence."""
    problems = [finding.what for finding in findings if not finding.ok]
    if not problems:
        return "All is well."
    return f"{len(problems)} problem{'s' if len(problems) > 1 else ''}: {', '.join(problems)}."


# ---- this machine ---------------------------------------------------------------------------------------------------


def check_python(version: tuple[int, ...] = tuple(sys.version_info[:3])) -> Finding:
    """Check the version of this Python."""
    ok = version[:2] >= PYTHON_NEEDED
    return Finding(
        "Python", ok, f"{_dotted(version)} ({sys.executable})", f"use Python {_dotted(PYTHON_NEEDED)} or newer"
    )


def check_java(environ: Mapping[str, str]) -> Finding:
    """Check the Java that Spark's scripts would start: the one of JAVA_HOME, else the one on PATH."""
    home = environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environ.get("PATH"))
    advice = (
        f"Spark needs Java {JAVA_NEEDED} or newer: apt-get install openjdk-17-jre-headless, or point JAVA_HOME at one"
    )
    if java is None:
        return Finding("Java", ok=False, found="none on PATH, and JAVA_HOME is not set", advice=advice)
    output = _output_of([java, "-version"], environ)
    version = java_version(output or "")
    if version is None:
        where = f"JAVA_HOME={home}" if home else java
        return Finding("Java", ok=False, found=f"{where} is no Java that runs", advice=advice)
    return Finding("Java", version >= JAVA_NEEDED, f"{version} ({java})", advice)


def java_version(text: str) -> int | None:
    """Read the major version from the output of ``java -version``.

    Examples
    --------
    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_412"')
    (17, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def check_package(what: str, names: Iterable[str], needed: tuple[int, ...] = ()) -> Finding:
    """Check the version of an installed package, without importing it."""
    names = list(names)
    advice = f"pip install '{names[0]}{'>=' + _dotted(needed) if needed else ''}'"
    for name in names:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        numbers = tuple(int(part) for part in re.findall(r"\d+", version)[: len(needed)])
        return Finding(what, numbers >= needed, version if name == names[0] else f"{version} ({name})", advice)
    return Finding(what, ok=False, found="not installed", advice=advice)


def check_spark_python(environ: Mapping[str, str]) -> Finding:
    """Check the Python that Spark starts for tasks on this machine; if it is another one, rows cannot be fed."""
    mine = _dotted(sys.version_info[:2])
    python = environ.get("PYSPARK_PYTHON") or "python3"
    if alias_of(python):
        return Finding("Spark's Python", ok=True, found=f"{python}, from an archive that Spark unpacks on executors")
    advice = f"export PYSPARK_PYTHON={sys.executable} before Jupyter starts (`tfos-lab lab` does)"
    output = _output_of([python, "-c", _WORKER_PROBE], environ)
    last = output.strip().splitlines()[-1] if output and output.strip() else ""
    if output is None:
        return Finding("Spark's Python", ok=False, found=f"{python} does not run", advice=advice)
    if "pyarrow" in last:
        return Finding("Spark's Python", ok=False, found=f"{python} lacks pyarrow", advice=advice)
    found = f"{last} ({python})" if last == mine else f"{python} is Python {last}, and this is {mine}"
    return Finding("Spark's Python", last == mine, found, advice)


def check_gpus() -> Finding:
    """Count the GPUs; having none is fine."""
    gpus = visible_gpus()
    if not gpus:
        return Finding("GPUs", ok=True, found="none: nodes on this machine compute on the CPU")
    free = free_gpus(gpus)
    return Finding("GPUs", ok=True, found=f"{', '.join(gpus)}; {len(free) or 'none'} of {len(gpus)} free")


def check_scratch(free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free) -> Finding:
    """Check the folder for sockets and spools of nodes: it must be private and have space for rows."""
    try:
        root = scratch_root()
    except OSError as error:
        return Finding("scratch folder", ok=False, found=str(error), advice="set TMPDIR to a folder of your own")
    free = free_bytes(root)
    advice = "rows that are fed lie here: make room, or set TMPDIR to a larger disk"
    return Finding("scratch folder", free >= FREE_BYTES_NEEDED, f"{root}, {free / _GIB:.1f} GiB free", advice)


def check_runs(environ: Mapping[str, str]) -> Finding:
    """Check that the folder for the logs of runs can be written to."""
    folder = Path(environ.get("TFOS_LAB_RUNS", "runs")).absolute()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if os.access(existing, os.W_OK):
        return Finding("run folder", ok=True, found=str(folder))
    fallback = Path.home() / ".cache" / "tfos_lab" / "runs"
    advice = f"until TFOS_LAB_RUNS names another one, logs go to {fallback}"
    return Finding("run folder", ok=False, found=f"{existing} cannot be written to", advice=advice)


# ---- fork servers ---------------------------------------------------------------------------------------------------


def check_fork_servers() -> Finding:
    """Ask this user's fork servers on this machine for their state; if there are none, the first cell starts them."""
    try:
        sockets = sorted(scratch_root().glob("*/*.sock"))
    except OSError as error:
        return Finding("fork servers", ok=False, found=str(error), advice="set TMPDIR to a folder of your own")
    answers = [(path.stem.partition("-")[0], ask_fork_server(path)) for path in sockets]
    living = [(kind, answer) for kind, answer in answers if answer != "gone"]
    broken = [answer for _, answer in living if answer not in ("warm", "importing")]
    if broken:
        return Finding(
            "fork servers", ok=False, found=f"cannot import: {broken[0]}", advice="fix that, then restart the kernel"
        )
    if not living:
        return Finding("fork servers", ok=True, found="none yet: the first cell starts them")
    counts = {f"{kind} {answer}": living.count((kind, answer)) for kind, answer in living}
    return Finding("fork servers", ok=True, found=", ".join(f"{count} {which}" for which, count in counts.items()))


def ask_fork_server(path: Path) -> str:
    """Return ``"warm"``, ``"importing"``, ``"gone"``, or why the fork server behind a socket failed to import."""
    connection = ForkServerConnection.open(path)  # `connect` would start one where none runs
    if connection is None:
        return "gone"
    with connection:
        try:
            connection.ask_if_warm()
            replies = connection.replies(_FORK_SERVER_TIMEOUT_S)
        except (ConnectionClosed, OSError, msgspec.DecodeError):
            return "gone"
    if not replies:
        return "importing"  # it answers when it has imported everything
    return replies[0].reason if isinstance(replies[0], FailedReply) else "warm"


# ---- Spark ----------------------------------------------------------------------------------------------------------


def check_session(session: SparkSession | None) -> list[Finding]:
    """Check the session and, on a real cluster, its executors."""
    if session is None:
        return [Finding("Spark session", ok=True, found="none in this process: nodes would run on this machine")]
    death = spark_session.death_of(session)
    if death is not None:
        return [Finding("Spark session", ok=False, found=death, advice="make one: SparkSession.builder.getOrCreate()")]
    master = spark_session.master_of(session) or "Spark Connect"
    if spark_session.is_local(session):
        return [Finding("Spark session", ok=True, found=f"{master}: nodes run as processes of this machine")]
    slots = spark_session.slots_of(session)
    free = f", {slots.free} of {slots.total} task slots free" if slots else ""
    advice = "add executors or cores, or stop what holds them (%tfos stop all)"
    return [
        Finding("Spark session", slots is None or slots.free > 0, f"{master}{free}", advice),
        *check_archive(session),
        *check_executors(session),
    ]


def check_archive(session: SparkSession) -> list[Finding]:
    """Check the archive that executors get their Python from, if they are to have one."""
    python = python_of(session)
    if not alias_of(python):
        return []
    archives = spark_session.conf(session, "spark.archives") or spark_session.conf(session, "spark.yarn.dist.archives")
    problem = problem_with(archives, python, Inventory.of_this_python())
    return [Finding("environment", not problem, problem or f"{python}, from {archives}", _PACK)]


def check_executors(session: SparkSession) -> list[Finding]:
    """Run a small job that reports what the executors have installed; it also begins to warm them."""
    try:
        facts = inspect_executors(session, 1, {})
    except TfosError as error:
        return [Finding("executors", ok=False, found=str(error), advice=_PACK)]
    except Exception as error:  # noqa: BLE001 - whatever Spark raises is the finding
        first = str(error).strip().splitlines()[0] if str(error).strip() else ""
        return [Finding("executors", ok=False, found=f"{type(error).__name__}: {first}")]
    return [judge_executor(fact) for fact in facts]


def judge_executor(fact: Mapping[str, str]) -> Finding:
    """Return the finding for one executor's report."""
    mine = _dotted(sys.version_info[:2])
    what = f"executor {fact['executor']}".rstrip()
    problems = [f"lacks {fact['missing']}"] if fact["missing"] else []
    if stale := unpacked_problem(fact.get("environment", ""), Inventory.of_this_python(), fact.get("platform", "")):
        problems.append(stale)
    if fact["python"] != mine:
        problems.append(f"its Python is {fact['python']}, and this is {mine}")
    gpus = f", GPUs {fact['gpus']}" if fact.get("gpus") else ""
    found = f"{fact['host']}: {'; '.join(problems) or f'Python {mine}, all packages'}{gpus}"
    advice = f"give it the packages, point spark.pyspark.python at a Python that has them, or {_PACK}"
    return Finding(what, not problems, found, advice)


# ---- small helpers --------------------------------------------------------------------------------------------------


def _output_of(command: list[str], environ: Mapping[str, str]) -> str | None:
    """Return the output of a command, or None if there is no such command or it hangs."""
    program = shutil.which(command[0], path=environ.get("PATH"))
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, *command[1:]],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace")


def _dotted(version: Iterable[int]) -> str:
    return ".".join(map(str, version))
