"""A real YARN and a real HDFS on this machine: a ResourceManager, NodeManagers, a NameNode and a DataNode in one JVM.

Hadoop's client comes with pip's pyspark, what its servers need beside it from Maven, once: 68 MB, kept in `JARS`.
``python -m tests.rigs.yarn`` brings it before any test asks for it. All addresses are on loopback, and all ports free
ones.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import psutil

from tests.support import class_archive
from tests.support.daemon import Daemon
from tests.support.kube_documents import confs_of
from tests.support.spark import Place
from tests.support.spark_home import QUICK_JVM, spark_home

JARS = Path.home() / ".cache" / "tfos_lab" / "rigs"
_HERE = Path(__file__).parent
_POM = _HERE / "hadoop.xml"
_FETCH_TIMEOUT_S = 240
_START_TIMEOUT_S = 240
# Of pip's pyspark: Hadoop's client and what it logs with.
_CLIENT = ("hadoop-client-*", "jcl-over-slf4j-*", "log4j-*", "slf4j-api-*")


class RigMissing(RuntimeError):
    """This machine cannot have the rig; the text says why, in one line."""


@dataclass(frozen=True)
class YarnCluster:
    """A running YARN with its HDFS, which is Spark's default file system.

    ``conf_dir`` is what clients need as ``HADOOP_CONF_DIR``, ``resource_manager`` the address of its pages and REST
    interface, and ``daemon`` the JVM, below which all containers are. If HDFS has two NameNodes, ``orders`` is the port
    that takes orders.
    """

    conf_dir: Path
    hdfs: str
    resource_manager: str
    daemon: Daemon
    orders: str = ""

    def order(self, what: str) -> None:
        """Have one of two NameNodes, 0 or 1, do what `Hadoop.java` knows: ``stop/0``, ``start/0`` or ``activate/1``."""
        with contextlib.closing(HTTPConnection("127.0.0.1", int(self.orders))) as connection:
            connection.request("GET", f"/{what}")
            assert connection.getresponse().status == HTTPStatus.OK

    @property
    def pid(self) -> int:
        """The JVM's process id."""
        return self.daemon.pid

    def container_processes(self) -> list[psutil.Process]:
        return psutil.Process(self.pid).children(recursive=True)

    def applications(self) -> dict[str, str]:
        """Return the state of each application, such as ``RUNNING``, by its id."""
        apps = json.loads(self._ask("GET", "apps", status=HTTPStatus.OK))["apps"] or {"app": []}
        return {app["id"]: app["state"] for app in apps["app"]}

    def kill(self, application: str) -> None:
        """End an application as ``yarn application -kill`` does."""
        self._ask("PUT", f"apps/{application}/state", json.dumps({"state": "KILLED"}), status=HTTPStatus.ACCEPTED)

    def _ask(self, method: str, what: str, body: str | None = None, *, status: HTTPStatus) -> bytes:
        place = urlsplit(self.resource_manager)
        with contextlib.closing(HTTPConnection(place.hostname or "", place.port)) as connection:
            connection.request(method, f"/ws/v1/cluster/{what}", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert answer.status == status
            return answer.read()


@contextmanager
def yarn_cluster(
    folder: Path,
    *,
    hosts: int = 2,
    cores: int = 8,
    memory_mb: int = 6144,
    conf: Mapping[str, str] | None = None,
    clients: Collection[str] = (),
    java: Sequence[str] = (),
    available: bool = False,
) -> Iterator[YarnCluster]:
    """Run YARN and HDFS until the block ends, or this process; containers end with them.

    ``folder`` is for the servers' log, the containers' folders and HDFS' blocks. There are ``hosts`` NodeManagers, of
    each of which containers may take ``cores`` and ``memory_mb``: YARN kills those that take more than they asked for.
    ``conf`` overrides our settings of the servers, ``clients`` names those that clients have, too, and ``java`` has
    options of the servers' JVM. If ``available``, HDFS is the highly available service ``hdfs://cluster`` of two
    NameNodes.
    """
    home = _java_home()
    _write_conf(folder / "server", _server_conf(folder, cores, memory_mb) | dict(conf or {}))
    command = [
        *java_command(
            folder / "server",
            "-Xmx1g",
            f"-Dlog4j2.configurationFile={_HERE / 'log4j2.properties'}",
            f"-Drig.log={folder / 'hadoop.log'}",
            *java,
        ),
        *(_HERE / "Hadoop.java", folder, str(hosts), str(available)),
    ]
    # The containers' Java is that of the NodeManagers' environment.
    env = os.environ | {"JAVA_HOME": str(home)}
    with Daemon("Hadoop", [str(word) for word in command], log=folder / "hadoop.out", env=env) as daemon:
        told = daemon.wait_for(r"(?ms)^(orders|fs\.defaultFS)=.*^READY$", timeout_s=_START_TIMEOUT_S)[0]
        client = dict(line.split("=", 1) for line in told.splitlines() if "=" in line)
        orders = client.pop("orders", "")
        conf_dir = _write_conf(folder / "conf", {name: (conf or {})[name] for name in clients} | client)
        web = f"http://{client['yarn.resourcemanager.webapp.address']}"
        yield YarnCluster(conf_dir, client["fs.defaultFS"], web, daemon, orders)


def java_command(conf_dir: Path, *options: str) -> list[str]:
    """Return the command that runs a class of Hadoop's, with a folder of settings, but for the name of the class."""
    class_path = [conf_dir, *jars(), *_jars_of_spark()]
    quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    return [str(_java_home() / "bin" / "java"), *quick, *options, "-cp", os.pathsep.join(map(str, class_path))]


# Of an application whose nodes, all together, are in one container.
ONE_CONTAINER = {
    "spark.executor.instances": "1",
    "spark.executor.cores": "2",
    "spark.task.cpus": "1",
    "spark.executor.memoryOverhead": "5g",
}


def place_on(cluster: YarnCluster) -> Place:
    """Return where client-mode sessions run, configured as docs/storage.md says, with two executors of one slot."""
    page = confs_of("## YARN")
    del page["spark.master"]
    # Executors have the packages of this Python: the archive is one of a file.
    archive, _, alias = page["spark.yarn.dist.archives"].partition("#")
    page["spark.yarn.dist.archives"] = f"{_archive(cluster.conf_dir / archive)}#{alias}"
    # Containers have an environment of their own; this is what our tests find their processes by.
    found_by = {f"spark.executorEnv.{name}": os.environ[name] for name in ("PATH", "TFOS_LAB_TEST_RUN")}
    here = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraClassPath": class_archive.class_path(spark_home()),
        "spark.executor.extraClassPath": class_archive.class_path(spark_home()),
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.executor.instances": "2",
        # A host has room for one executor: 4.5 of the 6 GB that YARN thinks it has; the application master takes 0.9.
        # In a session of many tests, executors have several warm processes with TensorFlow, and tasks that import it.
        "spark.executor.memory": "512m",
        "spark.executor.memoryOverhead": "4g",
        "spark.yarn.am.memory": "512m",
        "spark.yarn.am.extraJavaOptions": QUICK_JVM,
        "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
        # Instead of copying 500 MB to HDFS.
        "spark.yarn.jars": f"local:{spark_home()}/jars/*",
    }
    env = {"HADOOP_CONF_DIR": str(cluster.conf_dir), "YARN_CONF_DIR": str(cluster.conf_dir)}
    return Place("yarn", page | here | found_by, env)


