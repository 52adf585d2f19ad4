"""Puts a node's event files at a remote ``log_dir``: while they grow, and at the function's end, however it ended.

The function writes them to a folder of its host, where TensorBoard sees each line at once; stores of objects show a
file when it is complete, and append nothing. So files that have grown are put as a whole, by a thread: the agent's loop
waits for no store.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.core.paths import is_local, remember_default_fs, without_keys
from tfos_lab.node.files.listed import FoundFile, files_in
from tfos_lab.node.files.output import is_shared

# Pauses between two rounds: short at first, as files are small and a store that refuses them should show.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
# At its end a node waits for a store for as long as that takes something, and reports as often that it does.
_PATIENCE_S = 10.0
_REPORT_S = 2.0


class RemoteLog:
    """One node's event files; nothing if ``log_dir`` is a folder of this host."""

    def __init__(self, scratch: Path, send: Callable[[m.FromAgent], None]) -> None:
        self._scratch = scratch
        self._send = send
        self._folder = scratch
        self._address = ""
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._put: dict[str, FoundFile] = {}
        self._problem = ""
        self._moved_at = self._reported_at = 0.0

    def prepare(self, start: m.Start, environ: Mapping[str, str]) -> m.Start:
        """Choose the folder that the function writes to, and return ``start`` with it; ``environ`` has the keys."""
        if is_local(start.log_dir):
            return start
        if not is_shared(start.output_probe):
            start = msgspec.structs.replace(start, events_dir=str(self._scratch / "events"))
        os.environ.update(environ)
        remember_default_fs(start.default_fs)
        self._folder = Path(start.event_home, start.event_folder)
        self._address = f"{start.log_dir.rstrip('/')}/{start.event_folder}"
        self._thread = threading.Thread(target=self._work, name="tfos-remote-log", daemon=True)
        self._thread.start()
        return start

    def settle(self) -> bool:
        """Have the files put a last time, and return whether that has ended; called often."""
        if self._thread is None:
            return True
        now = time.monotonic()
        if not self._ending.is_set():
            self._moved_at = now
            self._ending.set()
        if self._thread.is_alive() and now - self._moved_at < _PATIENCE_S:
            if now - self._reported_at > _REPORT_S:
                self._reported_at = now
                self._send(m.EventFilesPut())
            return False
        why = f"no answer for {_PATIENCE_S:g} s" if self._thread.is_alive() else self._problem
        self._thread = None
        if why:
            problem = f"not all of {self._folder.name} is in {self._address}, from {socket.gethostname()}: {why}"
            self._send(m.EventFilesPut(problem=without_keys(problem)))
        return True

    def _work(self) -> None:
        pause_s, has_ended = _FIRST_PAUSE_S, False
        while not has_ended:
            has_ended = self._ending.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            try:
                for name, file in files_in(self._folder)[0].items():
                    if self._put.get(name) != file:
                        self._put_file(file)
                        self._put[name] = file
                self._problem = ""
            except Exception as error:  # noqa: BLE001 - a store may raise anything; the next round tries again
                self._problem = " ".join(str(error).split()) or type(error).__name__

    def _put_file(self, file: FoundFile) -> None:
        from tfos_lab.gfile import store_of

        store, path = store_of(f"{self._address}/{file.name}")
        store.put(file.path, path, self._moved)

    def _moved(self) -> None:
        self._moved_at = time.monotonic()
