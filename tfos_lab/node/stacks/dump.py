"""A stack by a signal: Python's `faulthandler` writes it to a file, even while a call into C holds the interpreter.

The child registers the signal when it begins; its agent sends it, and reads the file. Only the thread that takes the
signal, the main one as a rule, is written: to look at others while they run could crash the process.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
from pathlib import Path

from tfos_lab.node.stacks.frames import Place

_FILE = "stacks.txt"
# Programs use SIGUSR1 and SIGUSR2 themselves. A platform without real-time signals has nothing better.
SIGNAL = signal.SIGRTMAX - 3 if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')


def dump_path(scratch: Path) -> Path:
    """Return the file that a node's stacks are written to."""
    return scratch / _FILE


def register(scratch: Path) -> None:
    """Have the signal write a stack of this process to the file; the file stays open until the process ends."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # without it, a locked process has no stacks
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        faulthandler.register(SIGNAL, file=os.open(dump_path(scratch), flags, 0o600), all_threads=False)


def stack_in(text: str) -> list[Place]:
    """Return the stack of a dump, outermost frame first."""
    frames = [found for line in text.splitlines() if (found := _FRAME.match(line))]
    return [Place(found[1], int(found[2]), found[3]) for found in reversed(frames)]
