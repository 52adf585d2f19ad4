"""Which Python Spark runs its tasks with, and how a user chooses another."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tfos_lab.core.threads import uninterrupted
from tfos_lab.data.frames import is_connect

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

VARIABLE = "PYSPARK_PYTHON"
_SETTING = "spark.pyspark.python"
_SPARK_DEFAULT = "python3"
# Pythons that sessions run by default, or because of us; any other was chosen by the user, and stays.
_ours = {_SPARK_DEFAULT}


def use_right_python(spark: SparkSession) -> None:
    """Have a classic session run its tasks with the Python that the user chose, or on this machine with this one.

    By default Spark takes the first ``python3`` of the PATH, which is seldom that of a notebook's kernel. It reads
    ``PYSPARK_PYTHON`` once, when the session is created, and in a notebook never reads ``spark.pyspark.python`` (seen
    on Spark 4.3). What was set on the SparkContext itself stays.
    """
    if not is_connect(spark):
        choose_python(spark.sparkContext)


@uninterrupted()
def choose_python(context: SparkContext) -> None:
    """Do what `use_right_python` does, for a SparkContext."""
    chosen = os.environ.get(VARIABLE) or _set_in(context) or None
    if chosen is None and is_local_master(context.master or ""):
        chosen = sys.executable
    if chosen and context.pythonExec in {*_ours, chosen}:
        context.pythonExec = chosen
        _ours.add(chosen)


def python_of(spark: SparkSession) -> str:
    """Return the path of the Python with which a session's executors run its tasks; "" if it does not tell."""
    if is_connect(spark):
        return ""
    return os.environ.get(VARIABLE) or _set_in(spark.sparkContext) or spark.sparkContext.pythonExec


def _set_in(context: SparkContext) -> str | None:
    return context._conf.get(_SETTING)  # noqa: SLF001 - `getConf` asks the JVM for each of all settings


def runs_this_python(spark: SparkSession) -> bool:
    """Whether a session's tasks run on this machine, with this process' Python."""
    is_local = not is_connect(spark) and is_local_master(spark.sparkContext.master or "")
    return is_local and python_of(spark) == sys.executable


def is_unchosen(spark: SparkSession) -> bool:
    """Whether the executors of a classic session run the first ``python3`` of their PATH, as nobody has chosen one."""
    return not is_connect(spark) and python_of(spark) == _SPARK_DEFAULT


def unchosen_text(spark: SparkSession) -> str:
    """Return a sentence on what executors will run where nobody has chosen it, and it is no Python of this folder."""
    found = shutil.which(_SPARK_DEFAULT)
    if not is_unchosen(spark) or (found and Path(found).parent.resolve() == Path(sys.executable).parent.resolve()):
        return ""
    return (
        f"{VARIABLE} is not set, so executors will run the first python3 of their PATH, which needs the packages of "
        f"this notebook's {sys.executable} (if they are shipped, set it to ./environment/bin/python before the session "
        "starts)"
    )


def is_local_master(master: str) -> bool:
    """Whether executors of a master are threads of one JVM on one machine; ``local-cluster`` is a real cluster."""
    return master.startswith("local") and not master.startswith("local-cluster")


def how_to_choose(spark: SparkSession) -> str:
    """Return advice: which Python Spark's executors run, and how to have them run another."""
    if is_connect(spark):
        return (
            "which Python they run is the Spark Connect server's to choose: install what is missing there, or start "
            f"the server with {VARIABLE}=/path/of/a/python that fits"
        )
    return (
        f"executors run '{spark.sparkContext.pythonExec}': install what is missing there, or set "
        f"os.environ['{VARIABLE}'] to the path of a Python that fits, here and on the executors (the notebook's own is "
        f"{sys.executable}), and try again"
    )
