"""Whether processes have ended."""

from __future__ import annotations

from collections.abc import Iterable

import psutil

from tests.support.eventually import eventually


def gone(processes: Iterable[psutil.Process | int]) -> bool:
    """Wait for processes, or those with some numbers, to end."""
    processes = list(processes)
    return eventually(lambda: not [process for process in processes if lives(process)])


def lives(process: psutil.Process | int) -> bool:
    """Whether a process goes on: one that has ended may be listed until its parent, or init, looks."""
    try:
        process = psutil.Process(process) if isinstance(process, int) else process
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:  # at any moment between two calls
        return False
