"""Ends what a fork server has forked, and what that has started: SIGTERM, then SIGKILL after some seconds.

A process whose client has gone is asked to end, and killed if it does not. A child adopts whatever loses its parent
below it, so that all that it has started stays below it: processes in sessions of their own, daemons. When it has
ended, however that came, the fork server adopts what is left, and ends that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

from tfos_lab.core.processes import ask_group_to_end, descendants, signal_group

# Seconds between SIGTERM and SIGKILL. An agent first sends its node's output, for as long as the driver takes it.
CHILD_GRACE_S = 2.0
AGENT_GRACE_S = 600.0
LEFTOVER_GRACE_S = 1.5
_BUSY_S = 0.1
_IDLE_S = 1.0


class Endings:
    """What is yet to be killed; used in the fork server's loop only."""

    def __init__(self) -> None:
        # What was forked here, with the time that it gets to end.
        self._grace_s: dict[int, float] = {}
        self._kill_at: dict[int, float] = {}
        # Whether something may be left of a process that has ended, and when what was found of it is killed.
        self._may_be_left = False
        self._left_until: dict[int, float] = {}

    @property
    def timeout_s(self) -> float:
        """How long the loop may wait before the next `tick`."""
        return _BUSY_S if self.pending else _IDLE_S

    @property
    def pending(self) -> bool:
        """Whether anything is being ended."""
        return bool(self._kill_at or self._may_be_left)

    def forked(self, pid: int, target: str) -> None:
        """Take note of a process that has been forked."""
        self._grace_s[pid] = AGENT_GRACE_S if target == "agent" else CHILD_GRACE_S

    def end(self, pid: int) -> None:
        """Ask a process to end; it is killed if it does not."""
        ask_group_to_end(pid)
        self._kill_at[pid] = time.monotonic() + self._grace_s.get(pid, CHILD_GRACE_S)

    def reap(self) -> Iterator[tuple[int, int]]:
        """Yield each process that was forked here and has ended, with its status; those that were adopted just go."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                self._kill_at.pop(pid, None)
                if self._grace_s.pop(pid, None) is not None:
                    self._may_be_left = True
                    yield pid, status

    def tick(self) -> None:
        """Kill what has had its time, and end what has been left behind."""
        now = time.monotonic()
        for pid in [pid for pid, kill_at in self._kill_at.items() if now >= kill_at]:
            signal_group(pid, signal.SIGKILL)
            self._kill_at[pid] = now + _IDLE_S
        if self._may_be_left:
            self._end_what_was_left(now)

    def _end_what_was_left(self, now: float) -> None:
        left = descendants(os.getpid(), without=self._grace_s)
        for pid in left:
            is_new = pid not in self._left_until
            kills = now >= self._left_until.setdefault(pid, now + LEFTOVER_GRACE_S)
            if is_new or kills:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL if kills else signal.SIGTERM)
                    os.kill(pid, signal.SIGCONT)
        self._left_until = {pid: self._left_until[pid] for pid in left}
        self._may_be_left = bool(left)

    def finish(self) -> None:
        """End what is left before the fork server itself ends, but for agents; takes a few seconds at most."""
        until = time.monotonic() + CHILD_GRACE_S + 2 * LEFTOVER_GRACE_S
        self._kill_at = {pid: at for pid, at in self._kill_at.items() if self._grace_s.get(pid) != AGENT_GRACE_S}
        while self.pending and time.monotonic() < until:
            for _ in self.reap():
                pass
            self.tick()
            time.sleep(_BUSY_S / 5)
