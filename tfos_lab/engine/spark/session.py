"""Queries about a SparkSession, classic or Connect: whether it is alive, where it runs, which task slots are free."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfos_lab.core.node_addresses import node_addresses
from tfos_lab.crossing import own_error_in
from tfos_lab.data.frames import is_connect
from tfos_lab.data.spark_errors import killed_worker
from tfos_lab.data.spark_python import is_local_master
from tfos_lab.data.spark_versions import why_no_connect
from tfos_lab.engine.spark.oversized import oversized
from tfos_lab.engine.spark.servers import ADVICE, lost_connect_server, lost_server
from tfos_lab.errors import FeedError, NoSession, TfosError
from tfos_lab.transport.link import address_towards

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.storagelevel import StorageLevel


#: Environment variable of the driver: how executors reach it, where that is not Spark's ``spark.driver.host``.
HOST_VARIABLE = "TFOS_SERVER_HOST"


def active_session() -> SparkSession | None:
    """Return the live session of this process, if there is one; never starts or imports anything for that."""
    return next((session for session in _sessions() if death_of(session) is None), None)


def lost_session() -> SparkSession | None:
    """Return the session of a cluster that this process had last, if it has ended without having been stopped here."""

    def is_of_cluster(session: SparkSession) -> bool:
        if is_connect(session):
            return not getattr(session, "is_stopped", False)
        return not is_local_master(session.sparkContext.master or "")

    return next((one for one in _sessions() if is_of_cluster(one) and death_of(one) is not None), None)


def _sessions() -> list[SparkSession]:
    """Return the sessions of this process, dead ones too; never starts or imports anything for that."""
    if "pyspark.sql" not in sys.modules:
        return []
    from pyspark.sql import SparkSession

    found: list[SparkSession | None] = [getattr(SparkSession, "_instantiatedSession", None)]
    connect = sys.modules.get("pyspark.sql.connect.session")
    for kind in (SparkSession, getattr(connect, "SparkSession", None)):
        with contextlib.suppress(Exception):  # no session in this thread, or a JVM that is gone
            found.insert(0, kind.getActiveSession() if kind is not None else None)
    return [session for session in found if session is not None]


def death_of(spark: SparkSession) -> str | None:
    """Return why the session is dead, or None if it lives."""
    if is_connect(spark):
        if getattr(spark, "is_stopped", False):
            return "the Spark Connect session was stopped"
        if lost := lost_connect_server(spark):
            return lost  # its client would ask again for minutes
        try:
            _ = spark.version
        except Exception as error:  # noqa: BLE001 - any error means that nobody answers
            return f"the Spark Connect server does not answer ({type(error).__name__})"
        return None
    context = spark.sparkContext
    java_context = context._jsc  # noqa: SLF001 - there is no public way to ask whether it has stopped
    if java_context is None:
        return _stopped(spark)
    try:
        stopped = java_context.sc().isStopped()
    except Exception as error:  # noqa: BLE001 - any error means that nobody answers
        return f"the SparkSession's JVM does not answer ({type(error).__name__})"
    return _stopped(spark) if stopped else None


def _stopped(spark: SparkSession) -> str:
    return "; ".join(filter(None, ["the SparkSession was stopped", lost_server(spark)]))


def require_alive(spark: SparkSession) -> None:
    """Raise `NoSession` if the session is dead, or of a kind that cannot be used."""
    reason = why_unusable(spark)
    if reason is not None:
        raise NoSession(reason=reason, advice=advice_for(spark))


def why_unusable(spark: SparkSession) -> str | None:
    """Return why no cluster can use the session, or None if one can."""
    return _unfit(spark) or death_of(spark)


def _unfit(spark: SparkSession) -> str:
    return why_no_connect() if is_connect(spark) else ""


def advice_for(spark: SparkSession) -> str:
    """Return how to come by a session instead of a dead one; "" if as usual."""
    if _unfit(spark):
        return "make a classic session, as in SparkSession.builder.master('spark://host:7077').getOrCreate()"
    # Of one that was not stopped, `getOrCreate` makes no other.
    if is_connect(spark):
        return "" if getattr(spark, "is_stopped", False) else ADVICE
    ended = spark.sparkContext._jsc is None  # noqa: SLF001 - as above
    return "" if ended else "end it with spark.stop(), and make another with SparkSession.builder.getOrCreate()"


def conf(spark: SparkSession, key: str, default: str = "") -> str:
    """Return a setting of the session."""
    value = spark.conf.get(key, default)
    return default if value is None else str(value)


def master_of(spark: SparkSession) -> str:
    """Return the session's master, such as ``local[*]`` or ``spark://host:7077``."""
    return conf(spark, "spark.master", "")


def is_local(spark: SparkSession) -> bool:
    """Whether executors are threads of one JVM on one machine."""
    return is_local_master(master_of(spark))


def owner_of(spark: SparkSession) -> str:
    """Return the owner of the executors' fork servers: the Spark application."""
    return conf(spark, "spark.app.id") or str(getattr(spark, "session_id", "spark"))


