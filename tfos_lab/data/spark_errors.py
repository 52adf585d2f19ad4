"""Errors of Spark jobs, raised as what users can act on: errors of tfos_lab, and Python workers that cannot work."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tfos_lab.core.crossing import own_error_in
from tfos_lab.data.spark_python import how_to_choose
from tfos_lab.errors import ConfigError, PythonWorkerKilled, TfosError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OTHER_VERSION = "PYTHON_VERSION_MISMATCH"
_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
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
        own = own_error_in(error) or _unfit_workers(str(error), spark) or killed_worker(error)
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


def _unfit_workers(text: str, spark: SparkSession) -> ConfigError | None:
    if _OTHER_VERSION in text:
        wanted = ".".join(map(str, sys.version_info[:2]))
        problem = f"Spark's Python workers are not of the notebook's version, {wanted}"
    elif missing := _MISSING_MODULE.search(text):
        problem = f"Spark's Python workers lack {missing[1]}"
    else:
        return None
    return ConfigError([f"{problem}; {how_to_choose(spark)}"])
