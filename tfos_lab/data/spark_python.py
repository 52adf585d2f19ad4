"""Which Python Spark runs its tasks with, how a user chooses another, and which of a job's errors it has caused."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tfos_lab.core.crossing import own_error_in
from tfos_lab.core.threads import uninterrupted
from tfos_lab.data.frames import is_connect
from tfos_lab.errors import ConfigError, PythonWorkerKilled, TfosError

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
    """Return the path of the Python with which a session's executors run its tasks; "" if unknown."""
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
    """Whether the executors of a classic session run the first ``python3`` of their PATH, since none was chosen."""
    return not is_connect(spark) and python_of(spark) == _SPARK_DEFAULT


def unchosen_text(spark: SparkSession) -> str:
    """Return a warning if no Python was chosen and executors will run one from another folder; "" otherwise."""
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


# ---- errors of its jobs ----------------------------------------------------------------------------------------------


_WORKER_PYTHON = re.compile(r"(?:worker has different version|PYTHON_VERSION_MISMATCH)[^\d]*(\d+\.\d+)")
# An archive of another system, or for another processor: the Python itself, or the first library that it loads.
_OTHER_PLATFORM = re.compile(r"Exec format error|invalid ELF header|wrong ELF class|not a mach-o file", re.IGNORECASE)
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
# Spark's messages for a Python worker that has crashed; the last ones count only among Spark's Python frames.
_CRASHED = "Python worker exited unexpectedly"
_CUT_OFF = re.compile(
    r"java\.io\.EOFException$|java\.net\.SocketException: (?:Broken pipe|Connection reset)", re.MULTILINE
)
_PYTHON_FRAMES = ("org.apache.spark.api.python.", "org.apache.spark.sql.execution.python.")
_PLACE = re.compile(r"\((\S+) executor (\w+)\)")
_TIMES = re.compile(r"failed (\d+) times")


@contextlib.contextmanager
def raises_own_errors(spark: SparkSession) -> Iterator[None]:
    """Raise an error of tfos_lab instead of Spark's error around it, and a ConfigError if Spark's Python is unfit."""
    try:
        yield
    except TfosError:
        raise
    except Exception as error:
        unfit = unfit_python(error, spark)
        own = own_error_in(error) or (ConfigError([unfit]) if unfit else killed_worker(error))
        if own is None:
            raise
        raise own from error


def killed_worker(error: Exception) -> PythonWorkerKilled | None:
    """Return the error for a Python worker process that Spark has lost, which it calls an EOFException; or None."""
    text = str(error)
    is_cut_off = any(frames in text for frames in _PYTHON_FRAMES) and _CUT_OFF.search(text) is not None
    if _CRASHED not in text and not is_cut_off:
        return None
    place, times = _PLACE.search(text), _TIMES.search(text)
    host, executor = place.groups() if place else ("", "")
    return PythonWorkerKilled(host=host, executor=executor, times=int(times[1]) if times else 1)


def unfit_python(error: Exception, spark: SparkSession) -> str:
    """Return how the Python of Spark's executors has failed a job, with advice; "" if it has not."""
    what = wrong_python(str(error))
    if what and runs_this_python(spark) and _is_fit(str(error)):
        return (
            f"a Python function of the DataFrame runs with another Python, which {what}: Spark remembers the one of "
            f"when the function was made. It is {sys.executable} now: make the DataFrame again"
        )
    return f"an executor {what}; {how_to_choose(spark)}" if what else ""


def _is_fit(text: str) -> bool:
    """Whether this process' Python has none of the faults that a Spark error reports of an executor's."""
    if unimportable := _NO_MODULE.search(text):
        return find_spec(unimportable[1].partition(".")[0]) is not None
    return _WORKER_PYTHON.search(text) is not None


def wrong_python(text: str) -> str:
    """Return what a Spark error reports of an executor's Python, such as "lacks numpy"; "" for other errors."""
    if python := _WORKER_PYTHON.search(text):
        return f"runs Python {python[1]}, the notebook runs {sys.version_info.major}.{sys.version_info.minor}"
    if unimportable := _NO_MODULE.search(text):
        return f"lacks {unimportable[1]}"
    if _OTHER_PLATFORM.search(text):
        return f"has packages for another platform than its own (this machine is {sysconfig.get_platform()})"
    if program := _NO_PROGRAM.search(text):
        return f"has no {program[1]}"
    return ""
