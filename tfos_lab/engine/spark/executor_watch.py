"""Watches the executors that nodes live on: Spark may take one back, and says why only if it is asked.

While a node's task runs, Spark's job fails with its executor. A node that has given its slot back is in none of
Spark's books any more, and neither is a task that Spark quietly starts once more.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tfos_lab.data.frames import is_connect
from tfos_lab.engine.spark import session as spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S = 1.0
# Spark may hear of an executor's end after the node; other nodes' echoes of it are taken for a cause soon after.
_TOLD_S = 1.0
_ASK_S = 0.05
# What Spark says of executors that it has ended itself.
_TAKEN_BACK = "killed by driver"
_IDLE_TIMEOUT = "spark.dynamicAllocation.cachedExecutorIdleTimeout"
_NOT_TOLD = (
    "its executor has ended. Whether it failed, or Spark took it back, Spark Connect does not tell: see the server's "
    f"log, and leave {_IDLE_TIMEOUT} there at its default"
)


class ExecutorWatch(threading.Thread):
    """Tells when an executor is gone that has nodes on it (``tfos-executors-<cluster>``).

    Parameters
    ----------
    cluster_id : str
        For the thread's name.
    spark : SparkSession
        Whose executors they are; through Spark Connect, only the nodes themselves tell.
    executors : callable
        Returns the executors that nodes live on, by Spark's identifiers.
    lose : callable
        Called with an executor that is gone, and why.
    """

    def __init__(
        self,
        cluster_id: str,
        spark: SparkSession,
        executors: Callable[[], set[str]],
        lose: Callable[[str, str], None],
    ) -> None:
        super().__init__(name=f"tfos-executors-{cluster_id}", daemon=True)
        self._spark = spark
        self._executors = executors
        self._lose = lose
        self._woken = threading.Event()
        self._closed = False
        self._heard: deque[str] = deque()
        self._seen: set[str] = set()
        self._told: set[str] = set()

    def on_executor_end(self, executor: str) -> None:
        """A node has seen its executor end; safe from any thread."""
        self._heard.append(executor)
        self._woken.set()

    def close(self) -> None:
        """End the thread; it is not waited for, as Spark may be slow to answer."""
        self._closed = True
        self._woken.set()

    def run(self) -> None:
        """Look after the executors until the watch is closed."""
        while not self._closed:
            for executor in self._gone():
                why = self._why(executor)
                if not self._closed:
                    self._lose(executor, why)
            self._woken.wait(_POLL_S)
            self._woken.clear()

    def _gone(self) -> set[str]:
        """Return executors that are gone and have not been told of."""
        gone = set()
        while self._heard:
            gone.add(self._heard.popleft())
        known = executors_of(self._spark)
        if known is not None:
            ours = self._executors()
            gone |= (ours & self._seen) - known | (ours & executors_taken_back(self._spark))
            self._seen |= ours & known
        gone -= self._told
        self._told |= gone
        return gone

    def _why(self, executor: str) -> str:
        if is_connect(self._spark):
            return _NOT_TOLD
        deadline = time.monotonic() + _TOLD_S
        while (reason := removal_of(self._spark, executor)) is None and time.monotonic() < deadline:
            time.sleep(_ASK_S)
        if reason is None:
            return "its executor has ended, and Spark does not say why"
        timeout = spark_session.conf(self._spark, _IDLE_TIMEOUT)
        return removal_text(reason, timeout if spark_session.allocates_dynamically(self._spark) else "")


def executors_of(spark: SparkSession) -> set[str] | None:
    """Return the executors that Spark has now; None where it does not tell."""
    with contextlib.suppress(Exception):  # the session may be gone
        if not is_connect(spark):
            scheduler = spark.sparkContext._jsc.sc().taskScheduler()  # noqa: SLF001 - it has no Python name
            names = scheduler.runningTasksByExecutors().keySet().iterator()
            return set(_strings(names))
    return None


def executors_taken_back(spark: SparkSession) -> set[str]:
    """Return the executors that dynamic allocation is taking back; Spark counts them as its own until they have ended.

    A standalone cluster tells of their end only after some seconds.
    """
    with contextlib.suppress(Exception):  # the session may be gone
        manager = spark.sparkContext._jsc.sc().executorAllocationManager()  # noqa: SLF001 - it has no Python name
        if manager.isDefined():
            return set(_strings(manager.get().executorMonitor().executorsPendingToRemove().iterator()))
    return set()


def _strings(iterator: Any) -> Iterator[str]:
    while iterator.hasNext():
        yield str(iterator.next())


def removal_of(spark: SparkSession, executor: str) -> str | None:
    """Return why Spark has removed an executor, or does so now; None if it does not say."""
    if executor in executors_taken_back(spark):
        return f"Executor {_TAKEN_BACK}"
    with contextlib.suppress(Exception):  # the session may be gone
        summaries = spark.sparkContext._jsc.sc().statusStore().executorList(False)  # noqa: FBT003, SLF001 - no Python name
        for index in range(summaries.size()):
            summary = summaries.apply(index)
            if summary.id() == executor and summary.removeReason().isDefined():
                return str(summary.removeReason().get())
    return None


def removal_text(reason: str, idle_timeout: str) -> str:
    """Say why Spark has removed an executor.

    Parameters
    ----------
    reason : str
        Spark's own words.
    idle_timeout : str
        After what time Spark takes executors back that hold nodes; empty where it does not take any.
    """
    reason = reason.strip().rstrip(".")
    if _TAKEN_BACK not in reason:
        return f"Spark has lost its executor: {reason}"
    taken = f"Spark took its executor back ({reason})"
    if not idle_timeout:
        return taken
    return (
        f"{taken}, which it does after {_IDLE_TIMEOUT}={idle_timeout} where no task runs, though nodes do: leave that "
        "setting at its default, or raise it"
    )
