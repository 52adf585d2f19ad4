"""When an agent has last sent a heartbeat, for others of its host: its child, and the fork server that has forked it.

It is in memory that they find among the agent's descriptors. A file would not do: an agent whose disk hangs is alive.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import time
from pathlib import Path
from typing import Self

_NAME = "tfos-heartbeat"
_LINK = f"/memfd:{_NAME} (deleted)"
_TIME = struct.Struct("=d")


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
        self._descriptor = descriptor

    @classmethod
    def of_this_process(cls) -> Self:
        """Return this process' own, which begins now."""
        descriptor = os.memfd_create(_NAME)
        os.ftruncate(descriptor, _TIME.size)
        own = cls(mmap.mmap(descriptor, _TIME.size), descriptor)
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
                            return cls(mmap.mmap(file.fileno(), _TIME.size, access=mmap.ACCESS_READ))
        return None

    def was_sent(self) -> None:
        """A heartbeat has been sent now."""
        _TIME.pack_into(self._memory, 0, time.monotonic())

    @property
    def at_s(self) -> float:
        """When the last one was sent."""
        at_s: float = _TIME.unpack_from(self._memory, 0)[0]
        return at_s

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
