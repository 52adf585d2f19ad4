"""The programs of ``examples/`` run in a folder that they share, in one application of spark-submit on local Spark."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.spark_submit import PATIENCE_S, Programs, Submit

# Digits, and enough epochs to tell nine in ten of them.
ROWS = 1600
TRAINING = ("--cluster-size", "2", "--epochs", "4", "--batch-size", "25")
EXPORT = ("--model-dir", "models", "--export-dir", "models/export")


@pytest.fixture(scope="package")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """The programs that share a session."""
    submit = Submit("local[2]", tmp_path_factory.mktemp("examples"))
    address = submit.folder / "programs"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()
        listener.settimeout(PATIENCE_S)
        with submit.running(Path(__file__).parent / "runner.py", str(address)):
            programs = Programs(listener.accept()[0], submit.folder)
            yield programs
            programs.end()


@pytest.fixture(scope="package")
def data(programs: Programs) -> Path:
    """The folder with the images, written as CSV."""
    options = ("--format", "csv", "--output", "mnist/csv", "--rows", str(ROWS), "--num-partitions", "2")
    assert programs.run("mnist/data_setup.py", *options).startswith("<1,")
    return programs.folder / "mnist" / "csv"


@pytest.fixture(scope="package")
def trained(programs: Programs, data: Path) -> str:
    """What `train_spark.py` has printed, which trains and exports."""
    return programs.run("mnist/train_spark.py", "--data", "mnist/csv", *TRAINING, *EXPORT)
