"""The clusters of all kernels, and ended runs: lists them, and stops a cluster even while its kernel is busy."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web

from tfos_lab.core import cluster_records
from tfos_lab.core.cluster_records import ClusterRecord
from tfos_lab.core.states import RunState
from tfos_lab.engine.runs.run import Run
from tfos_lab.engine.state.events import ClusterView, NodeView
from tfos_lab.jupyter_server.messages import ClusterInfo, ClusterList, Figures, RunInfo, RunList
from tfos_lab.jupyter_server.recorded_runs import RecordedRuns

MAX_RUNS = 20


class _ListHandler(APIHandler):
    """Answers what pages ask again and again; the disk may be slow, and is read by another thread."""

    auth_resource = "kernels"
    # A page that is left open must not keep a server alive that is stopped when nobody uses it.
    _track_activity = False

    def initialize(self, runs: RecordedRuns) -> None:
        """Receive the arguments of the route."""
        self._runs = runs

    async def open_notebooks(self) -> OpenNotebooks:
        """Return the notebooks of this server's kernels."""
        root = str(getattr(self.contents_manager, "root_dir", ""))
        return await OpenNotebooks.ask(self.session_manager, root)

    def answer(self, listed: ClusterList | RunList) -> None:
        """Send a list."""
        self.set_header("Cache-Control", "no-store")
        self.finish(msgspec.json.encode(listed))


class ClustersHandler(_ListHandler):
    """``GET tfos-lab/clusters``: the live clusters, oldest first."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """List the clusters; times are seconds since the epoch."""
        notebooks = await self.open_notebooks()
        living = await asyncio.to_thread(self._runs.live)
        self.answer(ClusterList(now_s=time.time(), clusters=[_cluster_info(*one, notebooks) for one in living]))


class RunsHandler(_ListHandler):
    """``GET tfos-lab/runs``: the runs that ended last, the newest first, at most `MAX_RUNS`."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """List the runs, without those of folders that nothing refers to any more."""
        notebooks = await self.open_notebooks()
        runs = await asyncio.to_thread(self._runs.ended, list(notebooks.run_folders()), MAX_RUNS)
        shown = {record.id for record in cluster_records.find_all() if record.tensorboard}
        self.answer(RunList(now_s=time.time(), runs=[_run_info(run, run.id in shown, notebooks) for run in runs]))


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


def _cluster_info(record: ClusterRecord, run: Run, notebooks: OpenNotebooks) -> ClusterInfo:
    """Return what the browser may see: no paths of sockets."""
    view, process = run.record.view, run.record.process
    return {
        "id": run.id,
        "name": run.name,
        "state": view.state,
        "reason": view.reason,
        "launcher": view.launcher,
        "started_s": view.started_s,
        "kernel_id": process.kernel_id,
        "kernel_state": notebooks.kernel_state(process.kernel_id),
        "notebook": notebooks.notebook_of(process.kernel_id, process.notebook),
        "pid": process.pid,
        "run_dir": str(run.run_dir),
        "nodes": list(view.nodes),
        "figures": _figures(view),
        "alarm": view.alarm,
        "verdict": view.verdict,
        "tensorboard": bool(record.tensorboard),
    }


def _run_info(run: Run, has_tensorboard: bool, notebooks: OpenNotebooks) -> RunInfo:  # noqa: FBT001 - a fact of it
    process = run.record.process
    return {
        "id": run.id,
        "name": run.name,
        "launcher": run.record.view.launcher,
        "outcome": run.state,
        "reason": _reason(run),
        "started_s": run.started_s,
        "ended_s": run.ended_s or run.record.written_s,
        "notebook": notebooks.notebook_of(process.kernel_id, process.notebook),
        "run_dir": str(run.run_dir),
        "nodes": len(run.record.view.nodes),
        "figures": _figures(run.record.view),
        "tensorboard": has_tensorboard,
    }


def _reason(run: Run) -> str:
    if run.record.error is not None:
        return str(run.record.error)
    return "its kernel ended before it" if run.state is RunState.LOST else run.record.view.reason


def _figures(view: ClusterView) -> Figures:
    """Return how far a cluster is; of a search, the best value so far, as its runs have no step in common."""
    if view.search is not None:
        return Figures(metric=f"best {view.search.metric}".strip(), value=view.search.best)
    figures = Figures() if view.of_runs else _figures_of_nodes(view.nodes)
    return msgspec.structs.replace(figures, progress=view.progress, seconds_left=view.seconds_left)


def _figures_of_nodes(nodes: tuple[NodeView, ...]) -> Figures:
    """Return the step of the slowest node that goes on, and the loss, or another metric, of the first that has one."""
    stepping = [node for node in nodes if node.step is not None]
    going = [node for node in stepping if not node.state.ended]
    slowest = min(going or stepping, key=lambda node: node.step or 0, default=None)
    metrics = next((node.metrics for node in nodes if node.metrics), {})
    metric = "loss" if "loss" in metrics else next(iter(metrics), "")
    return Figures(
        step=slowest.step if slowest else None,
        total_steps=slowest.total_steps if slowest else None,
        metric=metric,
        value=metrics.get(metric),
    )


_RUNS = "runs"


class Sessions(Protocol):
    """What is used of the Jupyter server's session manager."""

    async def list_sessions(self) -> list[dict[str, Any]]:
        """Return the models of all sessions."""
        ...


class Session(NamedTuple):
    """A kernel's notebook, below the server's root, and whether the kernel is busy."""

    notebook: str
    kernel_state: str


class OpenNotebooks:
    """The notebooks of this server's kernels as they are now.

    Parameters
    ----------
    sessions : mapping
        Sessions by the id of their kernel.
    root : str
        The folder of the server's contents, or "" where they are no files.
    """

    def __init__(self, sessions: dict[str, Session], root: str) -> None:
        self._sessions = sessions
        self._root = Path(root).resolve() if root else None

    @classmethod
    async def ask(cls, sessions: Sessions, root: str) -> OpenNotebooks:
        """Ask the server's session manager."""
        models = await sessions.list_sessions()
        return cls({str(model["kernel"]["id"]): _session(model) for model in models if model.get("kernel")}, root)

    def notebook_of(self, kernel_id: str, recorded: str) -> str:
        """Return a kernel's notebook below the root, by its session or else by what was recorded; "" if unknown."""
        if kernel_id in self._sessions:
            return self._sessions[kernel_id].notebook
        if self._root is None or not Path(recorded).is_absolute():
            return ""
        path = Path(recorded).resolve()
        return path.relative_to(self._root).as_posix() if path.is_relative_to(self._root) and path.is_file() else ""

    def kernel_state(self, kernel_id: str) -> str:
        """Return what a kernel does, or "" if it is not one of this server."""
        session = self._sessions.get(kernel_id)
        return session.kernel_state if session else ""

    def run_folders(self) -> Iterator[Path]:
        """Return where runs may be: beside the notebooks, and where they go where that is not possible."""
        if self._root is not None:
            yield self._root / _RUNS
            yield from ((self._root / session.notebook).parent / _RUNS for session in self._sessions.values())
        yield Path.home() / ".cache" / "tfos_lab" / _RUNS
        if folder := os.environ.get("TFOS_LAB_RUNS"):
            yield Path(folder).absolute()


def _session(model: dict[str, Any]) -> Session:
    path = str(model.get("path") or "") if model.get("type") == "notebook" else ""
    return Session(path, str(model["kernel"].get("execution_state") or ""))
