"""Puts a node's event files at a remote ``log_dir``: while they grow, and at the function's end, however it ended.

The function writes them to a folder of its host, where TensorBoard sees each line at once. `FolderCopy` copies them on
a thread, as the agent's loop waits for no store; the driver keeps the folders of runs at an address by it, too. Stores
of objects show a file when it is complete, and append nothing: files that have changed are put as a whole.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.core.paths import is_local, remember_default_fs, without_keys
from tfos_lab.node.files.listed import FoundFile, files_in
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


# ---- a folder of this machine at an address --------------------------------------------------------------------------


# Pauses between two rounds: short at first, as files are small and a store that refuses them should show.
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0


class FolderCopy:
    """Copies the files of a folder to an address, from now until a last time after `finish`.

    A thread of this name does: a store may keep it waiting. A store may also raise anything: the next round tries
    again, and ``on_problem`` takes the first such sentence. Of the files found, ``choose`` picks those to copy, in
    order, given whether the round is the last. Files are put again when they have changed, and those called ``always``
    in every round.
    """

    def __init__(
        self,
        folder: Path,
        address: str,
        thread: str,
        *,
        choose: Callable[[Iterable[FoundFile], bool], Iterable[FoundFile]] = lambda files, _is_last: files,
        always: str = "",
        on_problem: Callable[[str], None] = lambda _why: None,
    ) -> None:
        self._folder, self._address = folder, address
        self._choose, self._always, self._on_problem = choose, always, on_problem
        self._put: dict[str, FoundFile] = {}
        self._problem = ""
        self._moved_s = time.monotonic()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name=thread, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Have all that has changed be copied a last time; may be called often."""
        if not self._ending.is_set():
            self._moved_s = time.monotonic()
            self._ending.set()

    def outcome(self, patience_s: float, wait_s: float = 0.0) -> str | None:
        """Return why not all is there, or "", when the last round has ended; None for as long as it goes on.

        It is waited for ``wait_s``, and taken for over where the store has taken nothing for ``patience_s``.
        """
        self._thread.join(wait_s)
        if not self._thread.is_alive():
            return self._problem
        return f"no answer for {patience_s:g} s" if time.monotonic() - self._moved_s > patience_s else None

    def _work(self) -> None:
        pause_s, is_last, is_told = _FIRST_PAUSE_S, False, False
        while not is_last:
            is_last = self._ending.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            try:
                self._copy(is_last=is_last)
                self._problem = ""
            except Exception as error:  # noqa: BLE001 - a store may raise anything
                self._problem = " ".join(str(error).split()) or type(error).__name__
                if not is_told and not is_last:
                    self._on_problem(self._problem)
                is_told = True

    def _copy(self, *, is_last: bool) -> None:
        from tfos_lab.gfile import store_of

        store, root = store_of(self._address)
        for file in self._choose(files_in(self._folder)[0].values(), is_last):
            if file.name == self._always or self._put.get(file.name) != file:
                store.put(file.path, f"{root}/{file.name}", self._moved)
                self._put[file.name] = file

    def _moved(self) -> None:
        self._moved_s = time.monotonic()
