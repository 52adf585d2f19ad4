"""The clusters of all kernels, and ended runs: lists them, and stops a cluster even while its kernel is busy."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web

from tfos_lab.core import cluster_records
from tfos_lab.core.recorded_cluster import ClusterRecord
from tfos_lab.engine.discovery.ended_runs import EndedRun, EndedRuns
from tfos_lab.jupyter_server.messages import ClusterInfo, ClusterList, RunInfo, RunList
from tfos_lab.jupyter_server.open_notebooks import OpenNotebooks

MAX_RUNS = 20

_STOP_TIMEOUT_S = 10.0


class _ListHandler(APIHandler):
    """Answers what pages ask again and again."""

    auth_resource = "kernels"
    # A page that is left open must not keep a server alive that is stopped when nobody uses it.
    _track_activity = False

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

    def initialize(self, ended_runs: EndedRuns) -> None:
        """Receive the arguments of the route."""
        self._ended_runs = ended_runs

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """List the clusters; times are seconds since the epoch."""
        notebooks = await self.open_notebooks()
        living = [record for record in cluster_records.find_all() if record.lives]
        self._ended_runs.remember(Path(record.run_dir).parent for record in living if record.run_dir)
        clusters = [_public(record, notebooks) for record in living]
        self.answer(ClusterList(now_s=time.time(), clusters=clusters))


class RunsHandler(_ListHandler):
    """``GET tfos-lab/runs``: the runs that ended last, the newest first, at most `MAX_RUNS`."""

    def initialize(self, ended_runs: EndedRuns) -> None:
        """Receive the arguments of the route."""
        self._ended_runs = ended_runs

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """List the runs, without those of folders that nothing refers to any more."""
        notebooks = await self.open_notebooks()
        records = {record.id: record for record in cluster_records.find_all()}
        self._ended_runs.remember(notebooks.run_folders())
        # The disk may be slow, and others wait for this thread.
        runs = await asyncio.to_thread(self._ended_runs.find, MAX_RUNS)
        self.answer(RunList(now_s=time.time(), runs=[_run_info(run, records.get(run.id), notebooks) for run in runs]))


class StopHandler(APIHandler):
    """``POST tfos-lab/clusters/<id>/stop``: asks the cluster's own thread, as the kernel's main thread may be busy."""

    auth_resource = "kernels"

    @web.authenticated
    @authorized
    async def post(self, cluster_id: str) -> None:
        """Ask the cluster to stop, without waiting for its nodes to end."""
        record = cluster_records.find(cluster_id)
        if record is None or not record.lives or not record.control:
            raise web.HTTPError(404, "no such cluster runs; it may just have ended")
        try:
            await asyncio.wait_for(_request_stop(record.control), _STOP_TIMEOUT_S)
        except (OSError, EOFError) as error:
            raise web.HTTPError(502, f"the process of the cluster (pid {record.pid}) does not answer") from error
        self.set_status(202)
        self.finish(msgspec.json.encode({"id": cluster_id, "state": "stopping"}))


async def _request_stop(path: str) -> None:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(b"stop\n")
        if not await reader.readline():
            raise EOFError
    finally:
        writer.close()


def _public(record: ClusterRecord, notebooks: OpenNotebooks) -> ClusterInfo:
    """Return what the browser may see: no paths of sockets."""
    return {
        "id": record.id,
        "name": record.name,
        "state": record.state,
        "reason": record.reason,
        "launcher": record.launcher,
        "started_s": record.started_s,
        "kernel_id": record.kernel_id,
        "kernel_state": notebooks.kernel_state(record.kernel_id),
        "notebook": notebooks.notebook_of(record.kernel_id, record.notebook),
        "pid": record.pid,
        "run_dir": record.run_dir,
        "nodes": list(record.nodes),
        "figures": record.figures,
        "verdict": record.verdict,
        "tensorboard": bool(record.tensorboard),
    }


def _run_info(run: EndedRun, record: ClusterRecord | None, notebooks: OpenNotebooks) -> RunInfo:
    return {
        "id": run.id,
        "name": run.name,
        "launcher": run.launcher,
        "outcome": run.outcome,
        "reason": run.reason,
        "started_s": run.started_s,
        "ended_s": run.ended_s,
        "notebook": notebooks.notebook_of(run.kernel_id, run.notebook),
        "run_dir": run.run_dir,
        "nodes": run.nodes,
        "figures": run.figures,
        "tensorboard": record is not None and bool(record.tensorboard),
    }