def _archive(path: Path) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        archive.add(__file__, "yarn.py")
    return path


def jars() -> list[Path]:
    """Return the jars of the servers; Maven brings them if they are not in `JARS` yet."""
    version = _hadoop_version()
    kept = JARS / f"hadoop-{version}-{zlib.crc32(_POM.read_bytes()):08x}"
    if not kept.exists():
        maven = shutil.which("mvn")
        if maven is None:
            raise RigMissing("no Maven (mvn), which brings Hadoop's servers")
        JARS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=JARS) as part:
            command = [maven, "-B", "-ntp", "-q", "-f", _POM, "dependency:copy-dependencies"]
            options = [f"-Dhadoop.version={version}", "-DincludeScope=runtime", f"-DoutputDirectory={part}/jars"]
            _run_maven([*command, *options])
            if not kept.exists():  # another process has been quicker
                Path(part, "jars").rename(kept)
    return sorted(kept.glob("*.jar"))


def _run_maven(command: list[str | Path]) -> None:
    try:
        # Maven's own files, too, are made elsewhere than among the project's.
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False, cwd=JARS)
    except subprocess.TimeoutExpired as error:
        raise RigMissing(f"Maven has not brought Hadoop's servers within {_FETCH_TIMEOUT_S} s") from error
    if done.returncode:
        errors = [line.partition("[ERROR] ")[2] for line in done.stdout.splitlines() if "[ERROR] " in line]
        raise RigMissing(f"Maven cannot bring Hadoop's servers: {(errors or ['no error was printed'])[0][:400]}")


