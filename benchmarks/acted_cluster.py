"""A cluster whose agents are acted by other processes: everything on the driver is real, and so is the connection."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec

from benchmarks.acted_agents import Cast, parts_of
from tfos_lab.core.config import ClusterConfig, assign_roles
from tfos_lab.core.launchers import LauncherTraits
from tfos_lab.core.processes import allow_descriptors
from tfos_lab.driver.cluster import Cluster
from tfos_lab.driver.head import Head
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.launchers.base import Launcher

_TRAITS = LauncherTraits(name="acted", option="acted", factory="", place="acted processes")
_REPOSITORY = Path(__file__).parent.parent
_LEAVE_TIMEOUT_S = 10.0
_OWN_FILES = 512


class ActedLauncher(Launcher):
    """Starts processes that act the agents; `order` tells all of them what to do."""

    def __init__(self, head: Head, processes: int) -> None:
        super().__init__(head)
        self._count = processes
        self._processes: list[subprocess.Popen[bytes]] = []

    def launch(self) -> None:
        """Start the processes."""
        agents = [(spec.rank, spec.node) for spec in self._node_specs]
        for part in parts_of(agents, self._count):
            command = [sys.executable, "-m", "benchmarks.acted_agents"]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_REPOSITORY)
            self._processes.append(process)
            self._tell(process, msgspec.json.encode(Cast(self._head.address, part, len(agents))))

    def order(self, what: str, **facts: float) -> None:
        """Tell all processes what to do."""
        for process in self._processes:
            self._tell(process, json.dumps({"do": what, **facts}).encode())

    def ask(self) -> dict[str, float]:
        """Return what the agents have sent since the last time, and the worst of how late they were."""
        self.order("tell")
        answers = [json.loads(process.stdout.readline()) for process in self._processes if process.stdout is not None]
        totals = {name: sum(answer[name] for answer in answers) for name in answers[0]}
        return {**totals, "p95_late_s": max(answer["p95_late_s"] for answer in answers)}

    @staticmethod
    def _tell(process: subprocess.Popen[bytes], line: bytes) -> None:
        assert process.stdin is not None
        process.stdin.write(line + b"\n")
        process.stdin.flush()

    def cancel(self) -> None:
        """All are on their way at once."""

    def close(self) -> None:
        """End the processes; may be called twice."""
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        for process in self._processes:
            try:
                process.wait(_LEAVE_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
            if process.stdout is not None:
                process.stdout.close()
        self._processes.clear()


class ActedCluster:
    """A cluster that is not launched yet, and how to lead those who act its agents.

    Attributes
    ----------
    cluster : Cluster
        What a user would hold.
    """

    def __init__(self, nodes: int, folder: Path, *, processes: int = 2, **options: object) -> None:
        config = ClusterConfig(**{"name": "scale", "cluster_size": nodes, "tensorboard": False, **options})  # type: ignore[arg-type]
        self._processes = processes
        folder.mkdir(parents=True, exist_ok=True)
        allow_descriptors(_OWN_FILES + 3 * nodes)
        self.cluster = Cluster(
            config,
            (_train, None),
            launcher=_TRAITS,
            node_specs=assign_roles(config),
            files=RunDir(folder, config.log_dir),
            make_launcher=self._make_launcher,
        )

    def _make_launcher(self, head: Head) -> ActedLauncher:
        self.launcher = ActedLauncher(head, self._processes)
        return self.launcher

    def close(self) -> None:
        """Stop it, and whatever it has started."""
        self.cluster.stop(grace=0.0)
        self.cluster.head.join(_LEAVE_TIMEOUT_S)
        self.launcher.close()
        self.cluster.close()


def _train(args: object, ctx: object) -> None:
    """Stand for the user's function, which no acted node runs."""
