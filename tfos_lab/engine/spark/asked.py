"""The executors that Spark asks its cluster manager for, and those of them that have not come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfos_lab.data.frames import is_connect
from tfos_lab.engine.spark import session as spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Others give what they have, such as a standalone cluster.
_ASKED_FOR_A_NUMBER = ("k8s://", "yarn")
_DEFAULT = "2"


def executors_asked(spark: SparkSession) -> int:
    """Return how many executors Spark keeps asking its cluster manager for; 0 if it takes what there is."""
    asks = spark_session.master_of(spark).startswith(_ASKED_FOR_A_NUMBER)
    if not asks or spark_session.allocates_dynamically(spark):
        return 0
    return int(spark_session.conf(spark, "spark.executor.instances", _DEFAULT))


def coming_slots(spark: SparkSession) -> int:
    """Return how many task slots the executors will have that Spark has asked for, and that have not come yet."""
    asked = 0 if is_connect(spark) else executors_asked(spark)
    if not asked:
        return 0
    scala = spark.sparkContext._jsc.sc()  # noqa: SLF001 - the scheduler's numbers have no Python name
    absent = asked - int(scala.taskScheduler().runningTasksByExecutors().size())
    profile = scala.resourceProfileManager().defaultResourceProfile()
    return max(0, absent) * int(profile.maxTasksPerExecutor(scala.conf()))
