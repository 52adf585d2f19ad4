"""Executors: checked before nodes are launched on them, by host, and watched while nodes live on them.

Spark may remove an executor, and does not report why unless it is asked. While a node's task runs, Spark's job fails
with its executor; when a node has given its slot back, Spark no longer knows of it, and nothing fails.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tfos_lab.core.code_archive import make_task
from tfos_lab.core.crossing import own_error_in
from tfos_lab.data.frames import is_connect
from tfos_lab.data.spark_python import is_unchosen, wrong_python
from tfos_lab.errors import ExecutorMismatch
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.launchers.spark.session import lost_connect_server, lost_server
from tfos_lab.launchers.spark.slots import slots_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tfos_lab.driver.head import Head

_LOST_TASK = re.compile(r"\(TID \d+\) \(([^)\s]+) executor (\S+?)\)")
_END_S = 3.0
_POLL_S = 0.1
_WATCH_S = 1.0
# Spark may notice an executor's end later than the node. The errors that it causes on other nodes wait a little longer.
_REASON_TIMEOUT_S = 3.0
# Spark Connect never says why: only the end of its server would.
_SERVER_TIMEOUT_S = 1.0
_REASON_POLL_S = 0.05
# Spark's reason for executors that it has ended itself.
_KILLED_BY_DRIVER = "killed by driver"
_IDLE_TIMEOUT = "spark.dynamicAllocation.cachedExecutorIdleTimeout"
# Kubernetes' word for how a container has ended.
_TERMINATION = re.compile(r"termination reason: (\w+)")
_UNTELLING = ("Error", "N")  # "N/A"
_CODE = re.compile(r"(code -?\d+)\(")
_REASON_UNKNOWN = (
    "its executor has ended. Whether it failed, or Spark took it back, Spark Connect does not tell: see the server's "
    f"log, and leave {_IDLE_TIMEOUT} there at its default"
)

# Applications whose executors were checked, with the environments that were warmed there.
_checked: set[tuple[str, str]] = set()


class ExecutorFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one executor reports, made by `tfos_lab.node.spark_task.inspect_task`; the last ones if it was asked."""

    host: str
    # Spark's id.
    executor: str
    # The minor version, such as ``"3.11"``.
    python: str
    # Why no node can run there, as half a sentence; "" if one can.
    problem: str
    platform: str
    # The manifest of the archive that its Python is from, or "".
    environment: str
    # Those of the host, separated by commas.
    gpus: str
    # Of the packages in `tfos_lab.core.package_versions.COMPARED`, those that are installed.
    versions: dict[str, str] = {}
    clock_s: float = 0.0
    # Free bytes of /dev/shm; None where there is none.
    shared_memory_bytes: int | None = None
    # Why it cannot connect to the driver's machine; "" if it can.
    unreachable: str = ""
    # Whether it finds the file that the driver has made in the run folder.
    sees_probe: bool = False


def check_executors(spark: SparkSession, nodes: int, extra_env: dict[str, str], *, tag: str = "") -> None:
    """Check the executors once per application and environment, and begin to warm them.

    The Spark job for this can be cancelled by its ``tag``. Raises ExecutorMismatch if a host lacks a package, has one
    that is too old, or runs another Python minor version; names each host.
    """
    key = (spark_session.owner_of(spark), repr(sorted(extra_env.items())))
    if key in _checked:
        return
    facts = inspect_executors(spark, nodes, extra_env, tag=tag)
    problems = {fact.host: fact.problem for fact in facts if fact.problem}
    if problems:
        raise ExecutorMismatch(problems=problems, unchosen=is_unchosen(spark))
    _checked.add(key)


def inspect_executors(
    spark: SparkSession,
    nodes: int,
    extra_env: dict[str, str],
    *,
    tag: str = "",
    questions: Mapping[str, Any] | None = None,
) -> list[ExecutorFacts]:
    """Run a small task on (most likely) all executors, at least ``nodes`` times; returns what each of them reports.

    ``questions`` are those of `tfos_lab.node.spark_task.inspect_task`. Raises ExecutorMismatch if Spark itself refuses
    an executor's Python, and NoSession if the session ends meanwhile.
    """
    task = make_task("tfos_lab.node.spark_task", "inspect_task", spark_session.owner_of(spark), extra_env, questions)
    slots = slots_of(spark)
    tasks = max(nodes, slots.total if slots else nodes)
    tag = tag or f"{spark_session.INSPECTION}-{secrets.token_hex(4)}"
    what = "tfos_lab: look at the executors and warm them"
    try:
        with (
            spark_session.tagged(spark, spark_session.INSPECTION, what),
            spark_session.tagged(spark, tag, what),
            spark_session.without_noise(spark, spark_session.TASK_TRACES),
        ):
            try:
                rows = spark.range(0, tasks, 1, tasks).mapInArrow(task, "facts string").collect()
            except Exception:
                _await_end(spark)  # their traces are noise, too
                raise
    except Exception as error:
        mismatch = mismatch_in(error, lambda: spark_session.hosts_of_failed_tasks(spark, tag))
        if mismatch is None:
            spark_session.require_alive(spark)  # Spark's own words are none where it is stopped meanwhile
            raise
        raise ExecutorMismatch(problems=mismatch.problems, unchosen=is_unchosen(spark)) from None
    facts = [msgspec.json.decode(row["facts"], type=ExecutorFacts) for row in rows]
    return list({(fact.host, fact.executor): fact for fact in facts}.values())


def _await_end(spark: SparkSession) -> None:
    """Wait, for some seconds at most, until the tasks have ended that Spark kills with the one that has failed."""
    until_s = time.monotonic() + _END_S
    with contextlib.suppress(Exception):  # the session may be gone
        while (slots := slots_of(spark)) and slots.free < slots.total and time.monotonic() < until_s:
            time.sleep(_POLL_S)
    time.sleep(_POLL_S)


