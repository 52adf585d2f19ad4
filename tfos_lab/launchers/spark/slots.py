"""The task slots of a session's executors, and the wait for executors that have not come yet."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfos_lab.core.threads import uninterrupted
from tfos_lab.data.frames import is_connect
from tfos_lab.data.spark_python import unchosen_text
from tfos_lab.launchers.spark.session import (
    INSPECTION,
    allocates_dynamically,
    conf,
    lost_server,
    master_of,
    require_alive,
)
from tfos_lab.texts import format_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tfos_lab.driver.head import Head

# A new session may have no executors yet, and their JVMs take long on busy hosts; they are complete when their number
# has not changed for a while.
_NEW_SESSION_S = 60.0
_SETTLED_S = 5.0
_LEAVING_S = 3.0
# No job runs any more but ours that look at executors: what holds slots ends, and takes longer on a busy machine.
_CANCELLED_S = 30.0
_POLL_S = 0.05
# Pods take a moment to start; those that take longer are worth a note.
_QUIET_S = 3.0
# Others give what they have, such as a standalone cluster.
_YARN = "yarn"
_KUBERNETES = "k8s://"
_ASKED_FOR_A_NUMBER = (_KUBERNETES, _YARN)
_DEFAULT = "2"
_MOST_EXECUTORS = "spark.dynamicAllocation.maxExecutors"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Slots:
    """Task slots of the session's executors."""

    total: int
    free: int


@uninterrupted()
def slots_of(spark: SparkSession) -> Slots | None:
    """Return how many tasks can run at once and how many more could start now; None if Spark does not tell.

    Raises NoSession if the session is being stopped just now.
    """
    if is_connect(spark):
        return None
    try:
        scala: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001 - the scheduler's numbers have no Python name
        total = int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))
        # From the scheduler itself: `statusTracker` may be a heartbeat behind.
        running = scala.taskScheduler().runningTasksByExecutors().values().iterator()
        busy = 0
        while running.hasNext():
            busy += int(running.next())
        return Slots(total=total, free=max(0, total - busy))
    except Exception:
        require_alive(spark)  # one that is being stopped has no scheduler any more
        raise


def gpus_per_task(spark: SparkSession) -> int | None:
    """Return how many GPUs Spark assigns to each task; None if it assigns none, or does not tell."""
    amount = "" if is_connect(spark) else conf(spark, "spark.task.resource.gpu.amount")
    with contextlib.suppress(ValueError):
        return max(1, int(float(amount)))  # a part of one is a whole one that tasks share
    return None


def await_slots(
    spark: SparkSession, wanted: int, tell: Callable[[], object] | None = None, *, patience_s: float = 0.0
) -> Slots | None:
    """Return the session's slots as soon as ``wanted`` are free, or no more are to be expected.

    Tasks of a cluster that has just ended take a moment to leave, and executors of a new session a moment to start.
    Under dynamic allocation, or if Spark does not report slots, there is nothing to wait for: returns None. ``tell`` is
    called again and again while executors are awaited: for ``patience_s`` from now, however old the session is.
    """
    if is_connect(spark) or allocates_dynamically(spark):
        return None
    called_s = changed_s = time.time()
    with uninterrupted():
        started_s = spark.sparkContext.startTime / 1000
    awaited_until_s = max(started_s + _NEW_SESSION_S, called_s + patience_s)
    total = -1
    while True:
        slots = slots_of(spark)
        now_s = time.time()
        if slots is None or slots.free >= wanted:
            return slots
        if slots.total != total:
            total, changed_s = slots.total, now_s
        coming = now_s < awaited_until_s and (total == 0 or now_s - changed_s < _SETTLED_S)
        leaving = slots.free < min(total, wanted) and _tasks_leave(spark, now_s - called_s)
        if not coming and not leaving:
            return slots
        if tell is not None and coming:
            tell()
        time.sleep(_POLL_S)


def _tasks_leave(spark: SparkSession, waited_s: float) -> bool:
    """Whether tasks that hold slots may still be about to end, after some time."""
    if waited_s < _LEAVING_S:
        return True
    if waited_s > _CANCELLED_S:
        return False
    jobs = set(spark.sparkContext.statusTracker().getActiveJobsIds())
    tracker = spark.sparkContext._jsc.sc().statusTracker()  # noqa: SLF001 - tags have no Python name
    return jobs <= set(tracker.getJobIdsForTag(INSPECTION))


def executors_asked(spark: SparkSession) -> int:
    """Return how many executors Spark keeps asking its cluster manager for; 0 if it takes what there is."""
    asks = master_of(spark).startswith(_ASKED_FOR_A_NUMBER)
    if not asks or allocates_dynamically(spark):
        return 0
    return int(conf(spark, "spark.executor.instances", _DEFAULT))


def coming_slots(spark: SparkSession) -> int:
    """Return how many task slots the executors will have that Spark has asked for, and that have not come yet.

    Raises NoSession if the session is being stopped just now.
    """
    asked = 0 if is_connect(spark) else executors_asked(spark)
    if not asked:
        return 0
    try:
        return max(0, asked - _executors_here(spark)) * _slots_of_an_executor(spark)
    except Exception:
        require_alive(spark)  # one that is being stopped has no scheduler any more
        raise


