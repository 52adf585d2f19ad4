"""The process of a run's TensorBoard."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from tfos_lab.core.runtime_files import scratch_root
from tfos_lab.engine.launchers.this_machine import kernel_environ, kernel_owner
from tfos_lab.node.forkserver.client import ForkServerSpec
from tfos_lab.node.tensorboard.process import TensorBoardProcess


class LocalTensorBoard:
    """A TensorBoard process, started when its socket is first asked for."""

    def __init__(self) -> None:
        self._log_dir = ""
        self._lock = threading.Lock()
        self._process: TensorBoardProcess | None = None
        self._socket = ""
        self._count = 0

    def socket(self, log_dir: str, *, restart: bool = False) -> str:
        """Return the socket of a TensorBoard that serves ``log_dir``; start one if need be.

        Raises
        ------
        OSError
            With the reason, if it cannot be started.
        """
        with self._lock:
            if restart or log_dir != self._log_dir:
                self._stop()
            self._log_dir = log_dir
            if self._process is None:
                self._start()
            return self._socket

    def _start(self) -> None:
        self._count += 1
        path = str(scratch_root() / f"tensorboard-{os.getpid()}-{id(self):x}-{self._count}.sock")
        fork_server = ForkServerSpec.plain(kernel_owner(), kernel_environ(), os.getpid())
        process = TensorBoardProcess(fork_server, self._log_dir, path, str(Path.cwd()))
        failure = process.wait_for_start()
        if failure:
            process.close()
            raise OSError(failure)
        self._process, self._socket = process, path

    def _stop(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def close(self) -> None:
        """End the process; may be called twice."""
        with self._lock:
            self._stop()