def driver_hosts(spark: SparkSession) -> tuple[str, str]:
    """Return the address that the kernel listens on, and the one that executors connect to.

    Both are those that Spark chose for its driver, unless `HOST_VARIABLE` names another one for executors. What is
    wrong with the variables for the nodes' addresses is raised as a `ConfigError` here, before anything starts.
    """
    node_addresses()
    listening, public = _spark_s_hosts(spark)
    # Spark has IPv6 addresses in brackets.
    return listening.strip("[]"), os.environ.get(HOST_VARIABLE, "").strip("[]") or public.strip("[]")


def _spark_s_hosts(spark: SparkSession) -> tuple[str, str]:
    if is_connect(spark):
        client = spark._client  # type: ignore[attr-defined]  # noqa: SLF001 - the only place that knows its host
        host = str(getattr(client, "host", "127.0.0.1"))
        with contextlib.suppress(OSError, ValueError):
            host = address_towards(f"tcp://{host}:1")
        return host, host
    public = conf(spark, "spark.driver.host", "127.0.0.1")
    return conf(spark, "spark.driver.bindAddress", public), public


#: The tag of our jobs that look at the executors and warm them, which takes some seconds.
INSPECTION = "tfos-inspect"
# A new session may have no executors yet; they are complete when their number has not changed for a while.
_NEW_SESSION_S = 20.0
_SETTLED_S = 5.0
_LEAVING_S = 3.0
# No job runs any more but ours that look at executors: what holds slots ends, and takes longer on a busy machine.
_CANCELLED_S = 30.0
_POLL_S = 0.05
# Words of lines that name a cause.
_CAUSE_WORDS = ("Error", "Exception", "Failure")
_MAX_CAUSE = 1000
_INTERRUPT_S = 5.0
# Spark's records of tasks are a little behind the job's end.
_RECORDS_TIMEOUT_S = 1.0
_MAX_TASKS = 1000


@dataclass(frozen=True)
class Slots:
    """Task slots of the session's executors."""

    total: int
    free: int


def slots_of(spark: SparkSession) -> Slots | None:
    """Return how many tasks can run at once and how many more could start now; None if Spark does not tell.

    Raises
    ------
    NoSession
        If the session is being stopped just now.
    """
    if is_connect(spark):
        return None
    try:
        return _slots_in(spark.sparkContext._jsc.sc())  # noqa: SLF001 - the scheduler's numbers have no Python name
    except Exception:
        require_alive(spark)  # one that is being stopped has no scheduler any more
        raise


def _slots_in(scala: Any) -> Slots:
    profile = scala.resourceProfileManager().defaultResourceProfile()
    total = int(scala.maxNumConcurrentTasks(profile))
    # From the scheduler itself: `statusTracker` may be a heartbeat behind.
    running = scala.taskScheduler().runningTasksByExecutors().values().iterator()
    busy = 0
    while running.hasNext():
        busy += int(running.next())
    return Slots(total=total, free=max(0, total - busy))


def gpus_per_task(spark: SparkSession) -> int | None:
    """Return how many GPUs Spark assigns to each task; None if it assigns none, or does not tell."""
    amount = "" if is_connect(spark) else conf(spark, "spark.task.resource.gpu.amount")
    with contextlib.suppress(ValueError):
        return max(1, int(float(amount)))  # a part of one is a whole one that tasks share
    return None


def await_slots(spark: SparkSession, wanted: int, tell: Callable[[], object] | None = None) -> Slots | None:
    """Return the session's slots as soon as ``wanted`` are free, or no more are to be expected.

    Tasks of a cluster that has just ended take a moment to leave, and executors of a new session a moment to start.
    Under dynamic allocation, or if Spark does not report slots, there is nothing to wait for: returns None. ``tell`` is
    called again and again while executors are awaited.
    """
    if is_connect(spark) or allocates_dynamically(spark):
        return None
    called_s = changed_s = time.time()
    young_until_s = spark.sparkContext.startTime / 1000 + _NEW_SESSION_S
    total = -1
    while True:
        slots = slots_of(spark)
        now_s = time.time()
        if slots is None or slots.free >= wanted:
            return slots
        if slots.total != total:
            total, changed_s = slots.total, now_s
        coming = now_s < young_until_s and (total == 0 or now_s - changed_s < _SETTLED_S)
        leaving = total >= wanted and _tasks_leave(spark, now_s - called_s)
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
    return not jobs or jobs <= _jobs_of(spark, INSPECTION)


def _jobs_of(spark: SparkSession, tag: str) -> set[int]:
    """Return the ids of a tag's jobs, also of those that have ended."""
    scala = spark.sparkContext._jsc.sc()  # noqa: SLF001 - tags have no Python name
    return set(scala.statusTracker().getJobIdsForTag(tag))


def allocates_dynamically(spark: SparkSession) -> bool:
    """Whether executors come and go with demand; Spark then refuses barrier stages."""
    return conf(spark, "spark.dynamicAllocation.enabled", "false").lower() == "true"


