"""Reports where the child saves its model, so that the driver can say whether the notebook sees that folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tfos_lab import messages as m
from tfos_lab.node.files.shared_folder import SharedFolder


class SavedPaths:
    """The folders that one node's function saves to; each is reported once.

    Parameters
    ----------
    spec : LaunchSpec
        The node.
    working_folder : pathlib.Path
        The node's own: what is saved there is sent to the driver.
    send : callable
        Sends a message to the driver.
    """

    def __init__(self, spec: m.LaunchSpec, working_folder: Path, send: Callable[[m.FromAgent], None]) -> None:
        self._spec = spec
        self._working_folder = working_folder
        self._send = send
        self._folders: dict[str, SharedFolder] = {}

    def report(self, path: str) -> None:
        """Report a path with a mark beside it, by which a driver on another host sees whether it is the same folder."""
        folder = str(Path(path).parent)
        if not self._spec.executor or folder in self._folders or Path(path).is_relative_to(self._working_folder):
            return
        shared = self._folders[folder] = SharedFolder(folder, self._spec.cluster_id, self._spec.node)
        shared.mark()
        # Only Spark's executors have numeric ids, and a folder for the job that Spark removes with it.
        vanishes = self._spec.executor.isdigit() and Path(path).is_relative_to(self._spec.cwd)
        self._send(m.SavesTo(rank=self._spec.rank, path=path, mark=shared.own_mark, vanishes=vanishes))

    def clear(self) -> None:
        """Remove the marks."""
        for folder in self._folders.values():
            folder.clear()
