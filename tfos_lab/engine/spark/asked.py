"""The executors that Spark asks its cluster manager for, and those of them that have not come."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tfos_lab.data.frames import is_connect
from tfos_lab.engine.spark import session as spark_session
from tfos_lab.texts import format_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Others give what they have, such as a standalone cluster.
_YARN = "yarn"
_KUBERNETES = "k8s://"
_ASKED_FOR_A_NUMBER = (_KUBERNETES, _YARN)
_DEFAULT = "2"


def executors_asked(spark: SparkSession) -> int:
    """Return how many executors Spark keeps asking its cluster manager for; 0 if it takes what there is."""
    asks = spark_session.master_of(spark).startswith(_ASKED_FOR_A_NUMBER)
    if not asks or spark_session.allocates_dynamically(spark):
        return 0
    return int(spark_session.conf(spark, "spark.executor.instances", _DEFAULT))


def coming_slots(spark: SparkSession) -> int:
    """Return how many task slots the executors will have that Spark has asked for, and that have not come yet.

    Raises
    ------
    NoSession
        If the session is being stopped just now.
    """
    asked = 0 if is_connect(spark) else executors_asked(spark)
    if not asked:
        return 0
    try:
        scala = spark.sparkContext._jsc.sc()  # noqa: SLF001 - the scheduler's numbers have no Python name
        profile = scala.resourceProfileManager().defaultResourceProfile()
        return max(0, asked - _executors_here(spark)) * int(profile.maxTasksPerExecutor(scala.conf()))
    except Exception:
        spark_session.require_alive(spark)  # one that is being stopped has no scheduler any more
        raise


def ungranted_text(spark: SparkSession) -> str:
    """Return a clause on executors that YARN or Kubernetes has not granted yet; "" if all are here, and elsewhere."""
    if is_connect(spark) or not spark_session.master_of(spark).startswith(_ASKED_FOR_A_NUMBER):
        return ""
    with contextlib.suppress(Exception):  # the session may be gone
        asked, here = executors_asked(spark), _executors_here(spark)
        if not asked or here < asked:
            granted = f"{here} of {format_count(asked, 'executor')}" if asked else format_count(here, "executor")
            return (
                _on_yarn(spark, granted) if spark_session.master_of(spark) == _YARN else _on_kubernetes(spark, granted)
            )
    return ""


def _on_yarn(spark: SparkSession, granted: str) -> str:
    queue = spark_session.conf(spark, "spark.yarn.queue", "default")
    return (
        f"YARN has granted {granted} so far (if no more come, queue '{queue}' has no room for them: wait until "
        "others have ended, or ask for less by spark.executor.memory, memoryOverhead and cores)"
    )


def _on_kubernetes(spark: SparkSession, granted: str) -> str:
    namespace = spark_session.conf(spark, "spark.kubernetes.namespace", "default")
    pods = f"spark-app-selector={spark_session.conf(spark, 'spark.app.id')}"
    return (
        f"Kubernetes has started {granted} so far (why others wait: kubectl -n {namespace} describe pods -l {pods}; "
        "why there are none: Spark's log)"
    )


def _executors_here(spark: SparkSession) -> int:
    scala = spark.sparkContext._jsc.sc()  # noqa: SLF001 - the scheduler's numbers have no Python name
    return int(scala.taskScheduler().runningTasksByExecutors().size())
