"""The start message that each node gets once all have reserved: who it is, who the others are, where files go."""

from __future__ import annotations

import time
from collections.abc import Callable

from tfos_lab import messages as m
from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.roles import NodeSpec, chief_of
from tfos_lab.data.session_stores import SessionStores
from tfos_lab.engine.files.output import OutputReceiver
from tfos_lab.engine.payloads import PayloadSender
from tfos_lab.engine.run_dir import RunDir


class StartMaker:
    """Makes the start message of each node; ``on_start`` is called for each one."""

    def __init__(
        self,
        run_dir: RunDir,
        output: OutputReceiver,
        config: ClusterConfig,
        node_specs: list[NodeSpec],
        payload: PayloadSender,
        *,
        called_s: float,
        restart: int,
        stores: SessionStores,
        working_dir: str,
        on_start: Callable[[], None],
    ) -> None:
        self._run_dir = run_dir
        self._output = output
        self._config = config
        self._node_specs = node_specs
        self._payload = payload
        self._stores = stores
        self._working_dir = working_dir
        self._on_start = on_start
        self._called_s = called_s
        self._restart = restart
        self._chief = chief_of(node_specs)

    def __call__(self, rank: int, cluster_spec: dict[str, list[str]]) -> m.Start:
        """Return the start message of the node with this rank."""
        spec = self._node_specs[rank]
        output_dir = self._output.folder_of(spec.node, is_chief=spec == self._chief)
        self._on_start()
        start = m.Start(
            cluster_id=self._run_dir.id,
            rank=rank,
            cluster_spec=cluster_spec,
            job_name=spec.job_name,
            task_index=spec.task_index,
            is_chief=spec == self._chief,
            payload=b"",
            env=self._stores.env,
            log_dir=self._run_dir.log_dir,
            events_dir=self._run_dir.event_home,
            backup_dir=self._run_dir.backup if self._config.restarts else "",
            default_fs=self._stores.default_fs,
            working_dir=self._working_dir,
            grace_s=self._config.grace_s,
            restart=self._restart,
            age_s=max(0.0, time.time() - self._called_s),
            output_dir=str(output_dir or ""),
            output_probe=str(self._output.probe),
            output_limit_bytes=self._output.limit_bytes,
        )
        return self._payload.add_to(start)
