"""What each node is told once all have reserved: who it is, who the others are, and where things lie."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tfos_lab import messages as m
from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.roles import Seat, chief_of
from tfos_lab.engine.files.output import OutputKeeper


class ReleaseMaker:
    """Says to each seat who it is; ``note`` is called when it begins to."""

    def __init__(
        self,
        run_dir: Path,
        output: OutputKeeper,
        config: ClusterConfig,
        seats: list[Seat],
        payload: bytes,
        *,
        called_s: float,
        restart: int,
        default_fs: str,
        note: Callable[[], None],
    ) -> None:
        self._run_dir = run_dir
        self._output = output
        self._config = config
        self._seats = seats
        self._payload = payload
        self._default_fs = default_fs
        self._note = note
        self._called_s = called_s
        self._restart = restart
        self._chief = chief_of(seats)

    def __call__(self, index: int, spec: dict[str, list[str]]) -> m.Release:
        """Return the release of the seat ``index``; ``spec`` is the cluster spec."""
        seat = self._seats[index]
        home = backup_home(self._config, self._run_dir)
        output_dir = self._output.folder_of(seat.node, is_chief=seat == self._chief)
        self._note()
        return m.Release(
            cluster_id=self._run_dir.name,
            seat=index,
            cluster_spec=spec,
            job_name=seat.job_name,
            task_index=seat.task_index,
            is_chief=seat == self._chief,
            payload=self._payload,
            env={},
            log_dir=self._config.log_dir or str(self._run_dir / "events"),
            backup_dir=f"{home.rstrip('/')}/backup-{self._run_dir.name}" if home else "",
            default_fs=self._default_fs,
            grace_s=self._config.grace_s,
            restart=self._restart,
            age_s=max(0.0, time.time() - self._called_s),
            tensorboard=self._config.tensorboard and seat == self._chief,
            output_dir=str(output_dir or ""),
            output_probe=str(self._output.probe),
            output_limit_bytes=self._output.limit_bytes,
        )


def backup_home(config: ClusterConfig, run_dir: Path) -> str:
    """Return the folder, which all nodes must see, in which they keep what a restart goes on from; "" without one."""
    return (config.log_dir or str(run_dir)) if config.restarts else ""