def _most_slots(spark: SparkSession) -> int | None:
    """Return how many task slots dynamic allocation may bring at most; None without a limit, or where it is unknown."""
    most = "" if is_connect(spark) or not allocates_dynamically(spark) else conf(spark, _MOST_EXECUTORS)
    # An executor of a standalone cluster has all cores of its host otherwise.
    is_known = master_of(spark).startswith(_ASKED_FOR_A_NUMBER) or conf(spark, "spark.executor.cores")
    return int(most) * _slots_of_an_executor(spark) if most.isdigit() and is_known else None


def _slots_of_an_executor(spark: SparkSession) -> int:
    scala: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001 - the scheduler's numbers have no Python name
    return int(scala.resourceProfileManager().defaultResourceProfile().maxTasksPerExecutor(scala.conf()))


def ungranted_text(spark: SparkSession) -> str:
    """Return a clause on executors that YARN or Kubernetes has not granted yet; "" if all are here, and elsewhere."""
    if is_connect(spark) or not master_of(spark).startswith(_ASKED_FOR_A_NUMBER):
        return ""
    with contextlib.suppress(Exception):  # the session may be gone
        asked, here = executors_asked(spark), _executors_here(spark)
        if not asked or here < asked:
            granted = f"{here} of {format_count(asked, 'executor')}" if asked else format_count(here, "executor")
            return _on_yarn(spark, granted) if master_of(spark) == _YARN else _on_kubernetes(spark, granted)
    return ""


def _on_yarn(spark: SparkSession, granted: str) -> str:
    queue = conf(spark, "spark.yarn.queue", "default")
    return (
        f"YARN has granted {granted} so far (if no more come, queue '{queue}' has no room for them: wait until "
        "others have ended, or ask for less by spark.executor.memory, memoryOverhead and cores)"
    )


def _on_kubernetes(spark: SparkSession, granted: str) -> str:
    namespace = conf(spark, "spark.kubernetes.namespace", "default")
    pods = f"spark-app-selector={conf(spark, 'spark.app.id')}"
    return (
        f"Kubernetes has started {granted} so far (why others wait: kubectl -n {namespace} describe pods -l {pods}; "
        "why there are none: Spark's log)"
    )


def _executors_here(spark: SparkSession) -> int:
    scala = spark.sparkContext._jsc.sc()  # noqa: SLF001 - the scheduler's numbers have no Python name
    return int(scala.taskScheduler().runningTasksByExecutors().size())


class Arrival:
    """The wait for executors of a head's nodes, as long as a start may take; notes say what they wait for."""

    def __init__(self, head: Head, spark: SparkSession) -> None:
        self._head = head
        self._spark = spark
        self._look_s = time.monotonic() + _QUIET_S
        self._deadline: float = time.monotonic() + head.cluster.config.start_timeout
        self._told: set[str] = set()
        self._given_up = ""

    @property
    def is_late(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self._deadline

    def await_slots(self, wanted: int, is_cancelled: Callable[[], bool]) -> Slots | None:
        """Return Spark's slots once ``wanted`` are free, no more can be expected, or the time is up.

        None where Spark does not report them, or brings executors when there are tasks for them, and may bring enough.
        """
        slots = await_slots(self._spark, wanted, self.tell)
        most = _most_slots(self._spark)
        if most is not None and most < wanted:
            self._given_up = f"{_MOST_EXECUTORS}={conf(self._spark, _MOST_EXECUTORS)} allows no more"
            return Slots(total=most, free=most)
        leaving_until_s = time.monotonic() + _LEAVING_S
        while slots is not None and slots.free < wanted and not self.is_late and not is_cancelled():
            coming = coming_slots(self._spark)
            leaving = slots.total - slots.free if time.monotonic() < leaving_until_s else 0
            if not coming or slots.free + coming + leaving < wanted:
                break
            self.tell()
            time.sleep(_POLL_S)
            slots = slots_of(self._spark)
        return slots

    @contextlib.contextmanager
    def watched(self, name: str, cancel: Callable[[], object]) -> Iterator[None]:
        """While the block runs and nodes are missing, tell why; call ``cancel`` to end it when the time is up."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(_POLL_S) and self._head.missing():
                self.tell()
                if self.is_late:
                    self._given_up = self.pending()  # Spark forgets executors that it no longer needs
                    cancel()

        thread = threading.Thread(target=watch, name=name, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()

    def pending(self) -> str:
        """Return a clause on executors that have not come, or had not when they were given up; "" if unknown."""
        if self._given_up:
            return self._given_up
        return lost_server(self._spark) or ungranted_text(self._spark)

    def tell(self) -> None:
        """Add a note on what executors wait for, now and then."""
        now_s = time.monotonic()
        if now_s < self._look_s:
            return
        self._look_s = now_s + _QUIET_S
        for text in filter(None, (self.pending(), unchosen_text(self._spark))):
            if text not in self._told:
                self._told.add(text)
                self._head.cluster.history.add_note(f"waiting for Spark's executors: {text}")
                logger.warning("waiting for Spark's executors: %s", text)
