"""Errors of Spark jobs, raised as what users can act on: errors of tfos_lab, and Python workers that cannot work."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tfos_lab.core.crossing import own_error_in
from tfos_lab.core.environments import this_platform
from tfos_lab.data.spark_python import how_to_choose, runs_this_python
from tfos_lab.errors import ConfigError, PythonWorkerKilled, TfosError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WORKER_PYTHON = re.compile(r"(?:worker has different version|PYTHON_VERSION_MISMATCH)[^\d]*(\d+\.\d+)")
# An archive of another system, or for another processor: the Python itself, or the first library that it loads.
_OTHER_PLATFORM = re.compile(r"Exec format error|invalid ELF header|wrong ELF class|not a mach-o file", re.IGNORECASE)
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
# What Spark says where a Python worker has gone without a word; the last ones count among Spark's Python frames only.
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
    """Return the error that says so where Spark has lost a Python worker process, which it calls an EOFException."""
    text = str(error)
    is_cut_off = any(frames in text for frames in _PYTHON_FRAMES) and _CUT_OFF.search(text) is not None
    if _CRASHED not in text and not is_cut_off:
        return None
    place, times = _PLACE.search(text), _TIMES.search(text)
    host, executor = place.groups() if place else ("", "")
    return PythonWorkerKilled(host=host, executor=executor, times=int(times[1]) if times else 1)


def unfit_python(error: Exception, spark: SparkSession) -> str:
    """Return that the Python of Spark's executors is why a job has failed, and what helps; "" if it is not."""
    what = wrong_python(str(error))
    if what and runs_this_python(spark) and _is_fit(str(error)):
        return (
            f"a Python function of the DataFrame runs with another Python, which {what}: Spark remembers the one of "
            f"when the function was made. It is {sys.executable} now: make the DataFrame again"
        )
    return f"an executor {what}; {how_to_choose(spark)}" if what else ""


def _is_fit(text: str) -> bool:
    """Whether this process' Python is not what an error of Spark's says of an executor's."""
    if unimportable := _NO_MODULE.search(text):
        return find_spec(unimportable[1].partition(".")[0]) is not None
    return _WORKER_PYTHON.search(text) is not None


def wrong_python(text: str) -> str:
    """Return what an error of Spark's says is wrong with an executor's Python, such as "lacks numpy"; "" if nothing."""
    if python := _WORKER_PYTHON.search(text):
        return f"runs Python {python[1]}, the notebook runs {sys.version_info.major}.{sys.version_info.minor}"
    if unimportable := _NO_MODULE.search(text):
        return f"lacks {unimportable[1]}"
    if _OTHER_PLATFORM.search(text):
        return f"has packages for another platform than its own (this machine is {this_platform()})"
    if program := _NO_PROGRAM.search(text):
        return f"has no {program[1]}"
    return ""
