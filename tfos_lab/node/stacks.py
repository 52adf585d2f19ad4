"""Stacks of this process, as text, and what they say: it is in the user's code, in TensorFlow, or waits for rows.

A stack can be had by a signal, too: Python's `faulthandler` writes it to a file, even while a call into C holds the
interpreter. The child registers the signal when it begins; its agent sends it, and reads the file. Only the thread that
takes the signal, the main one as a rule, is written: to look at others while they run could crash the process.
"""

from __future__ import annotations

import contextlib
import faulthandler
import linecache
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from tfos_lab.core import messages as m
from tfos_lab.core import sources
from tfos_lab.core.messages import Condition
from tfos_lab.core.processes import catches, state_of
from tfos_lab.core.threads import frames_of_threads, outwards

if TYPE_CHECKING:
    from tfos_lab.node.child_supervisor import ChildSupervisor

_TENSORFLOW = ("tensorflow", "keras", "tf_keras")
# Runs Python functions for TensorFlow, on threads of its own: generators, `tf.py_function`, `tf.numpy_function`.
_CALLED_BY_TENSORFLOW = "script_ops.py"
# Around every function of Keras and TensorFlow: they shorten tracebacks.
_WRAPPERS = ("error_handler",)
# Calls the user's function: what is above it in the stack is ours.
_ENTRY = str(Path(__file__).with_name("invoke.py"))


class Place(NamedTuple):
    """One frame: a line of a file, within a function."""

    file: str
    line: int
    function: str

    @property
    def package(self) -> str:
        """The package of the file; see `sources.package_of`."""
        return sources.package_of(self.file)

    @property
    def location(self) -> str:
        """The place as a traceback names it."""
        return self._told(sources.label(self.file) or f'File "{self.file}"')

    def __str__(self) -> str:
        return self._told(sources.label(self.file) or "/".join(Path(self.file).parts[-2:]).lstrip("/"))

    def _told(self, file: str) -> str:
        return f"{file}, line {self.line}" + (f", in {self.function}" if self.function != "<module>" else "")


def own_part(stack: Sequence[Place]) -> list[Place]:
    """Return the part of a stack, outermost first, that begins with the user's function."""
    calls = [number for number, place in enumerate(stack) if place.file == _ENTRY]
    return list(stack[calls[-1] + 1 :]) if calls else list(stack)


def condition_of(main: Sequence[Place], others: Sequence[Sequence[Place]]) -> tuple[Condition, Sequence[Place]]:
    """Return what a node is at, and the stack that shows it: the main thread's, or that of a function of `tf.data`.

    Stacks have the outermost frame first.
    """
    condition = _condition(own_part(main))
    if condition is not Condition.IN_TENSORFLOW:
        return condition, own_part(main)
    for stack in map(_called_by_tensorflow, others):
        if stack and (inner := _condition(stack)) is not Condition.IN_TENSORFLOW:
            return inner, stack
    return condition, own_part(main)


def _called_by_tensorflow(stack: Sequence[Place]) -> list[Place]:
    """Return the part of a stack that TensorFlow has called; [] if it is not one of its threads."""
    calls = [number for number, place in enumerate(stack) if place.file.endswith(_CALLED_BY_TENSORFLOW)]
    return list(stack[calls[-1] + 1 :]) if calls else []


def _condition(stack: Sequence[Place]) -> Condition:
    for place in reversed(stack):
        match place.package:
            case "Python":
                continue
            case "tfos_lab":
                is_feed = "/node/feed/" in place.file
                return Condition.WAITS_FOR_ROWS if is_feed else Condition.WAITS
            case package if package in _TENSORFLOW:
                return Condition.IN_TENSORFLOW
            case _:
                return Condition.BUSY
    return Condition.BUSY


def place_of(stack: Sequence[Place]) -> str:
    """Return the innermost line of the user's own in a stack, as text; the innermost one at all if there is none."""
    users = [place for place in stack if not place.package]
    return str((users or list(stack))[-1]) if stack else ""


def call_of(stack: Sequence[Place]) -> str:
    """Return what the innermost line of the user's own has called: ``"fit (keras)"``; "" for Python's own functions."""
    called: list[Place] = []
    for place in reversed(stack):
        if not place.package:
            break
        if place.package != "Python" and place.function not in _WRAPPERS:
            called.append(place)
    return f"{called[-1].function} ({called[-1].package})" if called else ""


MAIN = "main thread"
_MAX_FRAMES = 60


def render(stacks: Iterable[tuple[str, Sequence[Place]]]) -> str:
    """Return the text of named stacks, in their order, without those of our own threads.

    Of the main thread, it is what the user's function has called.
    """
    shown = [(name, own_part(stack) if name == MAIN else stack) for name, stack in stacks]
    return "\n\n".join(_render(name, stack) for name, stack in shown if name == MAIN or not _is_ours(stack))


