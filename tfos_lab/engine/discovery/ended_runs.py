"""Finds the runs of the last days by their run records, so that the Jupyter server can list how they ended."""

from __future__ import annotations

import contextlib
import heapq
import socket
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from tfos_lab.core.cluster_records import birth_of
from tfos_lab.core.recorded_cluster import RecordedFigures
from tfos_lab.core.states import known_run_state
from tfos_lab.engine.discovery.contents import best_of, figures_of_nodes
from tfos_lab.engine.record.format import VERSION, ErrorRecord, NodeRecord, ProcessRecord, SearchRecord

_RECORD = "run.json"
# A record of 40 nodes with all its metrics has a few hundred kilobytes; what is much larger is not ours.
_MAX_BYTES = 32 << 20


class EndedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run that has ended; ``outcome`` is ``lost`` if its process ended before it."""

    id: str
    name: str
    launcher: str
    outcome: str
    reason: str
    started_s: float
    ended_s: float
    kernel_id: str
    notebook: str
    run_dir: str
    nodes: int
    figures: RecordedFigures


class EndedRuns:
    """The newest ended runs of all folders that it was told of. Records that have not changed are not read again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folders: set[Path] = set()
        self._read: dict[Path, tuple[_Found, _Record | None]] = {}

    def remember(self, folders: Iterable[Path]) -> None:
        """Look for runs in these folders from now on; they need not be there yet."""
        with self._lock:
            self._folders.update(folders)

    def find(self, limit: int) -> list[EndedRun]:
        """Return at most ``limit`` runs, the one that ended last first.

        Folders that are not there, and records that are damaged or of a later version, are left out.
        """
        with self._lock:
            return self._find(limit)

    def _find(self, limit: int) -> list[EndedRun]:
        # Some of the newest may not have ended, or be no runs.
        newest = heapq.nlargest(2 * limit, _records_in(self._folders))
        known = {found.run_dir: (found, self._record_of(found)) for found in newest}
        self._read = known
        runs = [run for found, record in known.values() if record and (run := _ended(found.run_dir, record))]
        return heapq.nlargest(limit, runs, key=lambda run: run.ended_s)

    def _record_of(self, found: _Found) -> _Record | None:
        known, record = self._read.get(found.run_dir, (None, None))
        return record if known == found else _read(found)


class _Found(NamedTuple):
    """A record as it lies on the disk; the one that changed last is the greatest."""

    changed_ns: int
    size_bytes: int
    run_dir: Path


def _records_in(folders: Iterable[Path]) -> Iterator[_Found]:
    for folder in {folder.resolve() for folder in folders}:
        with contextlib.suppress(OSError):
            for run_dir in folder.iterdir():
                with contextlib.suppress(OSError):  # no run, or removed meanwhile
                    stat = (run_dir / _RECORD).stat()
                    yield _Found(stat.st_mtime_ns, stat.st_size, run_dir)


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a run record that is used here: reading the rest would take longer."""

    version: int
    id: str
    name: str
    launcher: str
    started_s: float
    written_s: float
    ended_s: float | None = None
    process: ProcessRecord
    state: str
    reason: str = ""
    outcome: str | None = None
    error: ErrorRecord | None = None
    nodes: tuple[NodeRecord, ...] = ()
    of_runs: bool = False
    search: SearchRecord | None = None


def _read(found: _Found) -> _Record | None:
    if found.size_bytes > _MAX_BYTES:
        return None
    try:
        record = msgspec.json.decode((found.run_dir / _RECORD).read_bytes(), type=_Record)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return record if record.version <= VERSION else None


def _ended(run_dir: Path, record: _Record) -> EndedRun | None:
    outcome = record.outcome or ("lost" if _is_lost(record) else "")
    if not outcome or known_run_state(outcome) is None:
        return None
    return EndedRun(
        id=record.id,
        name=record.name,
        launcher=record.launcher,
        outcome=outcome,
        reason=_reason(record),
        started_s=record.started_s,
        ended_s=record.ended_s or record.written_s,
        kernel_id=record.process.kernel_id,
        notebook=record.process.notebook,
        run_dir=str(run_dir),
        nodes=len(record.nodes),
        figures=_figures(record),
    )


def _figures(record: _Record) -> RecordedFigures:
    """Return how far the nodes came; of a search, the best value: independent runs have no step in common."""
    if record.search is not None:
        return best_of(record.search.metric, record.search.best)
    return RecordedFigures() if record.of_runs else figures_of_nodes(record.nodes)


def _is_lost(record: _Record) -> bool:
    """Whether the process that would have written the outcome is no more; of another host's nothing is known."""
    here = record.process.host == socket.gethostname()
    return here and birth_of(record.process.pid) != record.process.born


def _reason(record: _Record) -> str:
    if record.error is None:
        return record.reason if record.outcome else "its kernel ended before it"
    where = f"{record.error.node}: " if record.error.node else ""
    kind = record.error.kind or record.error.type
    return f"{where}{kind}: {record.error.message}"
