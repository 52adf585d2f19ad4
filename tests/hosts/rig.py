"""Several hosts on one machine, joined by a bridge, with Spark's workers inside; the driver is outside, on the bridge.

::

    with running_rig(folder, HostPlan(), HostPlan(disk="64m")) as rig, rig.session() as spark:
        with rig.hosts[1].wire.cut():
            ...
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from tests.hosts.host import CORES, EXECUTOR_PORTS, Host, HostPlan, ipv6_options, running_host, spark_worker
from tests.hosts.network import Network, network
from tests.support.daemon import Daemon
from tests.support.spark import spark_session
from tests.support.spark_home import QUICK_JVM, spark_environment, spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_START_TIMEOUT_S = 300


@dataclass(frozen=True)
class Rig:
    """Hosts that run, ``h1``, ``h2``, …; the driver has an address on their network, too."""

    hosts: tuple[Host, ...]
    network: Network
    master_url: str
    folder: Path

    @contextlib.contextmanager
    def session(self, conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
        """Yield a session on the hosts, once there is an executor on each."""
        driver = f"[{self.network.driver}]" if self.network.ipv6 else self.network.driver
        jvm = f"{QUICK_JVM} {ipv6_options(ipv6=self.network.ipv6)}".strip()
        settings = {
            "spark.driver.host": driver,
            "spark.driver.bindAddress": driver,
            "spark.driver.extraJavaOptions": jvm,
            "spark.executor.extraJavaOptions": jvm,
            "spark.blockManager.port": EXECUTOR_PORTS.partition("-")[0],
            "spark.cores.max": str(CORES * len(self.hosts)),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{_START_TIMEOUT_S}s",
        }
        preferred = {"SPARK_PREFER_IPV6": "true"} if self.network.ipv6 else {}
        with (
            spark_session(self.master_url, self.folder, conf=settings | dict(conf or {})) as spark,
            # Spark's Python asks for it at each result; the session has removed all such variables.
            mock.patch.dict("os.environ", preferred),
        ):
            spark.range(1).count()  # waits for all executors
            yield spark

    def host_of(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)


@contextlib.contextmanager
def running_rig(
    folder: Path, *plans: HostPlan, ipv6: bool = False, options: Mapping[str, str] | None = None
) -> Iterator[Rig]:
    """Start a host for each plan, and Spark on them; everything goes with the block, or with this process.

    Logs are in ``folder`` (``master.log``, ``h1.log``, ``h1-worker.log``, …); ``options`` are settings of master and
    workers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        found = stack.enter_context(network(ipv6=ipv6))
        numbered = list(enumerate(plans, 1))
        hosts = [stack.enter_context(running_host(found, number, plan, folder)) for number, plan in numbered]
        url = stack.enter_context(_master(found, folder, options or {}))
        workers = [
            stack.enter_context(spark_worker(host, plan, url, folder, ipv6=ipv6, options=options or {}))
            for host, plan in zip(hosts, plans, strict=True)
        ]
        for worker in workers:
            worker.wait_for("Successfully registered with master", timeout_s=_START_TIMEOUT_S)
        yield Rig(tuple(hosts), found, url, folder)


@contextlib.contextmanager
def _master(found: Network, folder: Path, options: Mapping[str, str]) -> Iterator[str]:
    settings = {"spark.master.rest.enabled": "false", **options}
    environment = spark_environment(folder / "local") | {
        "SPARK_LOCAL_IP": found.driver,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_JVM} {ipv6_options(ipv6=found.ipv6)}".strip(),
        "SPARK_MASTER_OPTS": " ".join(f"-D{name}={value}" for name, value in settings.items()),
        **({"SPARK_PREFER_IPV6": "true"} if found.ipv6 else {}),
    }
    address = f"[{found.driver}]" if found.ipv6 else found.driver
    command = [
        *(str(spark_home() / "bin" / "spark-class"), "org.apache.spark.deploy.master.Master"),
        *("--host", address, "--port", "0", "--webui-port", "0"),
    ]
    with Daemon("Spark's master", command, log=folder / "master.log", env=environment) as master:
        yield master.wait_for(r"Starting Spark master at (spark://\S+)", timeout_s=_START_TIMEOUT_S)[1]
