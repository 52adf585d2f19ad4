"""The agent's part in a feed of files: sees whether its host finds them, and counts rows where files do not say."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from tfos_lab.core import messages as m
from tfos_lab.errors import TfosError
from tfos_lab.node.feed.files.count import count_rows
from tfos_lab.node.feed.files.opened import check_file

_THREADS = 4
_REPORT_INTERVAL_S = 0.25
_Blocks = list[tuple[int, int]]


class FileSearch:
    """Looks at the files of one feed, on threads of its own.

    Parameters
    ----------
    asked : FilesAsked
        Which files.
    report : callable
        Called with a `FilesFound` now and then, and at the end; on a thread of the search.
    """

    def __init__(self, asked: m.FilesAsked, report: Callable[[m.FilesFound], None]) -> None:
        self._asked = asked
        self._report = report
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name=f"tfos-file-search-{asked.feed}", daemon=True).start()

    def stop(self) -> None:
        """Look at no further file."""
        self._stopped.set()

    def _run(self) -> None:
        found: dict[int, _Blocks] = {}
        reported_s, problem = time.monotonic(), ""
        try:
            for number, blocks in self._look():
                found[number] = blocks
                if time.monotonic() - reported_s > _REPORT_INTERVAL_S:
                    self._tell(found)
                    found, reported_s = {}, time.monotonic()
        except TfosError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - the driver waits for an answer
            problem = f"{type(error).__name__}: {error}"
        if not self._stopped.is_set():
            self._tell(found, done=True, problem=problem)

    def _tell(self, found: dict[int, _Blocks], *, done: bool = False, problem: str = "") -> None:
        self._report(
            m.FilesFound(
                feed=self._asked.feed,
                blocks=found,
                done=done,
                problem=problem,
                host=socket.gethostname(),
            )
        )

    def _look(self) -> Iterator[tuple[int, _Blocks]]:
        with ThreadPoolExecutor(_THREADS, "tfos-file-search") as pool:
            try:
                looks = pool.map(self._look_at, self._asked.files)
                yield from zip(self._asked.numbers, looks, strict=True)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _look_at(self, file: m.DataFile) -> _Blocks:
        if self._stopped.is_set():
            return []
        check_file(file)
        return count_rows(self._asked.count_as, file) if self._asked.count_as and file.size_bytes else []
