"""A Spark Connect server of its own process, as administrators start one, on a free port of loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.daemon import Daemon
from tests.support.spark_home import QUICK_JVM, spark_environment, spark_home

_START_TIMEOUT_S = 120


@dataclass(frozen=True)
class ConnectServer:
    """A running server: its URL, and its process for tests that kill or stop it."""

    url: str
    process: Daemon


@contextmanager
def connect_server(folder: Path, *, master: str = "local[4]") -> Iterator[ConnectServer]:
    """Run a server and wait until it listens; it ends with the block, or with this process.

    Its log is ``connect.log``; its executors run at ``master``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.driver.host": "127.0.0.1",
        "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }
    options = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", master, "--driver-memory", "1g", *options]
    command += ["--class", server, "spark-internal"]
    environment = spark_environment(folder / "local")
    with Daemon("Spark Connect's server", command, log=folder / "connect.log", env=environment) as process:
        started = process.wait_for(r"Spark Connect server started at:?\s*(\S+):(\d+)", timeout_s=_START_TIMEOUT_S)
        yield ConnectServer(f"sc://127.0.0.1:{started[2]}", process)
