"""Runs the programs of ``examples/`` as users do: with spark-submit, on local Spark or on a cluster."""

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


class Submit:
    """Runs programs with spark-submit, in a folder; on a cluster with two executors of two cores each."""

    def __init__(self, master: str, folder: Path) -> None:
        self.folder = folder
        conf = {
            "spark.cores.max": "4",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": QUICK_JVM,
            "spark.driver.host": "127.0.0.1",
            "spark.executor.cores": "2",
            "spark.executor.extraJavaOptions": QUICK_JVM,
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
        }
        options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        self._submit = [spark_home() / "bin" / "spark-submit", "--master", master, *options]
        self._env = spark_environment(folder / "local") | {"PYTHONPATH": str(ROOT)}

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the examples to its end."""
        command = [*self._submit, EXAMPLES / program, *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=self._env, timeout=PATIENCE_S, capture_output=True, text=True, check=False
        )

    @contextlib.contextmanager
    def running(self, program: Path, *arguments: str) -> Iterator[None]:
        """Run a program for as long as the block lasts; it has to end after it."""
        command = [*self._submit, program, *arguments]
        with (
            (self.folder / f"{program.stem}.log").open("w") as log,
            subprocess.Popen(command, cwd=self.folder, env=self._env, stdout=log, stderr=subprocess.STDOUT) as process,
        ):
            try:
                yield
                assert process.wait(PATIENCE_S) == 0, (self.folder / f"{program.stem}.log").read_text()[-3000:]
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
