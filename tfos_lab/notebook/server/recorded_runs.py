"""The runs of all kernels, as their ``run.json`` tells: those that live, and those that have ended in the last days."""

from __future__ import annotations

import contextlib
import heapq
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tfos_lab.core import cluster_records
from tfos_lab.core.cluster_records import ClusterRecord
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.driver.runs.read import read_run
from tfos_lab.driver.runs.run import Run


class _Found(NamedTuple):
    """A record as it lies on the disk; the one that changed last is the greatest."""

    changed_ns: int
    size_bytes: int
    run_dir: Path


class RecordedRuns:
    """Reads runs of all folders that it has been told of. Records that have not changed are not read again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folders: set[Path] = set()
        self._read: dict[Path, tuple[_Found, Run | None]] = {}

    def live(self) -> list[tuple[ClusterRecord, Run]]:
        """Return the clusters that have not ended, oldest first; their folders are looked through from now on."""
        with self._lock:
            living = []
            for record in cluster_records.find_all():
                run = self._run_in(Path(record.run_dir))
                if run is not None and run.id == record.id and run.live:
                    living.append((record, run))
                    self._folders.add(run.run_dir.parent)
            return sorted(living, key=lambda one: one[1].started_s)

    def ended(self, folders: Iterable[Path], limit: int) -> list[Run]:
        """Return at most ``limit`` runs, the one that ended last first.

        Folders that are not there, and records that are damaged or of a later version, are left out. ``folders`` are
        looked through from now on; they need not be there yet.
        """
        with self._lock:
            self._folders.update(folders)
            # Some of the newest may not have ended, or be no runs.
            newest = heapq.nlargest(2 * limit, _records_in(self._folders))
            runs = [run for found in newest if (run := self._run_in(found.run_dir)) is not None and not run.live]
            kept = {found.run_dir for found in newest}
            self._read = {path: read for path, read in self._read.items() if path in kept}
            return heapq.nlargest(limit, runs, key=lambda run: run.ended_s or 0.0)

    def _run_in(self, run_dir: Path) -> Run | None:
        found = _find(run_dir)
        if found is None:
            return None
        known, run = self._read.get(run_dir, (None, None))
        if known != found:
            read = read_run(run_dir)
            run = read if isinstance(read, Run) else None
            self._read[run_dir] = found, run
        return run


def _records_in(folders: Iterable[Path]) -> Iterator[_Found]:
    for folder in {folder.resolve() for folder in folders}:
        with contextlib.suppress(OSError):
            yield from filter(None, map(_find, folder.iterdir()))


def _find(run_dir: Path) -> _Found | None:
    with contextlib.suppress(OSError):  # no run, or removed meanwhile
        stat = RunDir(run_dir).record.stat()
        return _Found(stat.st_mtime_ns, stat.st_size, run_dir)
    return None
