"""Runs the programs of ``examples/`` as users do: with spark-submit, on the tests' standalone cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.spark_home import QUICK_JVM, spark_environment, spark_home

ROOT = Path(__file__).parents[2]
PATIENCE_S = 400


def make_submit(
    master: str, folder: Path, programs: Path, more_conf: Mapping[str, str] | None = None
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a program with spark-submit, in a folder that it shares with the cluster.

    It is called with the program, its arguments, and ``cores``: how many tasks run at a time, two on each executor.
    Executors cost seconds, and so do Python workers that score: each of them imports TensorFlow.

    Parameters
    ----------
    master : str
        Where Spark runs.
    folder : path
        The programs' working directory.
    programs : path
        Where they are.
    more_conf : mapping of str to str, optional
        Further settings of Spark.
    """
    conf = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.driver.host": "127.0.0.1",
        "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.ui.enabled": "false",
        **(more_conf or {}),
    }
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    env = spark_environment(folder / "local") | {"PYTHONPATH": str(ROOT)}
    submit = [spark_home() / "bin" / "spark-submit", "--master", master, *options]

    def run(program: str, *arguments: str, cores: int = 2) -> subprocess.CompletedProcess[str]:
        slots = ("--conf", f"spark.cores.max={cores}", "--conf", f"spark.executor.cores={min(2, cores)}")
        command = [*submit, *slots, programs / program, *arguments]
        return subprocess.run(
            command, cwd=folder, env=env, timeout=PATIENCE_S, capture_output=True, text=True, check=False
        )

    return run


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a program printed; it must have ended well."""
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout
