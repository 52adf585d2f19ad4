"""What each node is told once all have reserved: who it is, who the others are, and where things lie."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tfos_lab import messages as m
from tfos_lab.config import ClusterConfig
from tfos_lab.errors import ConfigError
from tfos_lab.seats import Seat, chief_of


class ReleaseMaker:
    """Says to each seat who it is; ``note`` is called when it begins to."""

    def __init__(
        self,
        run_dir: Path,
        config: ClusterConfig,
        seats: list[Seat],
        payload: bytes,
        *,
        restart: int,
        default_fs: str,
        note: Callable[[], None],
    ) -> None:
        self._run_dir = run_dir
        self._config = config
        self._seats = seats
        self._payload = payload
        self._default_fs = default_fs
        self._note = note
        self._restart = restart
        self._chief = chief_of(seats)

    def __call__(self, index: int, spec: dict[str, list[str]]) -> m.Release:
        """Return the release of the seat ``index``; ``spec`` is the cluster spec."""
        seat = self._seats[index]
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
            backup_dir=self._backup_dir(spec),
            default_fs=self._default_fs,
            grace_s=self._config.grace_s,
            restart=self._restart,
            tensorboard=self._config.tensorboard and seat == self._chief,
        )

    def _backup_dir(self, spec: dict[str, list[str]]) -> str:
        """Return where the nodes keep what a restart goes on from, which all of them must see."""
        if not self._config.restarts:
            return ""
        hosts = {address.rpartition(":")[0] for tasks in spec.values() for address in tasks}
        if self._config.log_dir is None and len(hosts) > 1:
            asked = f"restarts={self._config.restarts}"
            why = f"the nodes are on {len(hosts)} hosts and go on from a backup that all of them must see"
            raise ConfigError([f"{asked}: {why}; give log_dir=..., a folder on a file system that they share"])
        folder = self._config.log_dir or str(self._run_dir)
        return f"{folder.rstrip('/')}/backup-{self._run_dir.name}"
