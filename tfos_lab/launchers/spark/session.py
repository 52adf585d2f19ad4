"""A SparkSession, classic or Connect: whether it is alive, where it runs, and the jobs that it runs for us.

A session is lost where Spark's own servers are: the port of a standalone cluster's master, or of a Connect server,
refuses connections, or YARN has ended the application. Without the master, nodes that run go on, and nothing else
starts. The Connect server is its application's driver: with it, all executors end, and nodes on them. A server that is
stopped, or cannot be reached, may go on.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tfos_lab.core import sources
from tfos_lab.core.crossing import own_error_in
from tfos_lab.core.link import address_towards
from tfos_lab.core.node_addresses import node_addresses
from tfos_lab.core.threads import on_a_thread, uninterrupted
from tfos_lab.data.frames import is_connect, is_stopped, require_session
from tfos_lab.data.spark_python import is_local_master, killed_worker, unfit_python
from tfos_lab.data.spark_versions import why_no_connect
from tfos_lab.errors import FeedError, NoSession, TfosError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.storagelevel import StorageLevel


T = TypeVar("T")

#: Environment variable of the driver: how executors reach it, where that is not Spark's ``spark.driver.host``.
HOST_VARIABLE = "TFOS_SERVER_HOST"
_STANDALONE = "spark://"
_CONNECT = "sc://"
_YARN = "yarn"
_HOST_AND_PORT = re.compile(r"(\[[^\]]+\]|[^,:/]+):(\d+)")
_CONNECT_TIMEOUT_S = 1.0
# How long YARN is asked for the end of an application that Spark has given up, and of one that it has not.
_YARN_S = 3.0
_SOON_S = 0.5
# With one of these, gRPC may reach a server that cannot be reached from here.
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")

#: What to do about a Connect server that is lost: its session does not come back with it.
ADVICE = "start it again, and make another session with SparkSession.builder.remote(...).create()"
# Between two looks at whether a Connect server that is asked something is lost.
_ANSWER_S = 1.0

#: The tag of our jobs that look at the executors and warm them, which takes some seconds.
INSPECTION = "tfos-inspect"
_TASKS_LOGGER = "org.apache.spark.scheduler.TaskSetManager"
_POLL_S = 0.05
# Words of lines that name a cause.
_CAUSE_WORDS = ("Error", "Exception", "Failure")
_MAX_CAUSE = 1000
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
# What Spark says of a row whose value has another type than that of the first one.
_OTHER_TYPE = "can not accept object"
_ONE_TYPE = (
    " Spark takes the types of an RDD's columns from its first row: give all values of a column one type of Python's, "
    "as in rdd.map(lambda row: (float(row[0]), row[1]))"
)
_INTERRUPT_S = 5.0
# Spark's records of tasks are a little behind the job's end.
_RECORDS_TIMEOUT_S = 1.0
_MAX_TASKS = 1000


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
        with uninterrupted():
            stopped = java_context.sc().isStopped()
    except Exception as error:  # noqa: BLE001 - any error means that nobody answers
        return f"the SparkSession's JVM does not answer ({type(error).__name__})"
    return _stopped(spark) if stopped else None


def _stopped(spark: SparkSession) -> str:
    return "; ".join(filter(None, ["the SparkSession was stopped", lost_server(spark)]))


def require_alive(spark: SparkSession, *, for_rows: bool = False) -> None:
    """Raise `NoSession` if the session is dead, or of a kind that cannot be used; a ConfigError for what is none."""
    require_session(spark)
    reason = why_unusable(spark)
    if reason is not None:
        raise NoSession(reason=reason, advice=advice_for(spark), for_rows=for_rows)


def why_unusable(spark: SparkSession) -> str | None:
    """Return why no cluster can use the session, or None if one can."""
    return (why_no_connect() if is_connect(spark) else "") or death_of(spark)


def advice_for(spark: SparkSession) -> str:
    """Return how to come by a session instead of a dead one; "" if as usual."""
    if is_connect(spark) and why_no_connect():
        return "make a classic session, as in SparkSession.builder.master('spark://host:7077').getOrCreate()"
    # Of one that was not stopped, `getOrCreate` makes no other.
    if is_stopped(spark):
        return ""
    return (
        ADVICE
        if is_connect(spark)
        else "end it with spark.stop(), and make another with SparkSession.builder.getOrCreate()"
    )


# ---- its servers ----------------------------------------------------------------------------------------------------


def lost_server(spark: SparkSession) -> str:
    """Return a clause if a session's standalone master or Connect server refuses connections, or YARN has ended it.

    It says what follows, and is "" if all is well.
    """
    url = url_of(spark)
    if url == _YARN:
        return _why_yarn_ended(spark)
    if url.startswith(_CONNECT):
        lost = lost_connect_server(spark)
        return f"{lost}: its nodes end with it; {ADVICE}" if lost else ""
    reason = _why_refused(url) if url.startswith(_STANDALONE) else ""
    if not reason:
        return ""
    return (
        f"Spark's master at {url} does not answer ({reason}): what runs goes on, but Spark starts no executor "
        "until the master is back"
    )


def _why_yarn_ended(spark: SparkSession) -> str:
    """Return what YARN says of an application that it has ended; "" of one that runs."""
    context: Any = spark.sparkContext
    with contextlib.suppress(Exception):  # the JVM or the ResourceManager may be gone, too
        yarn, java_context = context._jvm.org.apache.hadoop.yarn, context._jsc  # noqa: SLF001 - nothing public has them
        settings = yarn.conf.YarnConfiguration(java_context.hadoopConfiguration())
        settings.setLong("yarn.resourcemanager.connect.max-wait.ms", int(1000 * _YARN_S))
        client = yarn.client.api.YarnClient.createYarnClient()
        client.init(settings)
        client.start()
        try:
            number = yarn.api.records.ApplicationId.fromString(java_context.sc().applicationId())
            began_s = time.monotonic()
            # Its executors go first.
            while (waited_s := time.monotonic() - began_s) < (_YARN_S if java_context.sc().isStopped() else _SOON_S):
                report = client.getApplicationReport(number)
                if report.getFinalApplicationStatus().toString() != "UNDEFINED":
                    return "YARN has ended it: " + " ".join(str(report.getDiagnostics()).split())
                time.sleep(min(_SOON_S, waited_s + 0.05))
        finally:
            client.stop()
    return ""


def lost_connect_server(spark: SparkSession) -> str:
    """Return `lost_server` without what follows, for Connect servers only."""
    url = url_of(spark) if is_connect(spark) else ""
    reason = "" if any(map(os.environ.get, _PROXIES)) else _why_refused(url)
    return f"the Spark Connect server at {url} does not answer ({reason})" if reason else ""


def url_of(spark: SparkSession) -> str:
    """Return the session's master, or its Connect server, which alone has to reach the master; "" if unknown."""
    with contextlib.suppress(Exception):  # a session that has ended may not tell; others are made differently
        if not is_connect(spark):
            return spark.sparkContext.master or ""
        channel = spark._client._builder  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public way to ask
        return f"{_CONNECT}{channel.endpoint}"
    return ""


