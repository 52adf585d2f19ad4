"""Errors of the person at the keyboard: nodes have none, and a cell can be interrupted."""

from __future__ import annotations

from tfos_lab.errors.base import TfosError


class NoKeyboard(TfosError, EOFError):
    """A function on a node asked for what only a person at a keyboard can give; ``asked`` is what it called."""

    asked: str

    def __init__(self, *, asked: str) -> None:
        super().__init__(asked=asked)

    def __str__(self) -> str:
        return (
            f"{self.asked} waits for somebody to type, and a node has no keyboard: run the cell with local=inline, "
            "which runs it in the notebook's kernel"
        )


class ClusterInterrupted(KeyboardInterrupt):
    """The user interrupted the cell; its nodes are stopped."""

    def __init__(self, cluster: str) -> None:
        super().__init__(f"interrupted: the nodes of '{cluster}' are stopped")
        self.cluster = cluster