def _java_home() -> Path:
    """Return the home of a JDK: a source file is compiled when it is run."""
    home = os.environ.get("JAVA_HOME")
    compiler = shutil.which("javac", path=f"{home}/bin" if home else None)
    if compiler is None:
        raise RigMissing("no JDK (javac), which compiles the start of Hadoop's servers")
    return Path(compiler).resolve().parent.parent


def _hadoop_version() -> str:
    (client,) = (spark_home() / "jars").glob("hadoop-client-api-*.jar")
    return client.stem.removeprefix("hadoop-client-api-")


def _jars_of_spark() -> list[Path]:
    return sorted(jar for pattern in _CLIENT for jar in (spark_home() / "jars").glob(f"{pattern}.jar"))


def _server_conf(folder: Path, cores: int, memory_mb: int) -> dict[str, str]:
    free_port = "127.0.0.1:0"
    managers = ["", "scheduler.", "resource-tracker.", "admin.", "webapp."]
    nodes = ["", "localizer.", "webapp.", "collector-service."]
    return {
        **{f"yarn.resourcemanager.{part}address": free_port for part in managers},
        **{f"yarn.nodemanager.{part}address": free_port for part in nodes},
        "yarn.resourcemanager.hostname": "127.0.0.1",
        # The mini cluster leaves addresses as they are, instead of using the machine's name.
        "yarn.minicluster.fixed.ports": "true",
        "hadoop.tmp.dir": str(folder / "tmp"),
        "dfs.replication": "1",
        "dfs.datanode.hostname": "127.0.0.1",
        "yarn.scheduler.capacity.root.queues": "default",
        "yarn.scheduler.capacity.root.default.capacity": "100",
        "yarn.scheduler.capacity.maximum-am-resource-percent": "0.8",
        # Without it, the scheduler counts memory only.
        "yarn.scheduler.capacity.resource-calculator": (
            "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
        ),
        # By default, it looks every 5 ms for what it might grant.
        "yarn.scheduler.capacity.schedule-asynchronously.scheduling-interval-ms": "50",
        "yarn.scheduler.minimum-allocation-mb": "128",
        "yarn.scheduler.maximum-allocation-mb": str(memory_mb),
        "yarn.nodemanager.resource.memory-mb": str(memory_mb),
        "yarn.minicluster.yarn.nodemanager.resource.memory-mb": str(memory_mb),
        "yarn.nodemanager.resource.cpu-vcores": str(cores),
        # Containers that take too much memory are killed, as by default; the mini cluster would not look.
        "yarn.minicluster.control-resource-monitoring": "true",
        "yarn.nodemanager.pmem-check-enabled": "true",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.resource.memory.enforced": "false",  # by control groups: they are not ours to make
        "yarn.nodemanager.container-monitor.interval-ms": "2000",
        # HOME of the containers.
        "yarn.nodemanager.user-home-dir": str(folder / "home"),
        # A full disk is no reason to have no nodes.
        "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
        "yarn.nodemanager.sleep-delay-before-sigkill.ms": "250",
        "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
    }


def _write_conf(folder: Path, conf: Mapping[str, str]) -> Path:
    """Write what a folder of Hadoop's settings holds; whose prefix a setting has says which file it belongs to."""
    folder.mkdir(parents=True)
    for name, prefixes in {"core": ("fs.", "hadoop."), "hdfs": ("dfs.", "ignore."), "yarn": ("yarn.",)}.items():
        root = ET.Element("configuration")
        for key, value in conf.items():
            if key.startswith(prefixes):
                setting = ET.SubElement(root, "property")
                ET.SubElement(setting, "name").text = key
                ET.SubElement(setting, "value").text = value
        ET.ElementTree(root).write(folder / f"{name}-site.xml", encoding="utf-8", xml_declaration=True)
    return folder


if __name__ == "__main__":
    jars()
