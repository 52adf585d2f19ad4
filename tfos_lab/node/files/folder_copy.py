"""Copies a folder of this machine to an address: while its files change, and a last time at the end.

Stores of objects show a file when it is complete, and append nothing: files that have changed are put as a whole.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tfos_lab.node.files.listed import FoundFile, files_in

# Pauses between two rounds: short at first, as files are small and a store that refuses them should show.
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0


def _all(files: Iterable[FoundFile], _is_last: bool) -> Iterable[FoundFile]:  # noqa: FBT001
    return files


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
        choose: Callable[[Iterable[FoundFile], bool], Iterable[FoundFile]] = _all,
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