def lasting_storage(spark: SparkSession) -> StorageLevel:
    """Return a storage level whose cached data keeps dynamic allocation from removing an executor as idle."""
    from pyspark.storagelevel import StorageLevel

    # Data on disk does not keep an executor if an external shuffle service serves it; memory may be evicted.
    in_service = conf(spark, "spark.shuffle.service.fetch.rdd.enabled", "false").lower() == "true"
    return StorageLevel.MEMORY_ONLY if in_service else StorageLevel.MEMORY_AND_DISK


@contextlib.contextmanager
def tagged(spark: SparkSession, tag: str, description: str) -> Iterator[None]:
    """Tag the jobs that this thread starts, to cancel them, and describe them in Spark's UI."""
    if is_connect(spark):
        spark.addTag(tag)
        try:
            yield
        finally:
            with contextlib.suppress(Exception):  # the session may be gone by now
                spark.removeTag(tag)
        return
    context = spark.sparkContext
    # Not the session's `addTag`: in a classic session, jobs cannot be cancelled by those tags.
    context.addJobTag(tag)
    context.setJobDescription(description)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # the session may be gone by now
            context.removeJobTag(tag)
            context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]


def tasks_of(spark: SparkSession, tag: str) -> tuple[int, int] | None:
    """Return how many tasks the last stage of a tag's newest job has, and how many tasks of all its jobs have ended.

    None if Spark does not know (yet).
    """
    with contextlib.suppress(Exception):  # it may be too early, or too late
        if not is_connect(spark):
            tracker = spark.sparkContext._jsc.sc().statusTracker()  # noqa: SLF001 - tags have no Python name
            stages = {
                stage: tracker.getStageInfo(stage)
                for job in tracker.getJobIdsForTag(tag)
                for stage in tracker.getJobInfo(job).get().stageIds()
            }
            # Spark does not track stages that it skips because their rows exist already.
            ended = sum(info.get().numCompletedTasks() for info in stages.values() if info.isDefined())
            return int(stages[max(stages)].get().numTasks()), ended
    return None


def ui_of(spark: SparkSession) -> str:
    """Return the address of Spark's UI, or "" if there is none or Spark does not tell."""
    with contextlib.suppress(Exception):  # nothing depends on it
        if not is_connect(spark):
            return spark.sparkContext.uiWebUrl or ""
    return ""


def cancel_tagged(spark: SparkSession, tag: str) -> bool:
    """Cancel the jobs of a tag; return whether they may end by that: a lost Spark Connect server is not even asked."""

    def interrupt() -> None:
        with contextlib.suppress(Exception):
            spark.interruptTag(tag)

    if not is_connect(spark):
        with contextlib.suppress(Exception):
            # `interruptTag` does nothing for a running stage of a classic session.
            spark.sparkContext.cancelJobsWithTag(tag)
        return True
    if lost_connect_server(spark):
        return False
    # The client asks for minutes again if the server is lost just now.
    thread = threading.Thread(target=interrupt, name=f"tfos-interrupt-{tag}", daemon=True)
    thread.start()
    thread.join(_INTERRUPT_S)
    return not thread.is_alive()


def job_error(error: Exception, what: str = "Spark's job failed", *, schema: str = "") -> TfosError:
    """Return the error of tfos_lab that a task raised, or a `FeedError` that names the cause in Spark's error.

    Its ``__cause__`` is Spark's error. ``schema`` is that of the job's rows, as Spark writes it in JSON.
    """
    if isinstance(error, TfosError):
        return error
    known = own_error_in(error) or killed_worker(error) or oversized(error, schema)
    own = known or FeedError(reason=f"{what}: {cause_of(error)}")
    own.__cause__ = error
    return own


def cause_of(error: Exception) -> str:
    """Return the line of Spark's error that names the cause, or what it means."""
    if killed := killed_worker(error):
        return str(killed)
    lines = _lines_of(error)
    causes = [line for line in lines if any(word in line for word in _CAUSE_WORDS)]
    return (causes or lines or [type(error).__name__])[-1].removeprefix(": ")[:_MAX_CAUSE]


def _lines_of(error: Exception) -> list[str]:
    text = str(error).partition("JVM stacktrace:")[0]
    return [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]


def hosts_of_failed_tasks(spark: SparkSession, tag: str) -> list[str]:
    """Return the hosts on which tasks of a tag's jobs have failed, as far as Spark tells."""
    deadline = time.monotonic() + _RECORDS_TIMEOUT_S
    hosts: set[str] = set()
    with contextlib.suppress(Exception):
        while not hosts and not is_connect(spark) and time.monotonic() < deadline:
            hosts = set(_failed_hosts(spark.sparkContext._jsc.sc(), tag))  # noqa: SLF001 - it has no Python name
            time.sleep(_POLL_S)
    return sorted(hosts)


def _failed_hosts(scala: Any, tag: str) -> Iterator[str]:
    tracker, store = scala.statusTracker(), scala.statusStore()
    for job in tracker.getJobIdsForTag(tag):
        for stage in tracker.getJobInfo(job).get().stageIds():
            tasks = store.taskList(stage, store.lastStageAttempt(stage).attemptId(), _MAX_TASKS)
            for index in range(tasks.size()):
                if tasks.apply(index).status() == "FAILED":
                    yield str(tasks.apply(index).host())
