"""The programs of ``examples/`` run with spark-submit on a real standalone cluster, in a folder that they share."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.spark_submit import PATIENCE_S, Programs, Submit, succeeded

# Digits, and enough epochs to tell nine in ten of them.
ROWS = 1600
TRAINING = ("--cluster-size", "2", "--epochs", "4", "--batch-size", "25")


@pytest.fixture(scope="package")
def submit(request: pytest.FixtureRequest, standalone: str, tmp_path_factory: pytest.TempPathFactory) -> Submit:
    request.getfixturevalue("spark_sessions").close()  # one may hold the cores of the cluster
    return Submit(standalone, tmp_path_factory.mktemp("examples"))


@pytest.fixture(scope="package")
def data(submit: Submit) -> Path:
    """The folder with the images, written as CSV by a program of its own."""
    options = ("--format", "csv", "--output", "mnist/csv", "--rows", str(ROWS), "--num-partitions", "2")
    assert succeeded(submit.run("mnist/data_setup.py", *options)).startswith("<1,")
    return submit.folder / "mnist" / "csv"


@pytest.fixture(scope="package")
def trained(submit: Submit, data: Path) -> str:
    """What `train_spark.py` has printed, which trains and exports as a program of its own."""
    places = ("--model-dir", "models", "--export-dir", "models/export")
    return succeeded(submit.run("mnist/train_spark.py", "--data", "mnist/csv", *TRAINING, *places))


@pytest.fixture(scope="package")
def programs(submit: Submit, trained: str) -> Iterator[Programs]:
    """The programs that share a session; it holds the cluster's cores, so that those of their own come before it."""
    address = submit.folder / "programs"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()
        listener.settimeout(PATIENCE_S)
        with submit.running(Path(__file__).parent / "runner.py", str(address)):
            programs = Programs(listener.accept()[0], submit.folder)
            yield programs
            programs.end()
