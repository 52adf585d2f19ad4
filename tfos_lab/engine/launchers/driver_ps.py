"""The launcher for ``driver_ps``: parameter servers on the driver's machine, all other nodes on Spark's executors.

It is made of the two launchers that do this. Both report to the same generation; ranks count all nodes.
"""

from __future__ import annotations

from dataclasses import replace

from tfos_lab.engine.launchers.base import Launcher, LaunchPlan
from tfos_lab.engine.launchers.capacity import require_room
from tfos_lab.engine.launchers.local import LocalLauncher
from tfos_lab.engine.launchers.spark import SparkLauncher


class DriverPsLauncher(Launcher):
    """A `LocalLauncher` for the parameter servers, and a `SparkLauncher` for the rest."""

    def __init__(self, plan: LaunchPlan) -> None:
        super().__init__(plan)
        self._servers = [spec for spec in plan.node_specs if spec.role.serves]
        self._local = LocalLauncher(replace(plan, node_specs=self._servers))
        others = [spec for spec in plan.node_specs if not spec.role.serves]
        self._spark = SparkLauncher(replace(plan, node_specs=others))

    def launch(self) -> None:
        """Launch the nodes on Spark, which may refuse them; then the parameter servers."""
        require_room(len(self._servers), option="num_ps")
        self._spark.launch()
        self._local.launch()

    def free_slots(self) -> None:
        """Free Spark task slots; only nodes on executors hold some."""
        self._spark.free_slots()

    def on_executor_end(self, executor: str) -> None:
        """Ask Spark why the executor has ended."""
        self._spark.on_executor_end(executor)

    def cancel(self) -> None:
        """Stop launching what has not begun, on both sides."""
        self._spark.cancel()
        self._local.cancel()

    def hint(self) -> str:
        """Count Spark's task slots, and name the log of the parameter servers' parent process."""
        return f"{self._spark.hint()}. {self._local.hint()}"

    def close(self) -> None:
        """Release everything; may be called twice."""
        self._local.close()
        self._spark.close()
