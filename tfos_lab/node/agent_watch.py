"""Tells a child that its agent has ended or is stopped: the node is lost by then, and the child goes, too."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from tfos_lab.core.processes import state_of

CHECK_S = 1.0
# The driver has called the node lost by then.
STOPPED_S = 6.0


class AgentWatch:
    """Watches an agent; for one thread, which asks at least once a second.

    A pause in which this process did not run counts for two seconds at most: a host that sleeps, a container that is
    frozen or a function that holds the interpreter's lock says nothing about the agent. Neither does a debugger that
    holds the agent at a breakpoint.

    Parameters
    ----------
    pid : int
        The agent; 0 if it is not known.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._checked_at = time.monotonic()
        self._stopped_s = 0.0

    def agent_is_gone(self) -> bool:
        """Whether the agent has ended, or has been stopped for too long."""
        now = time.monotonic()
        passed_s = now - self._checked_at
        if passed_s < CHECK_S or not self._pid:
            return False
        self._checked_at = now
        state = state_of(self._pid)
        self._stopped_s = self._stopped_s + min(passed_s, 2 * CHECK_S) if state == "T" else 0.0
        return state in ("", "Z", "X") or self._stopped_s >= STOPPED_S

    def end_agent(self) -> None:
        """Have an agent that is stopped go on and end: it sends its node's output first."""
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGTERM)
            os.kill(self._pid, signal.SIGCONT)
