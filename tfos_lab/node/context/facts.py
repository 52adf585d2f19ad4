"""What all parts of a node's ``ctx`` are made of: the facts of its start, and its ways to the driver."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_lab.core import messages as m
from tfos_lab.core.roles import count_training, rank_in_training
from tfos_lab.node.lock_step import LockStep

if TYPE_CHECKING:
    import tensorflow as tf

    from tfos_lab.node.feed.reader import FeedReader


class NodeFacts:
    """The attributes that `NodeContext` describes, and what its methods work with."""

    def __init__(
        self,
        start: m.Start,
        feed: FeedReader,
        send: Callable[[m.FromAgent], None],
        finish: threading.Event,
        port: socket.socket | None = None,
        *,
        scratch: Path | None = None,
        lock_step: LockStep | None = None,
    ) -> None:
        self._feed = feed
        self._scratch = scratch
        self._lock_step: LockStep | None = lock_step or LockStep(start, send)
        self._send = send
        self._finish = finish
        self._step = 0
        self._stop_on_nan = start.stop_on_nan
        self._port = port
        self._output_dir = start.output_dir
        self._server: tf.distribute.Server | None = None
        self._strategy: tf.distribute.Strategy | None = None
        self.job_name = start.job_name
        self.task_index = start.task_index
        self.node = f"{start.job_name}:{start.task_index}"
        self.cluster_spec = start.cluster_spec
        self.world_size = count_training(start.cluster_spec)
        self.rank = rank_in_training(start.cluster_spec, start.job_name, start.task_index)
        self.worker_num = start.rank
        self.is_chief = start.is_chief
        self.args: Any = None
        self.defaultFS = start.default_fs or "file://"
        self.working_dir = start.working_dir or str(Path.cwd())
        self.restart = start.restart
        self.log_dir = start.log_dir
        self.event_dir = f"{start.event_home}/{start.event_folder}"
        self._backup_dir = start.backup_dir

    def _scratch_folder(self) -> Path:
        """Return the node's own folder, which is removed at the end of the run."""
        if self._scratch is None:
            self._scratch = Path(os.environ.get("TFOS_LAB_SCRATCH") or tempfile.mkdtemp(prefix="tfos-node-"))
        return self._scratch
