"""When an agent has last sent a heartbeat, for others of its host: its child, and the fork server that has forked it.

It is in memory that they find among the agent's descriptors. A file would not do: an agent whose disk hangs is alive.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from pathlib import Path
from typing import Self

_NAME = "tfos-heartbeat"
_LINK = f"/memfd:{_NAME} (deleted)"
_SIZE_BYTES = 8


class LastHeartbeat:
    """A moment in memory that processes share.

    Parameters
    ----------
    memory : mmap.mmap
        Shared; contains seconds of ``time.monotonic``, which is one clock for all processes of a host.
    descriptor : int
        By which others find the memory; -1 in those others.
    """

    def __init__(self, memory: mmap.mmap, descriptor: int = -1) -> None:
        self._memory = memory
        # Written and read in one step, unlike by `struct`, which writes zeros first that another process may read.
        self._moment = memoryview(memory).cast("d")
        self._descriptor = descriptor

    @classmethod
    def of_this_process(cls) -> Self:
        """Return this process' own, which begins now."""
        descriptor = os.memfd_create(_NAME)
        os.ftruncate(descriptor, _SIZE_BYTES)
        own = cls(mmap.mmap(descriptor, _SIZE_BYTES), descriptor)
        own.was_sent()
        return own

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """Return that of an agent; None if the process has none, or is gone."""
        with contextlib.suppress(OSError):  # it is gone
            for path in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError, ValueError):  # the agent has closed this one meanwhile
                    if str(path.readlink()) == _LINK:
                        with path.open("rb") as file:
                            return cls(mmap.mmap(file.fileno(), _SIZE_BYTES, access=mmap.ACCESS_READ))
        return None

    def was_sent(self) -> None:
        """A heartbeat has been sent now."""
        self._moment[0] = time.monotonic()

    @property
    def at_s(self) -> float:
        """When the last one was sent."""
        return self._moment[0]

    def close(self) -> None:
        """Let go of the memory."""
        self._moment.release()
        self._memory.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
