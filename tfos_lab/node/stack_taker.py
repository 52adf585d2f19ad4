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

# A dump has been written when it ends as a whole one does and its file has not grown for so long: a module that is just
# imported is a `<module>`, too. At most so long is waited for it; those who ask for stacks wait little longer.
_SETTLED_S = 0.05
_DUMP_S = 1.0
# The outermost frame of the main thread, or of another; or the mark of Python 3.11 and 3.12 for frames left out.
_ENDS = (" in <module>\n", " in _bootstrap\n", "\n  ...\n")
_MOST_FRAMES = 100


@dataclass
class _Asked:
    """A request that the child has not answered: ``dump_by`` once it has been asked with a signal."""

    patience_s: float
    ask_again_at: float
    dump_by: float | None = None
    size: int = 0
    grown_at: float = 0.0


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
            if self._tell_if_stopped(request):
                continue
            if asked.dump_by is not None:
                self._read_dump(request, asked, now)
            elif now >= asked.ask_again_at:
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
            asked.dump_by, asked.grown_at = now + _DUMP_S, now

    def _read_dump(self, request: int, asked: _Asked, now: float) -> None:
        size = self._file.stat().st_size
        if size != asked.size:
            asked.size, asked.grown_at = size, now
        is_late = now > (asked.dump_by or 0.0)
        if is_late or (size > 0 and now - asked.grown_at > _SETTLED_S):
            dump = self._file.read_text(errors="replace")
            if is_late or _is_whole(dump):
                self._tell_dump(request, asked, dump)

    def _tell_dump(self, request: int, asked: _Asked, dump: str) -> None:
        stack = stack_in(dump)
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


def _is_whole(dump: str) -> bool:
    """Whether a dump is complete, as far as its end tells: its process may be interrupted while it writes."""
    return dump.endswith(_ENDS) or (dump.endswith("\n") and len(stack_in(dump)) >= _MOST_FRAMES)


def _silent(asked: _Asked) -> str:
    return (
        f"its Python has not answered for {asked.patience_s:g} s: something holds the interpreter's lock (GIL), such "
        "as a long call into C"
    )
