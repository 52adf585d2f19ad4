"""Puts a node's event files at a remote ``log_dir``: while they grow, and at the function's end, however it ended.

The function writes them to a folder of its host, where TensorBoard sees each line at once. A thread copies them: the
agent's loop waits for no store.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.core.paths import is_local, remember_default_fs, without_keys
from tfos_lab.node.files.folder_copy import FolderCopy
from tfos_lab.node.files.output import is_shared

# At its end a node waits for a store for as long as that takes something, and reports as often that it does.
_PATIENCE_S = 10.0
_REPORT_S = 2.0


class RemoteLog:
    """One node's event files; nothing if ``log_dir`` is a folder of this host."""

    def __init__(self, scratch: Path, send: Callable[[m.FromAgent], None]) -> None:
        self._scratch = scratch
        self._send = send
        self._copy: FolderCopy | None = None
        self._what = ""
        self._reported_at = 0.0

    def prepare(self, start: m.Start, environ: Mapping[str, str]) -> m.Start:
        """Choose the folder that the function writes to, and return ``start`` with it; ``environ`` has the keys."""
        if is_local(start.log_dir):
            return start
        if not is_shared(start.output_probe):
            start = msgspec.structs.replace(start, events_dir=str(self._scratch / "events"))
        os.environ.update(environ)
        remember_default_fs(start.default_fs)
        folder = Path(start.event_home, start.event_folder)
        address = f"{start.log_dir.rstrip('/')}/{start.event_folder}"
        self._what = f"{folder.name} is in {address}"
        self._copy = FolderCopy(folder, address, "tfos-remote-log")
        return start

    def settle(self) -> bool:
        """Have the files put a last time, and return whether that has ended; called often."""
        if self._copy is None:
            return True
        self._copy.finish()
        why = self._copy.outcome(_PATIENCE_S)
        if why is None:
            now = time.monotonic()
            if now - self._reported_at > _REPORT_S:
                self._reported_at = now
                self._send(m.EventFilesPut())
            return False
        self._copy = None
        if why:
            problem = f"not all of {self._what}, from {socket.gethostname()}: {why}"
            self._send(m.EventFilesPut(problem=without_keys(problem)))
        return True