def _why_refused(url: str) -> str:
    """Return why none of the servers of a URL takes connections, as the first of them; "" if one does, or may do so."""
    refusals = list(refusals_at(url, _CONNECT_TIMEOUT_S).values())
    if not refusals or any(isinstance(error, TimeoutError) for error in refusals):
        return ""
    return refusals[0].strerror or str(refusals[0])


def refusals_at(url: str, timeout_s: float) -> dict[str, OSError]:
    """Return how connections to the servers of a URL have failed, by the place of each; nothing if one takes them."""
    refusals: dict[str, OSError] = {}
    for host, port in _HOST_AND_PORT.findall(url.partition("://")[2]):
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout_s).close()
        except OSError as error:
            refusals[f"port {port} of {host.strip('[]')}"] = error
        else:
            return {}
    return refusals


def while_server_answers(spark: SparkSession, ask: Callable[[], T], *, name: str) -> T:
    """Ask Spark something; with Spark Connect on a thread of that name, which is left alone if the server is lost.

    A server that is silent is waited for: it may go on. Raises NoSession if it has refused two connections, a second
    apart.
    """
    if not is_connect(spark):
        return ask()
    answer = on_a_thread(ask, name=name)
    before = ""
    while True:
        if wait([answer], _ANSWER_S).done:
            return answer.result()
        lost = lost_connect_server(spark)
        if lost and before:
            ask_no_more(spark)
            raise NoSession(reason=lost, advice=ADVICE)
        before = lost


def ask_no_more(spark: SparkSession) -> None:
    """Have pyspark ask a session's Spark Connect server no more that is lost for good, as the session is with it.

    Else some of its threads ask for ten minutes, and Python waits for these when it ends.
    """
    for policy in spark.client.get_retry_policies():
        policy.max_retries = 0


