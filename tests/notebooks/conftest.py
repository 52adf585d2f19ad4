"""The environment in which notebooks are executed."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.digits import digits_environ
from tests.support.spark_home import QUICK_SUBMIT_ARGS
from tfos_lab.cli.paths import find_checkout, kernel_environ

ROOT = Path(__file__).parents[2]
FROM_OUTSIDE = ("MASTER", "SPARK_", "PYSPARK_", "TFOS_LAB_")


def notebook_environ(**more: str) -> dict[str, str]:
    """Return the environment of a notebook's kernel, without settings from outside; its JVM starts quickly."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FROM_OUTSIDE)}
    ours = {"PYTHONPATH": str(ROOT), "PYSPARK_SUBMIT_ARGS": QUICK_SUBMIT_ARGS}
    return kernel_environ({**ours, **kept, **digits_environ(), **more}, find_checkout())
