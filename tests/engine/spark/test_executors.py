"""What Spark's errors say about executors that cannot run a node."""

from __future__ import annotations

import sys

import pytest

from tfos_lab.core.environments import this_platform
from tfos_lab.engine.spark.executors import mismatch_in
from tfos_lab.errors import ExecutorMismatch
from tfos_lab.errors.channel import to_text

PLATFORM = this_platform()
MINE = f"{sys.version_info.major}.{sys.version_info.minor}"


def problems_in(text, failed_hosts=()):
    mismatch = mismatch_in(ValueError(text), lambda: list(failed_hosts))
    return mismatch and mismatch.problems


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            f"Lost task 0.0: {to_text(ExecutorMismatch(problems={'h7': 'lacks tensorflow, zmq'}))}",
            {"h7": "lacks tensorflow, zmq"},
        ),
        (
            (
                "Lost task 0.0 in stage 1.0 (TID 1) (10.0.0.5 executor 2): [PYTHON_VERSION_MISMATCH] Python in worker "
                "has different version: 3.12 than that in driver: 3.11"
            ),
            {"10.0.0.5": f"runs Python 3.12, the notebook runs {MINE}"},
        ),
        (
            "worker has different version: 3.9 than that in driver",
            dict.fromkeys(["a", "b"], f"runs Python 3.9, the notebook runs {MINE}"),
        ),
        (
            "File \"pyspark/worker.py\", line 1\nModuleNotFoundError: No module named 'pyarrow'",
            dict.fromkeys(["a", "b"], "lacks pyarrow"),
        ),
        (
            'java.io.IOException: Cannot run program "/opt/python": error=2, No such file or directory',
            dict.fromkeys(["a", "b"], "has no /opt/python"),
        ),
        (
            'java.io.IOException: Cannot run program "./environment/bin/python": error=8, Exec format error',
            dict.fromkeys(["a", "b"], f"has packages for another platform than its own (this machine is {PLATFORM})"),
        ),
        (
            "ImportError: ./environment/lib/libarrow.so: invalid ELF header",
            dict.fromkeys(["a", "b"], f"has packages for another platform than its own (this machine is {PLATFORM})"),
        ),
    ],
    ids=["packages", "version", "version without a place", "no pyarrow", "no python", "another system", "a library"],
)
def test_problems_are_named_by_host(text, problems):
    assert problems_in(text, failed_hosts=["a", "b"]) == problems


def test_without_a_host_in_spark_s_error_it_is_an_executor():
    assert problems_in("worker has different version: 3.9 than") == {
        "an executor": f"runs Python 3.9, the notebook runs {MINE}"
    }


@pytest.mark.parametrize(
    "text", ["Job aborted due to stage failure", "ModuleNotFoundError: No module named 'of_the_user'"]
)
def test_other_errors_are_about_something_else(text):
    assert problems_in(text) is None