@functools.cache
def end_without_lost_server(spark: SparkSession) -> None:
    """See to it that Python ends at once where a session's Spark Connect server is lost; may be called again.

    pyspark ends its session on the server then, and tries for ten minutes.
    """
    atexit.register(_close_lost, spark)


def _close_lost(spark: SparkSession) -> None:
    if lost_connect_server(spark):
        with contextlib.suppress(Exception):  # the process ends
            spark.client.close()


# ---- its settings ----------------------------------------------------------------------------------------------------


@uninterrupted()
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
    if is_connect(spark):
        client = spark._client  # type: ignore[attr-defined]  # noqa: SLF001 - the only place that knows its host
        public = str(getattr(client, "host", "127.0.0.1"))
        with contextlib.suppress(OSError, ValueError):
            public = address_towards(f"tcp://{public}:1")
        listening = public
    else:
        public = conf(spark, "spark.driver.host", "127.0.0.1")
        listening = conf(spark, "spark.driver.bindAddress", public)
    # Spark has IPv6 addresses in brackets.
    return listening.strip("[]"), os.environ.get(HOST_VARIABLE, "").strip("[]") or public.strip("[]")


def allocates_dynamically(spark: SparkSession) -> bool:
    """Whether executors come and go with demand; Spark then refuses barrier stages."""
    return conf(spark, "spark.dynamicAllocation.enabled", "false").lower() == "true"


def lasting_storage(spark: SparkSession) -> StorageLevel:
    """Return a storage level whose cached data keeps dynamic allocation from removing an executor as idle."""
    from pyspark.storagelevel import StorageLevel

    # Data on disk does not keep an executor if an external shuffle service serves it; memory may be evicted.
    in_service = conf(spark, "spark.shuffle.service.fetch.rdd.enabled", "false").lower() == "true"
    return StorageLevel.MEMORY_ONLY if in_service else StorageLevel.MEMORY_AND_DISK


# ---- its jobs --------------------------------------------------------------------------------------------------------


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


# That a task is very large, as those are that bring rows of arrays; the traces of tasks whose rows cannot be fed; that
# such a task has failed, as a local session's executor has it once more, and its job with it: both without the reason.
_NOISE = (
    r"[\s\S]*(contains a task of very large size|\[tfos_lab:)[\s\S]*|Exception in task [\s\S]*|Task .* aborting job"
)
#: Traces of failing tasks: each is logged four times.
TASK_TRACES = r"(Lost task \d|Task \d+ in stage )[\s\S]*"


@contextlib.contextmanager
def without_noise(spark: SparkSession, noise: str = _NOISE) -> Iterator[None]:
    """Keep out of Spark's log what is no news to the user: the error that ends a job of ours is one sentence of ours.

    Of messages about tasks, this is what the expression matches: what is noise of a feed, by default.
    """
    logger: Any = None
    with contextlib.suppress(Exception):  # other ways of logging
        if not is_connect(spark):
            log4j: Any = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # noqa: SLF001
            result = log4j.core.Filter.Result
            # Neither a flag of the expression's, nor what the message was made from.
            filter_ = log4j.core.filter.RegexFilter.createFilter(noise, None, False, result.DENY, result.NEUTRAL)  # noqa: FBT003
            logger = log4j.LogManager.getContext(False).getConfiguration().getLoggerConfig(_TASKS_LOGGER)  # noqa: FBT003
            logger.addFilter(filter_)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # the session may be gone
            if logger is not None:
                logger.removeFilter(filter_)


@uninterrupted()
def tasks_of(spark: SparkSession, tag: str) -> tuple[int, int, int] | None:
    """Return how many tasks the last stage of a tag's newest job has, and how many of all its jobs' have ended, of all.

    None if Spark does not know (yet).
    """
    with contextlib.suppress(Exception):  # it may be too early, or too late
        if not is_connect(spark):
            tracker = spark.sparkContext._jsc.sc().statusTracker()  # noqa: SLF001 - tags have no Python name
            last, ended, total = -1, 0, 0
            for job in sorted(tracker.getJobIdsForTag(tag)):
                stages = {stage: tracker.getStageInfo(stage) for stage in tracker.getJobInfo(job).get().stageIds()}
                counts = {stage: _counts_of(info.get()) for stage, info in stages.items() if info.isDefined()}
                last = counts[max(stages)].total
                # What an earlier stage has left is not made again: Spark skips it, and goes on with a later one.
                newest = max((stage for stage, one in counts.items() if one.begun), default=-1)
                made = [one for stage, one in counts.items() if one.begun or stage > newest]
                ended += sum(one.ended for one in made)
                total += sum(one.total for one in made)
            return (last, ended, total) if last >= 0 else None
    return None


