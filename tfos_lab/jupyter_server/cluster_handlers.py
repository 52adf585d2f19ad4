"""The clusters of all kernels: lists them, and stops one even while its kernel is busy."""

from __future__ import annotations

import asyncio
import time

import msgspec
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web

from tfos_lab.core import cluster_records
from tfos_lab.jupyter_server.messages import ClusterInfo, ClusterList

_STOP_TIMEOUT_S = 10.0


class ClustersHandler(APIHandler):
    """``GET tfos-lab/clusters``: the live clusters, oldest first."""

    auth_resource = "kernels"

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """List the clusters; times are seconds since the epoch."""
        living = [_public(record) for record in cluster_records.find_all() if record.lives]
        self.set_header("Cache-Control", "no-store")
        self.finish(msgspec.json.encode(ClusterList(now_s=time.time(), clusters=living)))


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


def _public(record: cluster_records.ClusterRecord) -> ClusterInfo:
    """Return what the browser may see: no paths of sockets."""
    return {
        "id": record.id,
        "name": record.name,
        "state": record.state,
        "launcher": record.launcher,
        "started_s": record.started_s,
        "kernel_id": record.kernel_id,
        "pid": record.pid,
        "run_dir": record.run_dir,
        "nodes": [{"node": node.node, "state": node.state, "host": node.host} for node in record.nodes],
        "tensorboard": bool(record.tensorboard),
    }
