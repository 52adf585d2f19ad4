"""The launcher for ``driver_ps``: parameter servers on the driver's machine, all other nodes on Spark's executors.

It is made of the two launchers that do this. Both report to the same head; ranks count all nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfos_lab.launchers.base import Launcher
from tfos_lab.launchers.capacity import require_room
from tfos_lab.launchers.local import LocalLauncher
from tfos_lab.launchers.spark.launcher import SparkLauncher

if TYPE_CHECKING:
    from tfos_lab.driver.head import Head


class DriverPsLauncher(Launcher):
    """A `LocalLauncher` for the parameter servers, and a `SparkLauncher` for the rest."""

    def __init__(self, head: Head) -> None:
        super().__init__(head)
        self._servers = [spec for spec in self._node_specs if spec.role.serves]
        self._local = LocalLauncher(head, self._servers)
        others = [spec for spec in self._node_specs if not spec.role.serves]
        self._spark = SparkLauncher(head, others)

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