def _is_ours(stack: Sequence[Place]) -> bool:
    packages = {place.package for place in stack}
    return "tfos_lab" in packages and packages <= {"tfos_lab", "Python"}


def _render(name: str, stack: Sequence[Place]) -> str:
    left_out = len(stack) - _MAX_FRAMES
    lines = [f"{name} (most recent call last):", *([f"  … {left_out} frames …"] if left_out > 0 else [])]
    for place in stack[-_MAX_FRAMES:]:
        lines.append(f"  {place.location}")
        if source := linecache.getline(place.file, place.line).strip():
            lines.append(f"    {source}")
    return "\n".join(lines)


_MAX_THREADS = 100


def take_stacks(request: int) -> m.Stacks:
    """Return the answer to a `StacksWanted`; the calling thread is left out."""
    stacks = [(name, places(frame)) for name, frame in _frames()]
    main = dict(stacks).get(MAIN, [])
    condition, shown = condition_of(main, [stack for name, stack in stacks if name != MAIN])
    return m.Stacks(request, condition, render(stacks), place=place_of(shown), call=call_of(shown))


def _frames() -> Iterator[tuple[str, FrameType]]:
    """Yield the threads' names and innermost frames: the main thread first, those of ours last."""
    threads = {thread.ident: thread for thread in threading.enumerate()}
    main = threading.main_thread().ident
    with frames_of_threads() as frames:
        # Threads that are not Python's own, such as those of `tf.data`, may have no entry.
        names = {ident: threads[ident].name if ident in threads else "thread" for ident in frames}
        order = sorted(frames, key=lambda ident: (ident != main, names[ident].startswith("tfos-")))
        for ident in order[:_MAX_THREADS]:
            yield MAIN if ident == main else f"{names[ident]} ({ident})", frames[ident]


def places(frame: FrameType | None) -> list[Place]:
    """Return the stack that ends with a frame, outermost first."""
    found = [Place(one.f_code.co_filename, one.f_lineno or 0, one.f_code.co_name) for one in outwards(frame)]
    return found[::-1]


# A node's stacks are written to it.
_FILE = "stacks.txt"
# Programs use SIGUSR1 and SIGUSR2 themselves. A platform without real-time signals has nothing better.
SIGNAL = signal.SIGRTMAX - 3 if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')


def register_dump(scratch: Path) -> None:
    """Have the signal write a stack of this process to the file; the file stays open until the process ends."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # without it, a locked process has no stacks
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        faulthandler.register(SIGNAL, file=os.open(scratch / _FILE, flags, 0o600), all_threads=False)


def stack_in(text: str) -> list[Place]:
    """Return the stack of a dump, outermost frame first."""
    frames = [found for line in text.splitlines() if (found := _FRAME.match(line))]
    return [Place(found[1], int(found[2]), found[3]) for found in reversed(frames)]


# ---- the agent's part -----------------------------------------------------------------------------------------------

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
        self._file = scratch / _FILE
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
            self._tell(message.request, Condition.AWAY, "it has no process now")
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
        self._tell(request, Condition.STOPPED, f"its process {pid} is stopped (SIGSTOP, or a debugger): {advice}")
        return True

    def _ask_with_signal(self, request: int, asked: _Asked, now: float) -> None:
        pid = self._child.pid
        if not pid:
            self._tell(request, Condition.AWAY, "its process has ended")
        elif not catches(pid, SIGNAL):
            self._tell(request, Condition.LOCKED, f"{_silent(asked)}, and has no handler for the signal that asks it")
        else:
            os.truncate(self._file, 0)
            os.kill(pid, SIGNAL)
            asked.has_signal, asked.due_at = True, now + _DUMP_S

    def _tell_dump(self, request: int, asked: _Asked) -> None:
        stack = stack_in(self._file.read_text(errors="replace"))
        if not stack:
            self._tell(request, Condition.LOCKED, f"{_silent(asked)}, and does not take signals either")
            return
        name = MAIN if any(place.file == _ENTRY for place in stack) else "the thread that took the signal"
        text = f"{_silent(asked)}; this stack was taken with a signal\n\n{render([(name, stack)])}"
        self._tell(request, Condition.LOCKED, text, own_part(stack))

    def _tell(self, request: int, condition: Condition, text: str, stack: list[Place] | None = None) -> None:
        self._asked.pop(request, None)
        place, call = place_of(stack or []), call_of(stack or [])
        self._send(m.Stacks(request, condition, text, place=place, call=call))


def _silent(asked: _Asked) -> str:
    return (
        f"its Python has not answered for {asked.patience_s:g} s: something holds the interpreter's lock (GIL), such "
        "as a long call into C"
    )
