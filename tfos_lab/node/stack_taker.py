"""The agent's part of stacks: asks the child, and finds out itself where the child does not answer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tfos_lab.core import messages as m
from tfos_lab.core.processes import catches, state_of
from tfos_lab.node.child_supervisor import ChildSupervisor
from tfos_lab.node.stacks import (
    MAIN,
    SIGNAL,
    Place,
    call_of,
    dump_path,
    has_entry,
    own_part,
    place_of,
    render,
    stack_in,
)

# A dump is written within milliseconds, but for a busy host. Those who ask for stacks wait little longer.
_DUMP_S = 0.5


@dataclass
class _Asked:
    """A request that the child has not answered, and when to do more about it: first to ask with a signal."""

    patience_s: float
    due_at: float
    has_signal: bool = False


class StackTaker:
    """Answers the driver's requests for stacks, inside the agent's poll loop."""

    def __init__(self, scratch: Path, child: ChildSupervisor, send: Callable[[m.FromAgent], None]) -> None:
        self._file = dump_path(scratch)
        self._child = child
        self._send = send
        self._asked: dict[int, _Asked] = {}

    @property
    def waits(self) -> bool:
        """Whether the child is yet to answer."""
        return bool(self._asked)

    def handle(self, message: m.ToAgent) -> None:
        """Ask the child, if that is what the driver wants; a process that is stopped, or not there, is told at once."""
        if not isinstance(message, m.StacksWanted):
            return
        if not (self._child.started and self._child.pid):  # one that waits for its start has no function either
            self._tell(message.request, m.Condition.AWAY, "it has no process now")
        elif not self._tell_if_stopped(message.request):
            self._asked[message.request] = _Asked(message.patience_s, time.monotonic() + message.patience_s)
            self._child.send(message)

    def answer(self, message: m.Stacks) -> None:
        """Pass on what the child has answered, unless that was found out without it."""
        if self._asked.pop(message.request, None) is not None:
            self._send(message)

    def tick(self, now: float) -> None:
        """Find out about a child that does not answer; called often."""
        for request, asked in list(self._asked.items()):
            if self._tell_if_stopped(request) or now < asked.due_at:
                continue
            if asked.has_signal:
                self._tell_dump(request, asked)
            else:
                self._ask_with_signal(request, asked, now)

    def _tell_if_stopped(self, request: int) -> bool:
        pid = self._child.pid
        if state_of(pid) not in ("T", "t"):
            return False
        advice = f"it shows no stacks until it goes on (kill -CONT {pid} on its host)"
        self._tell(request, m.Condition.STOPPED, f"its process {pid} is stopped (SIGSTOP, or a debugger): {advice}")
        return True

    def _ask_with_signal(self, request: int, asked: _Asked, now: float) -> None:
        pid = self._child.pid
        if not pid:
            self._tell(request, m.Condition.AWAY, "its process has ended")
        elif not catches(pid, SIGNAL):
            self._tell(request, m.Condition.LOCKED, f"{_silent(asked)}, and has no handler for the signal that asks it")
        else:
            os.truncate(self._file, 0)
            os.kill(pid, SIGNAL)
            asked.has_signal, asked.due_at = True, now + _DUMP_S

    def _tell_dump(self, request: int, asked: _Asked) -> None:
        stack = stack_in(self._file.read_text(errors="replace"))
        if not stack:
            self._tell(request, m.Condition.LOCKED, f"{_silent(asked)}, and does not take signals either")
            return
        name = MAIN if has_entry(stack) else "the thread that took the signal"
        text = f"{_silent(asked)}; this stack was taken with a signal\n\n{render([(name, stack)])}"
        self._tell(request, m.Condition.LOCKED, text, own_part(stack))

    def _tell(self, request: int, condition: m.Condition, text: str, stack: list[Place] | None = None) -> None:
        self._asked.pop(request, None)
        place, call = place_of(stack or []), call_of(stack or [])
        self._send(m.Stacks(request, condition, text, place=place, call=call))


def _silent(asked: _Asked) -> str:
    return (
        f"its Python has not answered for {asked.patience_s:g} s: something holds the interpreter's lock (GIL), such "
        "as a long call into C"
    )
