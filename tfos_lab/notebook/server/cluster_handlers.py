"""The clusters of all kernels, and ended runs: lists them, and stops a cluster even while its kernel is busy.

The list holds what pages go by (``extensions/jupyterlab/src/api.ts`` has their types), and as HTML what the panel
shows; no paths of sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web

from tfos_lab.core import cluster_records
from tfos_lab.driver.run_dir import RunDir, run_bases
from tfos_lab.driver.runs.read import read_run
from tfos_lab.driver.runs.run import Run
from tfos_lab.notebook.server import panel
from tfos_lab.notebook.server.panel import Listed

MAX_RUNS = 20
# Runs that came and went between two looks appear within this time.
_LOOK_EVERY_S = 15.0


class ClustersHandler(APIHandler):
    """``GET tfos-lab/clusters``: the live clusters, oldest first, and the runs that ended last, the newest first.

    Pages ask again and again; the disk may be slow, and is read by another thread.
    """

    auth_resource = "kernels"
    # A page that is left open must not keep a server alive that is stopped when nobody uses it.
    _track_activity = False

    def initialize(self, runs: RecordedRuns) -> None:
        """Receive the arguments of the route."""
        self._runs = runs

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """List them; times are seconds since the epoch."""
        sessions: Any = self.session_manager
        root = str(getattr(self.contents_manager, "root_dir", ""))
        notebooks = OpenNotebooks(await sessions.list_sessions(), root)
        living, ended = await asyncio.to_thread(self._runs.look, frozenset(notebooks.run_folders()))
        shown = {record.id for record in cluster_records.find_all() if record.tensorboard}
        live, past = ([Listed(run, notebooks.of(run), run.id in shown) for run in runs] for runs in (living, ended))
        now_s = time.time()
        listed = {
            "now_s": now_s,
            "clusters": [_cluster(one, notebooks.kernel_state(one.run.record.process.kernel_id)) for one in live],
            "runs": [_ended(one, now_s) for one in past],
            "html": str(panel.render_panel(live, past, now_s)),
        }
        self.set_header("Cache-Control", "no-store")
        self.finish(msgspec.json.encode(listed))


class StopHandler(APIHandler):
    """``POST tfos-lab/clusters/<id>/stop``: asks the cluster's own thread, as the kernel's main thread may be busy."""

    auth_resource = "kernels"

    @web.authenticated
    @authorized
    async def post(self, cluster_id: str) -> None:
        """Ask the cluster to stop, without waiting for its nodes to end."""
        record = cluster_records.find(cluster_id)
        if record is None:
            raise web.HTTPError(404, "no such cluster runs; it may just have ended")
        cluster_records.ask_to_stop(record)
        self.set_status(202)
        self.finish(msgspec.json.encode({"id": cluster_id, "state": "stopping"}))


def _cluster(one: Listed, kernel_state: str) -> dict[str, Any]:
    """Return what pages go by; ``kernel_state`` is what the kernel does besides, such as ``busy``, or empty."""
    view, process = one.run.record.view, one.run.record.process
    return {
        "id": one.run.id,
        "name": one.run.name,
        "notebook": one.notebook,
        "state": view.state,
        "is": panel.state_line(view),
        "kernel_id": process.kernel_id,
        "kernel_state": kernel_state,
    }


def _ended(one: Listed, now_s: float) -> dict[str, Any]:
    """Return what pages go by; ``outcome`` is ``done``, ``failed``, ``stopped`` or ``lost``."""
    run = one.run
    return {
        "id": run.id,
        "name": run.name,
        "notebook": one.notebook,
        "outcome": run.state,
        "ended_s": run.ended_s or run.record.written_s,
        "note": panel.end_note(one, now_s),
    }


_RUNS = "runs"


class OpenNotebooks:
    """The notebooks of this server's kernels as they are now, by its models of its sessions.

    ``root`` is the folder of its contents, or "" where they are no files.
    """

    def __init__(self, sessions: Sequence[dict[str, Any]], root: str) -> None:
        self._sessions = {str(one["kernel"]["id"]): one for one in sessions if one.get("kernel")}
        self._root = Path(root).resolve() if root else None

    def of(self, run: Run) -> str:
        """Return a run's notebook below the root, by its kernel's session or else by its record; "" if unknown."""
        process = run.record.process
        if process.kernel_id in self._sessions:
            return _path_of(self._sessions[process.kernel_id])
        if self._root is None or not Path(process.notebook).is_absolute():
            return ""
        path = Path(process.notebook).resolve()
        return path.relative_to(self._root).as_posix() if path.is_relative_to(self._root) and path.is_file() else ""

    def kernel_state(self, kernel_id: str) -> str:
        """Return what a kernel does, or "" if it is not one of this server."""
        session = self._sessions.get(kernel_id)
        return str(session["kernel"].get("execution_state") or "") if session else ""

    def run_folders(self) -> Iterator[Path]:
        """Return where runs may be: beside the notebooks, and where they go where that is not possible."""
        if self._root is not None:
            yield self._root / _RUNS
            yield from ((self._root / _path_of(session)).parent / _RUNS for session in self._sessions.values())
        own, fallback = run_bases()
        yield fallback
        if os.environ.get("TFOS_LAB_RUNS"):  # else it is below the server's own folder, where no notebook runs
            yield own


def _path_of(session: dict[str, Any]) -> str:
    return str(session.get("path") or "") if session.get("type") == "notebook" else ""


# ---- the runs of all kernels -----------------------------------------------------------------------------------------


class RecordedRuns:
    """Reads runs of all folders that it has been told of."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folders: set[Path] = set()
        self._ended: list[Run] = []
        self._seen: tuple[set[str], frozenset[Path]] | None = None
        self._due_s = 0.0

    def look(self, folders: frozenset[Path]) -> tuple[list[Run], list[Run]]:
        """Return the live runs, oldest first, and at most `MAX_RUNS` that have ended, the one that did so last first.

        Folders that are not there, and records that are damaged or of a later version, are left out. ``folders``, which
        need not be there yet, and those of live runs are looked through from now on: now and then, and when a run has
        ended.
        """
        with self._lock:
            recorded = ((record.id, read_run(Path(record.run_dir))) for record in cluster_records.find_all())
            living = [run for name, run in recorded if isinstance(run, Run) and run.id == name and run.live]
            living.sort(key=lambda run: run.started_s)
            self._folders.update(folders, (run.run_dir.parent for run in living))
            seen = {run.id for run in living}, folders
            if seen != self._seen or time.monotonic() >= self._due_s:
                self._seen, self._due_s = seen, time.monotonic() + _LOOK_EVERY_S
                # Some of the newest may not have ended, or be no runs.
                newest = heapq.nlargest(2 * MAX_RUNS, _records_in(self._folders))
                runs = [run for _, run_dir in newest if isinstance(run := read_run(run_dir), Run) and not run.live]
                self._ended = heapq.nlargest(MAX_RUNS, runs, key=lambda run: run.ended_s or 0.0)
            return living, self._ended


def _records_in(folders: Iterable[Path]) -> Iterator[tuple[int, Path]]:
    """Yield when each record has changed, and its folder."""
    for folder in {folder.resolve() for folder in folders}:
        with contextlib.suppress(OSError):
            for run_dir in folder.iterdir():
                with contextlib.suppress(OSError):  # no run, or removed meanwhile
                    yield RunDir(run_dir).record.stat().st_mtime_ns, run_dir
