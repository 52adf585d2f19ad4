"""Finds threads and processes of ours that outlive the test that started them.

A thread is ours if its name begins with ``tfos``. A process is ours if it runs a module of ``tfos_lab.node`` and was
started by this test run, according to its environment; its parent may have changed. Fork servers may stay, since the
next cluster uses them; agents and children that were forked from them may not.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.support.processes import lives

_RUN_VARIABLE = "TFOS_LAB_TEST_RUN"
_NODE_PACKAGE = "tfos_lab.node"


def mark_this_run() -> None:
    """Mark the environment of all processes that this test run will start."""
    os.environ[_RUN_VARIABLE] = uuid.uuid4().hex


def scratch_root() -> Path:
    """Return the user's folder for sockets, locks and logs of nodes, as docs/security.md names it."""
    return Path(tempfile.gettempdir()) / f"tfos_lab-{os.getuid()}"


class Stock:
    """Our threads and processes at one moment, to be compared with those of a later one."""

    def __init__(self) -> None:
        self._threads = set(_threads())
        self._processes = set(_processes())

    def leftovers(self, *, within_s: float = 20.0) -> list[str]:
        """Return the names of those that were started since and have not ended within some seconds."""
        deadline = time.monotonic() + within_s
        threads = [thread for thread in _threads() if thread not in self._threads]
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        alive = [process for process in _processes() if process not in self._processes]
        while (alive := [process for process in alive if lives(process)]) and time.monotonic() < deadline:
            time.sleep(0.02)
        return [f"thread {thread.name}" for thread in threads if thread.is_alive()] + [
            f"process {process.pid} ({_command(process)})" for process in alive
        ]


def _threads() -> Iterator[threading.Thread]:
    return (thread for thread in threading.enumerate() if thread.name.startswith("tfos"))


def _processes() -> Iterator[psutil.Process]:
    return (process for process in psutil.process_iter() if _is_ours(process) and not _is_fork_server(process))


def _is_ours(process: psutil.Process) -> bool:
    try:
        return (
            process.status() != psutil.STATUS_ZOMBIE
            and _NODE_PACKAGE in _command(process)
            and process.environ().get(_RUN_VARIABLE) == os.environ[_RUN_VARIABLE]
        )
    except psutil.Error:
        return False


def _is_fork_server(process: psutil.Process) -> bool:
    """Whether a process is a fork server: those forked from it have the same command line, but are its children."""
    try:
        parent = process.parent()
        return "forkserver" in _command(process) and (parent is None or "forkserver" not in _command(parent))
    except psutil.Error:
        return False


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
