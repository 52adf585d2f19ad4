"""Finds the runs of the last days by their run records, so that the Jupyter server can list how they ended."""

from __future__ import annotations

import contextlib
import heapq
import os
import socket
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from tfos_lab.core.cluster_records import birth_of
from tfos_lab.core.recorded_cluster import RecordedFigures
from tfos_lab.core.states import known_run_state
from tfos_lab.engine.discovery.contents import figures_of_nodes
from tfos_lab.engine.record.format import VERSION, ErrorRecord, NodeRecord, ProcessRecord

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
        self._read: dict[Path, tuple[tuple[int, int], _Record | None]] = {}

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
        # A run's folder changes whenever its record does. Some of the newest may not have ended, or be no runs.
        newest = heapq.nlargest(2 * limit, _run_dirs(self._folders))
        records = {path: self._record_of(path) for _, path in newest}
        self._read = {path: known for path, known in self._read.items() if path in records}
        runs = [run for path, record in records.items() if record and (run := _ended(path, record))]
        return heapq.nlargest(limit, runs, key=lambda run: run.ended_s)

    def _record_of(self, run_dir: Path) -> _Record | None:
        try:
            stat = (run_dir / _RECORD).stat()
            version = (stat.st_mtime_ns, stat.st_size)
            if run_dir not in self._read or self._read[run_dir][0] != version:
                self._read[run_dir] = version, _read(run_dir / _RECORD) if stat.st_size <= _MAX_BYTES else None
        except OSError:
            return None
        return self._read[run_dir][1]


def _run_dirs(folders: Iterable[Path]) -> Iterator[tuple[float, Path]]:
    """Yield the folders in ``folders``, with the time of their last change."""
    for folder in {folder.resolve() for folder in folders}:
        # What another process removes meanwhile ends the listing early, and is no error.
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            yield from ((entry.stat().st_mtime, Path(entry)) for entry in entries if entry.is_dir())


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


def _read(path: Path) -> _Record | None:
    try:
        record = msgspec.json.decode(path.read_bytes(), type=_Record)
    except (msgspec.DecodeError, UnicodeDecodeError):
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
        figures=figures_of_nodes(record.nodes),
    )


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