class _StageTasks(NamedTuple):
    begun: bool
    ended: int
    total: int


def _counts_of(stage: Any) -> _StageTasks:
    ended = int(stage.numCompletedTasks())
    return _StageTasks(ended + int(stage.numActiveTasks()) > 0, ended, int(stage.numTasks()))


@uninterrupted()
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
    return bool(wait([on_a_thread(interrupt, name=f"tfos-interrupt-{tag}")], _INTERRUPT_S).done)


def job_error(error: Exception, what: str = "Spark's job failed", *, schema: str = "") -> TfosError:
    """Return the error of tfos_lab that a task raised, or a `FeedError` that names the cause in Spark's error.

    Its ``__cause__`` is Spark's error. ``schema`` is that of the job's rows, as Spark writes it in JSON.
    """
    if isinstance(error, TfosError):
        return error
    known = own_error_in(error) or killed_worker(error) or oversized(error, schema)
    spark = active_session()
    cause = (spark and unfit_python(error, spark)) or f"{cause_of(error)}{_place_of(error)}"
    advice = _ONE_TYPE if _OTHER_TYPE in cause else ""
    own = known or FeedError(reason=f"{what}: {cause}{advice}")
    own.__cause__ = error
    return own


def cause_of(error: Exception) -> str:
    """Return the line of Spark's error that names the cause, or what it means."""
    if killed := killed_worker(error):
        return str(killed)
    text = str(error).partition("JVM stacktrace:")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]
    causes = [line for line in lines if any(word in line for word in _CAUSE_WORDS)]
    return (causes or lines or [type(error).__name__])[-1].removeprefix(": ")[:_MAX_CAUSE]


def _place_of(error: Exception) -> str:
    """Return the line in which a function of the DataFrame has failed, such as ``" (Cell In[5], line 4, in f)"``."""
    frames = [frame for frame in _FRAME.findall(str(error)) if not sources.package_of(frame[0])]
    frames = [frame for frame in frames if "/tfos_lab/" not in frame[0]]  # nor ours, as executors have it
    if not frames:
        return ""
    file, line, function = frames[-1]
    return f" ({sources.label(file) or Path(file).name}, line {line}, in {function})"


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


# A column of one Arrow batch ends at 2 GiB; one of arrays at 1 GiB, as room for them grows by doubling.
_VECTOR = re.compile(r"OversizedAllocationException: Memory required for vector.*? is \((-?\d+)\).*?allowed \((\d+)\)")
_ROW = re.compile(r"Cannot grow BufferHolder by size (-?\d+) .*?exceeds size limitation (\d+)")
_ROW_ADVICE = (
    "make several rows of a large one, or feed the path of a file; where no row is large, lower "
    "spark.sql.execution.arrow.maxRecordsPerBatch"
)
_MOST_NAMED = 5


def oversized(error: Exception, schema: str = "") -> FeedError | None:
    """Return a readable error where Spark cannot hold a row: its own names Java classes, and no column.

    ``schema`` is that of the rows, in Spark's JSON.
    """
    text = str(error)
    if found := _VECTOR.search(text):
        needed, most = (f"{abs(int(size)):,}" for size in found.groups())
        what = f"needs room for {needed} bytes of {_columns(schema)} in one Arrow batch, and {most} is the most"
    elif found := _ROW.search(text):
        needed, most = (f"{abs(int(size)):,}" for size in found.groups())
        what = f"needs {needed} bytes more for a row with {_columns(schema)}, and a row has {most} at most"
    else:
        return None
    return FeedError(reason=f"Spark {what}: {_ROW_ADVICE}")


def _columns(schema: str) -> str:
    fields = json.loads(schema)["fields"] if schema else []
    texts = ("string", "binary")
    large = [f"'{one['name']}'" for one in fields if one["type"] in texts or not isinstance(one["type"], str)]
    if not large:
        return "a column"
    shown = ", ".join(large[:_MOST_NAMED]) + (f" and {len(large) - _MOST_NAMED} more" if large[_MOST_NAMED:] else "")
    return f"column {shown}" if len(large) == 1 else f"one of the columns {shown}"
