"""Tells an agent that is stopped or hangs from one that works: the node is lost by then, and its child goes, too.

The child watches its agent, and the fork server one that it has asked to end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import time
from pathlib import Path
from typing import Self

from tfos_lab.core.processes import state_of
from tfos_lab.node.last_heartbeat import LastHeartbeat

CHECK_S = 1.0
# The driver has called the node lost by then.
SILENT_S = 6.0
# One that was stopped, and goes on when it is asked to end, gets so long to send a heartbeat.
_MOMENT_S = 2.0
# What an agent that spins takes in this time is much more, and what one that cannot run takes is nothing.
_RUNS_TICKS = os.sysconf("SC_CLK_TCK") // 20
_CREDENTIALS = struct.Struct("3i")


def peer_of(sock: socket.socket) -> int:
    """Return the process that has made a pair of sockets; 0 if the system does not tell."""
    with contextlib.suppress(OSError, AttributeError):
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return int(_CREDENTIALS.unpack(credentials)[0])
    return 0


class AgentWatch:
    """Watches an agent; for one thread, which asks at least once a second.

    An agent is silent while it sends no heartbeats although it could: it is stopped, its loop spins, or something holds
    the lock of its interpreter. A pause in which this process did not run counts for two seconds at most: a host that
    sleeps, a container that is frozen or a function that holds the interpreter's lock says nothing about the agent.
    Neither does a debugger that holds the agent at a breakpoint, a disk that it waits for, or a machine that does not
    let it run.

    Parameters
    ----------
    pid : int
        The agent; 0 if it is not known.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._checked_at = time.monotonic()
        self._heartbeat = LastHeartbeat.of(pid) if pid else None
        self._heard_at = self._heartbeat.at_s if self._heartbeat is not None else 0.0
        self._used_ticks = ticks_of(pid)
        self._state = "S"
        self._silent_s = 0.0

    @classmethod
    def of_one_asked_to_end(cls, pid: int) -> Self:
        """Return a watch that counts the silence before it, all but a moment in which the agent may go on."""
        watch = cls(pid)
        if watch._heartbeat is not None:
            watch._silent_s = min(watch._checked_at - watch._heard_at, SILENT_S - _MOMENT_S)
        return watch

    def agent_is_gone(self) -> bool:
        """Whether the agent has ended, or has been silent for too long."""
        now = time.monotonic()
        passed_s = now - self._checked_at
        if passed_s < CHECK_S:
            return False
        self._checked_at = now
        self._state = state_of(self._pid) if self._pid else "S"
        if self._state == "T" or self._misses_heartbeats():
            self._silent_s += min(passed_s, 2 * CHECK_S)
        return self._has_ended or self._silent_s >= SILENT_S

    def agent_hangs(self) -> bool:
        """Whether the agent has been silent for too long, and has not ended."""
        return self.agent_is_gone() and not self._has_ended

    @property
    def _has_ended(self) -> bool:
        return self._state in ("", "Z", "X")

    def _misses_heartbeats(self) -> bool:
        """Whether none has come since the last check, though the agent could send some; one that comes ends silence."""
        used_ticks, self._used_ticks = self._used_ticks, ticks_of(self._pid)
        heard_at = self._heard_at
        if self._heartbeat is not None:
            self._heard_at = self._heartbeat.at_s
        if self._heartbeat is None or self._heard_at != heard_at:
            self._silent_s = 0.0
            return False
        return self._state == "S" or (self._state == "R" and self._used_ticks - used_ticks > _RUNS_TICKS)

    def end_agent(self) -> None:
        """End an agent that is silent: one that is stopped may go on and send its node's output, one that hangs not."""
        if self._silent_s >= SILENT_S and not self._has_ended:
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGTERM if self._state == "T" else signal.SIGKILL)
                os.kill(self._pid, signal.SIGCONT)


def ticks_of(pid: int) -> int:
    """Return the processor time of a process' first thread, in clock ticks; 0 if it is gone."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
    return 0
