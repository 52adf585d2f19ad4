"""Checks executors before nodes are launched on them: their Python version and packages, by host."""

from __future__ import annotations

import contextlib
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tfos_lab.core.environments import this_platform
from tfos_lab.crossing import own_error_in
from tfos_lab.data.frames import is_connect
from tfos_lab.data.spark_python import is_unchosen
from tfos_lab.engine.spark import session as spark_session
from tfos_lab.engine.spark.archived import make_task
from tfos_lab.errors import ExecutorMismatch

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_SCHEMA = (
    "host string, executor string, python string, problem string, platform string, environment string, gpus string"
)
_LOST_TASK = re.compile(r"\(TID \d+\) \(([^)\s]+) executor (\S+?)\)")
_WORKER_PYTHON = re.compile(r"(?:worker has different version|PYTHON_VERSION_MISMATCH)[^\d]*(\d+\.\d+)")
# An archive of another system, or for another processor: the Python itself, or the first library that it loads.
_OTHER_PLATFORM = re.compile(r"Exec format error|invalid ELF header|wrong ELF class|not a mach-o file", re.IGNORECASE)
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")

_END_S = 3.0
_POLL_S = 0.1
_TASKS_LOGGER = "org.apache.spark.scheduler.TaskSetManager"

# Applications whose executors were checked, with the environments that were warmed there.
_checked: set[tuple[str, str]] = set()


def check_executors(spark: SparkSession, nodes: int, extra_env: dict[str, str], *, tag: str = "") -> None:
    """Check the executors once per application and environment, and begin to warm them.

    The Spark job for this can be cancelled by its ``tag``.

    Raises
    ------
    ExecutorMismatch
        If a host lacks a package, has one that is too old, or runs another Python minor version; names each host.
    """
    key = (spark_session.owner_of(spark), repr(sorted(extra_env.items())))
    if key in _checked:
        return
    facts = inspect_executors(spark, nodes, extra_env, tag=tag)
    problems = {fact["host"]: fact["problem"] for fact in facts if fact["problem"]}
    if problems:
        raise ExecutorMismatch(problems=problems, unchosen=is_unchosen(spark))
    _checked.add(key)


def inspect_executors(
    spark: SparkSession, nodes: int, extra_env: dict[str, str], *, tag: str = ""
) -> list[dict[str, str]]:
    """Run a small task on (most likely) all executors; returns the facts of `inspect_and_warm`, one dict for each.

    Raises
    ------
    ExecutorMismatch
        If Spark itself refuses an executor's Python.
    """
    task = make_task("tfos_lab.node.spark_task", "inspect_task", spark_session.owner_of(spark), extra_env)
    rows = collect_from_executors(spark, nodes, task, _SCHEMA, tag=tag)
    return list({(row["host"], row["executor"]): row.asDict() for row in rows}.values())


def collect_from_executors(
    spark: SparkSession, nodes: int, task: Callable[..., Any], schema: str, *, tag: str = ""
) -> list[Row]:
    """Run a task of `make_task` on (most likely) all executors, at least ``nodes`` times; returns its rows.

    Raises
    ------
    ExecutorMismatch
        If Spark itself refuses an executor's Python.
    """
    slots = spark_session.slots_of(spark)
    tasks = max(nodes, slots.total if slots else nodes)
    tag = tag or f"{spark_session.INSPECTION}-{secrets.token_hex(4)}"
    what = "tfos_lab: look at the executors and warm them"
    try:
        with (
            spark_session.tagged(spark, spark_session.INSPECTION, what),
            spark_session.tagged(spark, tag, what),
            _without_traces(spark),
        ):
            return spark.range(0, tasks, 1, tasks).mapInArrow(task, schema).collect()
    except Exception as error:
        mismatch = mismatch_in(error, lambda: spark_session.hosts_of_failed_tasks(spark, tag))
        if mismatch is None:
            raise
        raise ExecutorMismatch(problems=mismatch.problems, unchosen=is_unchosen(spark)) from None


@contextlib.contextmanager
def _without_traces(spark: SparkSession) -> Iterator[None]:
    """Keep the traces of failing tasks out of the driver's log: each is logged four times, for one sentence of ours."""
    loggers: Any = None
    with contextlib.suppress(Exception):  # other ways of logging
        if not is_connect(spark):
            log4j: Any = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # noqa: SLF001
            loggers = log4j.LogManager.getContext(False)  # noqa: FBT003
            if loggers.getConfiguration().getLoggers().containsKey(_TASKS_LOGGER):
                loggers = None  # the user has chosen what is logged
            else:
                log4j.core.config.Configurator.setLevel(_TASKS_LOGGER, log4j.Level.OFF)
    try:
        yield
    except Exception:
        _await_end(spark)
        raise
    finally:
        with contextlib.suppress(Exception):  # the session may be gone
            if loggers is not None:
                loggers.getConfiguration().removeLogger(_TASKS_LOGGER)
                loggers.updateLoggers()


def _await_end(spark: SparkSession) -> None:
    """Wait, for some seconds at most, until the tasks have ended that Spark kills with the one that has failed."""
    until_s = time.monotonic() + _END_S
    with contextlib.suppress(Exception):  # the session may be gone
        while (slots := spark_session.slots_of(spark)) and slots.free < slots.total and time.monotonic() < until_s:
            time.sleep(_POLL_S)
    time.sleep(_POLL_S)


def mismatch_in(error: Exception, failed_hosts: Callable[[], list[str]]) -> ExecutorMismatch | None:
    """Return what Spark's error says about an executor's Python, or None if it is about something else.

    Parameters
    ----------
    error : Exception
        The error of a job that runs one of our tasks.
    failed_hosts : callable
        Returns the hosts whose tasks failed; Spark's error does not always name them.
    """
    own = own_error_in(error)
    if isinstance(own, ExecutorMismatch):
        return own
    text = str(error)
    what = _wrong_python(text)
    if what is None:
        return None
    lost_task = _LOST_TASK.search(text)
    hosts = [lost_task[1]] if lost_task else failed_hosts() or ["an executor"]
    return ExecutorMismatch(problems=dict.fromkeys(hosts, what))


def _wrong_python(text: str) -> str | None:
    python = _WORKER_PYTHON.search(text)
    unimportable = _NO_MODULE.search(text)
    if python is not None:
        return f"runs Python {python[1]}, the notebook runs {sys.version_info.major}.{sys.version_info.minor}"
    if unimportable is not None and "worker.py" in text:
        return f"lacks {unimportable[1]}"
    if _OTHER_PLATFORM.search(text):
        return f"has packages for another platform than its own (this machine is {this_platform()})"
    if "Cannot run program" in text:
        program = re.search(r'Cannot run program "([^"]+)"', text)
        return f"has no {program[1] if program else 'Python'}"
    return None
