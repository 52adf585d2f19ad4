"""The kernels in which notebooks are executed, one for each place: Spark and TensorFlow start once there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.digits import digits_environ
from tests.support.notebook_kernel import NotebookKernel
from tests.support.spark_home import QUICK_JVM, QUICK_SUBMIT_ARGS
from tfos_lab.cli import find_checkout, kernel_environ

ROOT = Path(__file__).parents[2]
FROM_OUTSIDE = ("MASTER", "SPARK_", "PYSPARK_", "HADOOP_", "YARN_", "TFOS_LAB_")


def notebook_environ(**more: str) -> dict[str, str]:
    """Return the environment of a notebook's kernel, without settings from outside; its JVMs start quickly."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FROM_OUTSIDE)}
    # The second one is for what a notebook gives to spark-submit.
    quick = {"PYSPARK_SUBMIT_ARGS": QUICK_SUBMIT_ARGS, "SPARK_SUBMIT_OPTS": QUICK_JVM}
    return kernel_environ({"PYTHONPATH": str(ROOT), **quick, **kept, **digits_environ(), **more}, find_checkout())


@pytest.fixture(scope="package")
def kernel(request, tmp_path_factory):
    """The kernel of a place: ``"local"`` or ``"cluster"``; there is one at a time."""
    more = {"SPARK_LOCAL_IP": "127.0.0.1"} if request.param == "cluster" else {}
    if request.param == "cluster":
        request.getfixturevalue("spark_sessions").close()  # it may hold the cores of the cluster
        more["MASTER"] = request.getfixturevalue("standalone")
    with NotebookKernel(tmp_path_factory.mktemp("notebooks"), notebook_environ(**more), request.param) as kernel:
        yield kernel
