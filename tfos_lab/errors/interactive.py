"""Errors of cells on an interactive cluster: its nodes go on."""

from __future__ import annotations

from collections.abc import Sequence

from tfos_lab.errors.cluster import NodeFailed
from tfos_lab.errors.notebook import ClusterInterrupted


class CellFailed(NodeFailed):
    """A cell failed on nodes of an interactive cluster. They keep their names, and wait for the next cell."""


class CellInterrupted(ClusterInterrupted):
    """The user interrupted a cell of an interactive cluster. ``busy`` are nodes that have not left it yet."""

    def __init__(self, cluster: str, busy: Sequence[str] = ()) -> None:
        super().__init__(cluster)
        self.busy = list(busy)

    def __str__(self) -> str:
        if not self.busy:
            return f"interrupted: the nodes of '{self.cluster}' keep their names, and wait for the next cell"
        return (
            f"interrupted, but {', '.join(self.busy)} cannot leave the cell yet: TensorFlow notices an interrupt only "
            f"between its operations. Wait, or end all nodes with %tfos stop {self.cluster}"
        )
