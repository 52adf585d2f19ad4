"""Watches the executors of a cluster's nodes: Spark may remove one, and does not report why unless it is asked.

While a node's task runs, Spark's job fails with its executor. When a node has given its slot back, Spark no longer
knows of it, and nothing fails.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tfos_lab.data.frames import is_connect
from tfos_lab.engine.spark import session as spark_session
from tfos_lab.engine.spark.servers import lost_connect_server, lost_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S = 1.0
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


class ExecutorWatch(threading.Thread):
    """Reports executors with nodes on them that have gone (``tfos-executors-<cluster>``).

    Parameters
    ----------
    cluster_id : str
        For the thread's name.
    spark : SparkSession
        Whose executors they are. Spark Connect does not list them; there the nodes' own reports count.
    executors : callable
        Returns the executors that nodes live on, by Spark's identifiers.
    lose : callable
        Called with an executor that has gone, and why.
    lose_server : callable
        Called before that with a clause, if an executor has gone with Spark Connect's server.
    """

    def __init__(
        self,
        cluster_id: str,
        spark: SparkSession,
        executors: Callable[[], set[str]],
        lose: Callable[[str, str], None],
        lose_server: Callable[[str], None],
    ) -> None:
        super().__init__(name=f"tfos-executors-{cluster_id}", daemon=True)
        self._spark = spark
        self._executors = executors
        self._lose = lose
        self._lose_server = lose_server
        self._wake = threading.Event()
        self._closed = False
        self._reports: deque[str] = deque()
        self._seen: set[str] = set()
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
                    self._lose(executor, why)
            self._wake.wait(_POLL_S)
            self._wake.clear()

    def _gone(self) -> set[str]:
        """Return executors that have gone and have not been reported yet."""
        gone = set()
        while self._reports:
            gone.add(self._reports.popleft())
        known = executors_of(self._spark)
        if known is not None:
            ours = self._executors()
            gone |= (ours & self._seen) - known | (ours & executors_being_removed(self._spark))
            # Those that have gone before they were seen; what is none of Spark's executors has no such entry.
            gone |= {one for one in ours - known - self._seen if removal_of(self._spark, one) is not None}
            self._seen |= ours & known
        gone -= self._reported
        self._reported |= gone
        return gone

    def _why(self, executor: str) -> str:
        if is_connect(self._spark):
            return self._why_with_connect(time.monotonic() + _SERVER_TIMEOUT_S)
        deadline = time.monotonic() + _REASON_TIMEOUT_S
        while (reason := removal_of(self._spark, executor)) is None and time.monotonic() < deadline:
            time.sleep(_REASON_POLL_S)
        if reason is None:
            why = "its executor has ended, and Spark does not say why"
        else:
            timeout = spark_session.conf(self._spark, _IDLE_TIMEOUT)
            why = removal_text(reason, timeout if spark_session.allocates_dynamically(self._spark) else "")
        return "; ".join(filter(None, [why, lost_server(self._spark)]))

    def _why_with_connect(self, deadline: float) -> str:
        """Return why an executor has ended as far as can be seen from here: its server may be about to end, too."""
        while not (lost := lost_connect_server(self._spark)) and time.monotonic() < deadline:
            time.sleep(_REASON_POLL_S)
        if not lost:
            return _REASON_UNKNOWN
        if not self._closed:
            self._lose_server(lost)
        return lost


def executors_of(spark: SparkSession) -> set[str] | None:
    """Return the executors that Spark has now; None if it does not list them."""
    with contextlib.suppress(Exception):  # the session may be gone
        if not is_connect(spark):
            scheduler = spark.sparkContext._jsc.sc().taskScheduler()  # noqa: SLF001 - it has no Python name
            names = scheduler.runningTasksByExecutors().keySet().iterator()
            return set(_strings(names))
    return None


def executors_being_removed(spark: SparkSession) -> set[str]:
    """Return the executors that dynamic allocation is removing; Spark lists them until they have ended.

    A standalone cluster reports their end only after some seconds.
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
    """Return why Spark has removed or is removing an executor; None if it does not say."""
    if executor in executors_being_removed(spark):
        return f"Executor {_KILLED_BY_DRIVER}"
    with contextlib.suppress(Exception):  # the session may be gone
        summaries = spark.sparkContext._jsc.sc().statusStore().executorList(False)  # noqa: FBT003, SLF001 - no Python name
        for index in range(summaries.size()):
            summary = summaries.apply(index)
            if summary.id() == executor and summary.removeReason().isDefined():
                return str(summary.removeReason().get())
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


def removal_text(reason: str, idle_timeout: str) -> str:
    """Return a sentence on why Spark has removed an executor.

    Parameters
    ----------
    reason : str
        The reason as Spark gives it.
    idle_timeout : str
        After what time Spark removes idle executors that hold nodes; empty without dynamic allocation.
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
