"""Runs the programs of ``examples/`` as users do: with spark-submit, on local Spark."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.support.spark_home import QUICK_JVM, spark_environment, spark_home

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PATIENCE_S = 400


@contextlib.contextmanager
def submitted(program: Path, *arguments: str, folder: Path) -> Iterator[None]:
    """Run a program with spark-submit on local Spark, in a folder, while the block lasts; it has to end after it."""
    conf = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    command = [spark_home() / "bin" / "spark-submit", "--master", "local[2]", *options, program, *arguments]
    env, log = spark_environment(folder / "local") | {"PYTHONPATH": str(ROOT)}, folder / "log"
    with (
        log.open("w") as file,
        subprocess.Popen(command, cwd=folder, env=env, stdout=file, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield
            assert process.wait(PATIENCE_S) == 0, log.read_text()[-3000:]
        finally:
            process.kill()


class Programs:
    """Programs that `runner.py` runs one after another, on the other end of a connection."""

    def __init__(self, connection: socket.socket, folder: Path) -> None:
        self.folder = folder
        connection.settimeout(PATIENCE_S)
        self._connection, self._wire = connection, connection.makefile("rw")

    def run(self, program: str, *arguments: str) -> str:
        """Run a program to its end, which has to be a good one; return what it has printed."""
        self._wire.write(json.dumps([str(EXAMPLES / program), *arguments]) + "\n")
        self._wire.flush()
        return succeeded(subprocess.CompletedProcess(program, **json.loads(self._wire.readline())))

    def end(self) -> None:
        """Ask for no more programs."""
        self._wire.close()
        self._connection.close()


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a program printed; it must have ended well."""
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout
