"""Ends what a fork server has forked, and what that has started: SIGTERM, then SIGKILL after some seconds.

A process whose client has gone is asked to end, and killed if it does not. When a child has ended, however that came,
what it has left behind is ended too: processes in sessions of their own, daemons that have lost their parent. The fork
server adopts such processes, and knows by their mark whose they are (see `core.descendants`). Of a node whose agent was
killed, the agents' fork server ends what is left: the other one, which does that, may have been killed with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import NamedTuple

import msgspec

from tfos_lab.core.descendants import MARK, descendants, left_by, signal_marked
from tfos_lab.core.processes import ask_group_to_end, signal_group
from tfos_lab.core.runtime_files import scratch_root
from tfos_lab.node.forkserver.leftovers import marks_left_by
from tfos_lab.node.forkserver.requests import ChildSpec, SpawnRequest

# Seconds between SIGTERM and SIGKILL. An agent first sends its node's output, for as long as the driver takes it.
CHILD_GRACE_S = 2.0
AGENT_GRACE_S = 600.0
LEFTOVER_GRACE_S = 1.5
# Whoever has started a process may look for it a moment longer than it lives.
_ORPHAN_S = 3.0
_BUSY_S = 0.1
_IDLE_S = 1.0
# What a killed agent's node has started is looked for when others have had the time to end it, and so many times.
_OTHERS_S = CHILD_GRACE_S + LEFTOVER_GRACE_S
_LOOKS = 3


class _Orphans(NamedTuple):
    """When to look for what a killed agent's node has started, or the nodes of all such agents."""

    agent: int | None
    due: float


class Endings:
    """What is yet to be killed; used in the fork server's loop only."""

    def __init__(self) -> None:
        self._forked: dict[int, str] = {}
        self._grace_s: dict[int, float] = {}
        self._kill_at: dict[int, float] = {}
        self._leavers: dict[int, tuple[str, float]] = {}
        self._orphans: list[_Orphans] = []
        self._asked: set[int] = set()
        self._reap_at: float | None = None

    @property
    def forked_pids(self) -> list[int]:
        """The processes that have been forked here, and not adopted."""
        return list(self._forked)

    @property
    def timeout_s(self) -> float:
        """How long the loop may wait before the next `tick`."""
        return _BUSY_S if self.pending else _IDLE_S

    @property
    def pending(self) -> bool:
        """Whether anything is being ended."""
        return bool(self._kill_at or self._leavers or self._orphans)

    def forked(self, pid: int, request: SpawnRequest) -> None:
        """Take note of a process that has been forked."""
        self._forked[pid] = _mark_of(request)
        self._grace_s[pid] = AGENT_GRACE_S if request.target == "agent" else CHILD_GRACE_S

    def end(self, pid: int) -> None:
        """Ask a process to end; it is killed if it does not."""
        ask_group_to_end(pid)
        self._kill_at[pid] = time.monotonic() + self._grace_s.get(pid, CHILD_GRACE_S)

    def reaped(self, pid: int) -> None:
        """A process has ended: what it has left behind goes too."""
        self._kill_at.pop(pid, None)
        is_agent = self._grace_s.pop(pid, None) == AGENT_GRACE_S
        mark = self._forked.pop(pid, None)
        if mark:
            self._leavers[pid] = (mark, time.monotonic() + LEFTOVER_GRACE_S)
        elif is_agent:
            self.look_for_orphans(pid)

    def look_for_orphans(self, agent: int | None = None) -> None:
        """End what the nodes of an agent that was killed have started, or of all such agents, unless others do."""
        # Some may not have quite ended yet: they hold locks for as long.
        if agent is None or _marks_left_by(agent):
            due = time.monotonic() + _OTHERS_S
            self._orphans += [_Orphans(agent, due + _IDLE_S * look) for look in range(_LOOKS)]

    def reap_orphans_soon(self) -> None:
        """A process has ended, which may be an adopted one."""
        self._reap_at = time.monotonic() + _ORPHAN_S

    def _reap_orphans(self) -> None:
        self._reap_at = None
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if ended.si_pid in self._forked:
                    return  # the fork server waits for it
                os.waitpid(ended.si_pid, 0)

    def tick(self) -> None:
        """Kill what has had its time, and end what has been left behind."""
        now = time.monotonic()
        if self._reap_at is not None and now >= self._reap_at:
            self._reap_orphans()
        for pid in [pid for pid, kill_at in self._kill_at.items() if now >= kill_at]:
            signal_group(pid, signal.SIGKILL)
            self._kill_at[pid] = now + _IDLE_S
        if self._leavers:
            self._end_what_was_left(now)
        self._end_orphans(now)

    def _end_orphans(self, now: float) -> None:
        due = {one.agent for one in self._orphans if now >= one.due}
        self._orphans = [one for one in self._orphans if now < one.due]
        if marks := {mark for agent in due for mark in _marks_left_by(agent)}:
            signal_marked(marks, signal.SIGKILL)

    def _end_what_was_left(self, now: float) -> None:
        family = descendants(os.getpid(), without=self._forked)
        for leaver, (mark, kill_at) in list(self._leavers.items()):
            # With no child alive, all that is left here was left by one that has ended.
            left = left_by(family, mark, leaver) if any(self._forked.values()) else {one.pid for one in family}
            if not left:
                del self._leavers[leaver]
            self._signal(left, kill=now >= kill_at)
        self._asked &= {relative.pid for relative in family}

    def _signal(self, pids: set[int], *, kill: bool) -> None:
        for pid in pids if kill else pids - self._asked:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL if kill else signal.SIGTERM)
                os.kill(pid, signal.SIGCONT)
        self._asked |= pids

    def finish(self) -> None:
        """End what is left before the fork server itself ends, but for agents; takes a few seconds at most."""
        until = time.monotonic() + CHILD_GRACE_S + 2 * LEFTOVER_GRACE_S
        self._kill_at = {pid: at for pid, at in self._kill_at.items() if self._grace_s.get(pid) != AGENT_GRACE_S}
        self._orphans = [one for one in self._orphans if _marks_left_by(one.agent)]
        while self.pending and time.monotonic() < until:
            self._reap()
            self.tick()
            time.sleep(_BUSY_S / 5)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self.reaped(pid)


def _marks_left_by(agent: int | None) -> list[str]:
    with contextlib.suppress(OSError):
        return marks_left_by(agent, scratch_root())
    return []


def _mark_of(request: SpawnRequest) -> str:
    if request.target != "child":
        return ""
    return msgspec.msgpack.decode(request.body, type=ChildSpec).environ.get(MARK, "")
