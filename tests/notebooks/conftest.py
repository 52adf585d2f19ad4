"""Runs notebooks as `tfos-lab demo` does: without a front end, and in the same environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tfos_lab.cli.demo import FINAL
from tfos_lab.cli.notebook_run import Watcher, run_notebook
from tfos_lab.cli.paths import find_checkout, kernel_environ

ROOT = Path(__file__).parents[2]
FROM_OUTSIDE = ("SPARK_", "PYSPARK_", "TFOS_LAB_")


@pytest.fixture
def execute(tmp_path):
    """A function that executes a notebook: ``execute(path, **environ)`` returns it with its final state."""

    def execute(path: Path, **environ: str):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(FROM_OUTSIDE)}
        made = kernel_environ({"PYTHONPATH": str(ROOT), **kept, **environ}, find_checkout())
        return run_notebook(path, folder=tmp_path, environ=made, final=FINAL, watcher=Watcher())

    return execute
