"""One pod of the stand-in for Kubernetes: Spark's executor as a process with its own folder for temporary files."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from tests.support import class_archive
from tests.support.spark_home import QUICK_JVM, spark_home
from tests.support.tied import tied

_MAIN_CLASS = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_JAVA_OPTION = "SPARK_JAVA_OPT_"
# The arguments that the entry point of Spark's image makes of the variables that Spark sets in a pod.
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


class PodProcess:
    """The process of a pod's first container; make it on a thread that outlives it.

    ``manifest`` is the pod as Spark posted it, and ``ip`` has to be an address of this machine. ``folder``, empty and
    with a short path as there will be sockets in it, is for its file system and log; ``tmp`` is what it sees as /tmp.
    ``config_maps`` has the data of each that it may mount, and ``image`` the environment that its image sets.
    """

    def __init__(
        self,
        manifest: Mapping[str, Any],
        ip: str,
        folder: Path,
        config_maps: Mapping[str, Mapping[str, str]],
        image: Mapping[str, str],
    ) -> None:
        self._name = manifest["metadata"]["name"]
        self._folder = folder
        self._killed = False
        for name in ("work", "volumes/of-the-container"):
            (folder / name).mkdir(parents=True)
        mounts = _mount(manifest, folder / "volumes", config_maps)
        self.tmp = Path(mounts.pop("/tmp", folder / "volumes/of-the-container"))
        environ = dict(image) | _environ_of(manifest, ip, mounts) | {"TMPDIR": str(self.tmp)}
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                tied(_java(environ), signal.SIGKILL),
                env=environ,
                cwd=folder / "work",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self, timeout_s: float) -> int | None:
        """Return the exit code as Kubernetes gives it (137 for SIGKILL), or None after ``timeout_s``."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(timeout_s)
            return 128 + signal.SIGKILL if self._killed else code if code >= 0 else 128 - code
        return None

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the pod, its JVM first, as this machine sees them."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return sorted(filter(self._holds, psutil.process_iter()), key=lambda each: each.pid != self._process.pid)
        return []

    def _holds(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            return process.environ().get("SPARK_EXECUTOR_POD_NAME") == self._name
        return False

    def terminate(self) -> None:
        """Ask the JVM to end, as the kubelet does."""
        for process in self.processes()[:1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()

    def kill(self) -> None:
        """End everything in the pod at once, as the kernel does with a container out of memory."""
        self._killed = True
        processes = self.processes()
        for act in (psutil.Process.suspend, psutil.Process.kill):
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    act(process)

    def remove(self) -> None:
        """End it and remove its files, but for the log."""
        self.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for name in ("work", "volumes"):
            shutil.rmtree(self._folder / name, ignore_errors=True)


def _mount(manifest: Mapping[str, Any], root: Path, config_maps: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Make the pod's volumes; return the folder of each by the path at which the container mounts it."""
    for volume in manifest["spec"].get("volumes", ()):
        (root / volume["name"]).mkdir()
        wanted = volume.get("configMap", {})
        data = config_maps.get(wanted.get("name", ""), {})
        for item in wanted.get("items", [{"key": key, "path": key} for key in data]):
            (root / volume["name"] / item["path"]).write_text(data[item["key"]])
    mounts = manifest["spec"]["containers"][0].get("volumeMounts", ())
    return {mount["mountPath"]: str(root / mount["name"]) for mount in mounts}


def _environ_of(manifest: Mapping[str, Any], ip: str, mounts: Mapping[str, str]) -> dict[str, str]:
    fields = {"status.podIP": ip, "metadata.name": manifest["metadata"]["name"]}
    environ = {}
    for variable in manifest["spec"]["containers"][0].get("env", ()):
        source = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        value = fields[source] if source else variable.get("value", "")
        # Paths of volumes exist in the pod only.
        environ[variable["name"]] = mounts.get(value, value)
    return environ


def _java(environ: Mapping[str, str]) -> list[str]:
    """Return the command that the entry point of Spark's image runs for an executor."""
    options = [environ[name] for name in sorted(environ) if name.startswith(_JAVA_OPTION)]
    memory = environ["SPARK_EXECUTOR_MEMORY"]
    command = [shutil.which("java") or "java", *QUICK_JVM.split(), *options, f"-Xms{memory}", f"-Xmx{memory}"]
    arguments = [part for name, variable in _ARGUMENTS.items() for part in (name, environ[variable])]
    class_path = f"{class_archive.class_path(spark_home())}:{environ['SPARK_CONF_DIR']}"
    return [*command, "-cp", class_path, _MAIN_CLASS, *arguments]
