"""A real Spark standalone cluster on this machine, made of pip's pyspark: one master and its workers, on loopback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.daemon import Daemon
from tests.support.spark_home import QUICK_JVM, spark_environment, spark_home

_DEPLOY = "org.apache.spark.deploy"
_START_TIMEOUT_S = 120


@dataclass(frozen=True)
class StandaloneCluster:
    """A running cluster: its URL, and its processes for tests that kill them."""

    master_url: str
    master: Daemon
    workers: Sequence[Daemon]


@contextmanager
def standalone_cluster(
    folder: Path,
    *,
    workers: int = 2,
    cores: int = 2,
    memory: str = "2g",
    home: Path | None = None,
    conf: Mapping[str, str] | None = None,
) -> Iterator[StandaloneCluster]:
    """Run a cluster and wait until its workers have registered; it ends with the block, or with this process.

    ``folder`` is for logs (``master.log``, ``worker-0.log``, ...), executors' folders and scratch files. ``cores`` and
    ``memory`` are those of each worker, and ``conf`` has settings such as ``spark.worker.resource.gpu.amount``.
    ``home`` is another Spark's folder than `spark_home`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    env = spark_environment(folder / "local", home=home) | {
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
        # REST submission is not used, and its port is fixed.
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        "SPARK_WORKER_OPTS": " ".join(f"-D{name}={value}" for name, value in (conf or {}).items()),
    }

    def start(name: str, main_class: str, *arguments: str) -> Daemon:
        program = str((home or spark_home()) / "bin" / "spark-class")
        # Port 0: each daemon takes a free port and logs it.
        address = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        command = [program, f"{_DEPLOY}.{main_class}", *address, *arguments]
        return stack.enter_context(Daemon(f"Spark's {name}", command, log=folder / f"{name}.log", env=env))

    with ExitStack() as stack:
        master = start("master", "master.Master")
        url = master.wait_for(r"Starting Spark master at (spark://\S+)", timeout_s=_START_TIMEOUT_S)[1]
        offer = ("--cores", str(cores), "--memory", memory)
        fleet = [
            start(f"worker-{index}", "worker.Worker", *offer, "--work-dir", str(folder / f"work-{index}"), url)
            for index in range(workers)
        ]
        for worker in fleet:
            worker.wait_for("Successfully registered with master", timeout_s=_START_TIMEOUT_S)
        yield StandaloneCluster(url, master, fleet)
