"""Finds out whether all nodes see the same folder: each leaves a mark in it and looks for the others' marks."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Collection
from pathlib import Path

from tfos_lab.core import messages as m
from tfos_lab.core.paths import is_local, split_scheme

# A network file system may show another host's new files only after a moment.
_PATIENCE_S = 3.0
_STEP_S = 0.1
_ADVICE = "give log_dir=..., a folder on a file system that all nodes share"


class SharedFolder:
    """One node's view of a folder, which with a scheme other than ``file`` is shared by nature."""

    def __init__(self, folder: str, cluster_id: str, node: str) -> None:
        self._folder = folder
        self._node = node
        self._marks = Path(split_scheme(folder)[2]) / f".tfos-{cluster_id}" if folder and is_local(folder) else None
        self._refusal = ""

    def mark(self) -> None:
        """Leave this node's mark; `problem` returns why that was not possible."""
        if self._marks is None:
            return
        try:
            self._marks.mkdir(parents=True, exist_ok=True)
            self._mark_of(self._node).touch()
        except OSError as error:
            what = f"'{self._folder}' cannot be written to on {socket.gethostname()} ({error.strerror})"
            self._refusal = f"{what}, and restarts go on from a backup in it: {_ADVICE}"

    @property
    def own_mark(self) -> str:
        """The path of this node's mark; "" if there is none."""
        return "" if self._marks is None or self._refusal else str(self._mark_of(self._node))

    def problem(self, nodes: Collection[str]) -> str:
        """Return what is wrong if the marks that these nodes have left cannot be seen; else ""."""
        if self._marks is None or self._refusal:
            return self._refusal
        deadline = time.monotonic() + _PATIENCE_S
        while unseen := [node for node in nodes if not self._mark_of(node).exists()]:
            if time.monotonic() > deadline:
                return (
                    f"'{self._folder}' is another folder for {self._node} (on {socket.gethostname()}) than for "
                    f"{', '.join(unseen)}, and restarts go on from a backup in it: {_ADVICE}"
                )
            time.sleep(_STEP_S)
        return ""

    def clear(self) -> None:
        """Remove this node's mark, and the folder of marks after the last one."""
        if self._marks is not None:
            with contextlib.suppress(OSError):
                self._mark_of(self._node).unlink(missing_ok=True)
                self._marks.rmdir()

    def _mark_of(self, node: str) -> Path:
        assert self._marks is not None
        return self._marks / node.replace(":", "-")


class SavedPaths:
    """The folders that one node's function saves to, but for its working folder; each is reported once."""

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
        self._send(m.SavesTo(path=path, mark=shared.own_mark))

    def clear(self) -> None:
        """Remove the marks."""
        for folder in self._folders.values():
            folder.clear()
