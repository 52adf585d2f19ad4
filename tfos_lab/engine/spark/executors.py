"""Checks executors before nodes are launched on them: their Python version and packages, by host."""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfos_lab.core.environments import this_platform
from tfos_lab.engine.spark import session as spark_session
from tfos_lab.engine.spark.archived import make_task
from tfos_lab.errors import ExecutorMismatch
from tfos_lab.errors.channel import own_error_in

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
        raise ExecutorMismatch(problems=problems)
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
        with spark_session.tagged(spark, spark_session.INSPECTION, what), spark_session.tagged(spark, tag, what):
            return spark.range(0, tasks, 1, tasks).mapInArrow(task, schema).collect()
    except Exception as error:
        mismatch = mismatch_in(error, lambda: spark_session.hosts_of_failed_tasks(spark, tag))
        if mismatch is None:
            raise
        raise mismatch from None


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
