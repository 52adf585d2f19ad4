"""The programs of ``examples/`` run in a folder that they share, in one application of spark-submit on local Spark."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.spark_home import QUICK_JVM, spark_environment, spark_home

ROOT = Path(__file__).parents[2]
PATIENCE_S = 400
# Digits, and enough epochs to tell nine in ten of them.
ROWS = 1600
TRAINING = ("--cluster-size", "2", "--epochs", "4", "--batch-size", "25")
EXPORT = ("--model-dir", "models", "--export-dir", "models/export")
CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


class Programs:
    """Programs that `runner.py` runs one after another, on the other end of a connection."""

    def __init__(self, connection: socket.socket, folder: Path) -> None:
        self.folder = folder
        connection.settimeout(PATIENCE_S)
        self._connection, self._wire = connection, connection.makefile("rw")

    def run(self, program: str, *arguments: str) -> str:
        """Run a program to its end, which has to be a good one; return what it has printed."""
        self._wire.write(json.dumps([str(ROOT / "examples" / program), *arguments]) + "\n")
        self._wire.flush()
        done = json.loads(self._wire.readline())
        assert done["returncode"] == 0, f"{done['stdout'][-3000:]}\n{done['stderr'][-3000:]}"
        return done["stdout"]

    def end(self) -> None:
        """Ask for no more programs."""
        self._wire.close()
        self._connection.close()


@pytest.fixture(scope="package")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """The programs that share a session."""
    folder = tmp_path_factory.mktemp("examples")
    address, log = str(folder / "programs"), folder / "runner.log"
    options = [part for name, value in CONF.items() for part in ("--conf", f"{name}={value}")]
    submit = [spark_home() / "bin" / "spark-submit", "--master", "local[2]", *options]
    command = [*submit, Path(__file__).parent / "runner.py", address]
    env = spark_environment(folder / "local") | {"PYTHONPATH": str(ROOT)}
    with socket.socket(socket.AF_UNIX) as listener, log.open("w") as output:
        listener.bind(address)
        listener.listen()
        listener.settimeout(PATIENCE_S)
        with subprocess.Popen(command, cwd=folder, env=env, stdout=output, stderr=subprocess.STDOUT) as process:
            try:
                programs = Programs(listener.accept()[0], folder)
                yield programs
                programs.end()
                assert process.wait(PATIENCE_S) == 0, log.read_text()[-3000:]
            finally:
                process.kill()


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
