"""Errors of interaction: a node cannot ask for input, and a user can interrupt a cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfos_lab.errors.base import TfosError


class NoKeyboard(TfosError, EOFError):
    """A function on a node asked for input. ``asked`` is what it called."""

    asked: str

    def __init__(self, *, asked: str) -> None:
        super().__init__(asked=asked)

    def __str__(self) -> str:
        return (
            f"{self.asked} waits for somebody to type, and a node has no keyboard: run the cell with local=inline, "
            "which runs it in the notebook's kernel"
        )


class ClusterInterrupted(KeyboardInterrupt):
    """The user interrupted the cell. Its nodes are stopped."""

    def __init__(self, cluster: str) -> None:
        super().__init__(f"interrupted: the nodes of '{cluster}' are stopped")
        self.cluster = cluster


class ParallelInterrupted(ClusterInterrupted):
    """The user interrupted independent runs. All are stopped; ``results`` holds what had returned by then."""

    def __init__(self, cluster: str, results: Sequence[Any], returned: int, noun: str = "run") -> None:
        super().__init__(cluster)
        self.results = results
        self._returned = returned
        self._noun = noun

    def __str__(self) -> str:
        return (
            f"interrupted: the {self._noun}s of '{self.cluster}' are stopped; {self._returned} of {len(self.results)} "
            "had returned, see `results` of this error"
        )