def mismatch_in(error: Exception, failed_hosts: Callable[[], list[str]]) -> ExecutorMismatch | None:
    """Return what Spark's error says about an executor's Python, or None if it is about something else.

    ``failed_hosts`` returns the hosts whose tasks failed; Spark's error does not always name them.
    """
    own = own_error_in(error)
    if isinstance(own, ExecutorMismatch):
        return own
    text = str(error)
    what = wrong_python(text)
    if not what:
        return None
    lost_task = _LOST_TASK.search(text)
    hosts = [lost_task[1]] if lost_task else failed_hosts() or ["an executor"]
    return ExecutorMismatch(problems=dict.fromkeys(hosts, what))


# ---- while nodes live on them ---------------------------------------------------------------------------------------


class ExecutorWatch(threading.Thread):
    """Reports executors with nodes on them that have gone (``tfos-executors-<cluster>``).

    A node reports the end of its executor, unless it has ended with that: of nodes that are cut off, Spark is asked,
    but for Spark Connect, which does not list executors. ``lose_server`` is called with a clause before an executor is
    reported that has gone with Spark Connect's server.
    """

    def __init__(self, head: Head, spark: SparkSession, lose_server: Callable[[str], None]) -> None:
        super().__init__(name=f"tfos-executors-{head.cluster.id}", daemon=True)
        self._head = head
        self._spark = spark
        self._lose_server = lose_server
        self._wake = threading.Event()
        self._closed = False
        self._reports: deque[str] = deque()
        self._reported: set[str] = set()

    def on_executor_end(self, executor: str) -> None:
        """Handle a node's report that its executor has ended; safe from any thread."""
        self._reports.append(executor)
        self._wake.set()

    def close(self) -> None:
        """End the thread, without waiting for it: Spark may be slow to answer."""
        self._closed = True
        self._wake.set()

    def run(self) -> None:
        """Watch until `close` is called."""
        while not self._closed:
            for executor in self._gone():
                why = self._why(executor)
                if not self._closed:
                    self._head.lose_executor(executor, why)
            self._wake.wait(_WATCH_S)
            self._wake.clear()

    def _gone(self) -> set[str]:
        gone = set()
        while self._reports:
            gone.add(self._reports.popleft())
        if not is_connect(self._spark):
            gone |= {one for one in self._head.executors_cut_off() if _removal_of(self._spark, one) is not None}
        gone -= self._reported
        self._reported |= gone
        return gone

    def _why(self, executor: str) -> str:
        if is_connect(self._spark):
            return self._why_with_connect()
        deadline = time.monotonic() + _REASON_TIMEOUT_S
        while (reason := _removal_of(self._spark, executor)) is None and time.monotonic() < deadline:
            time.sleep(_REASON_POLL_S)
        if reason is None:
            why = "its executor has ended, and Spark does not say why"
        else:
            timeout = spark_session.conf(self._spark, _IDLE_TIMEOUT)
            why = _removal_text(reason, timeout if spark_session.allocates_dynamically(self._spark) else "")
        return "; ".join(filter(None, [why, lost_server(self._spark)]))

    def _why_with_connect(self) -> str:
        """Return why an executor has ended as far as can be seen from here: its server may be about to end, too."""
        deadline = time.monotonic() + _SERVER_TIMEOUT_S
        while not (lost := lost_connect_server(self._spark)) and time.monotonic() < deadline:
            time.sleep(_REASON_POLL_S)
        if not lost:
            return _REASON_UNKNOWN
        if not self._closed:
            self._lose_server(lost)
        return lost


def _removal_of(spark: SparkSession, executor: str) -> str | None:
    """Return why Spark has removed or is removing an executor; None if it does not say, or has not."""
    with contextlib.suppress(Exception):  # the session may be gone, or the executor none of Spark's
        scala = spark.sparkContext._jsc.sc()  # noqa: SLF001 - executors have no Python name
        manager = scala.executorAllocationManager()
        # A standalone cluster reports the end of those that dynamic allocation removes only after some seconds.
        if manager.isDefined() and manager.get().executorMonitor().executorsPendingToRemove().contains(executor):
            return f"Executor {_KILLED_BY_DRIVER}"
        reason = scala.statusStore().executorSummary(executor).removeReason()
        return str(reason.get()) if reason.isDefined() else None
    return None


def loss_reason(text: str) -> str:
    r"""Return why an executor was lost in one line, without a stop; on Kubernetes, Spark adds a page to the sentence.

    Examples
    --------
    >>> loss_reason("\n The executor exited with exit code 137.\n The API gave ...:\n termination reason: OOMKilled\n")
    'The executor exited with exit code 137; its container: OOMKilled'
    """
    first = text.strip().partition("\n")[0].strip().rstrip(".")
    first = _CODE.sub(r"\1 (", first)
    ended = _TERMINATION.search(text)
    return f"{first}; its container: {ended[1]}" if ended and ended[1] not in _UNTELLING else first


def _removal_text(reason: str, idle_timeout: str) -> str:
    """Return a sentence on why Spark has removed an executor, from the reason as Spark gives it.

    ``idle_timeout`` is after what time Spark removes idle executors that hold nodes; empty without dynamic allocation.
    """
    reason = loss_reason(reason)
    if _KILLED_BY_DRIVER not in reason:
        return f"Spark has lost its executor: {reason}"
    taken = f"Spark took its executor back ({reason})"
    if not idle_timeout:
        return taken
    return (
        f"{taken}, which it does after {_IDLE_TIMEOUT}={idle_timeout} where no task runs, though nodes do: leave that "
        "setting at its default, or raise it"
    )
