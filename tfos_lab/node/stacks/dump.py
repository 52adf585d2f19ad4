"""Stacks by a signal: Python's `faulthandler` writes them to a file, even while a call into C holds the interpreter.

The child registers the signal when it begins; its agent sends it, and reads the file.
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
    """Have the signal write the stacks of this process to the file; the file stays open until the process ends."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # without it, a locked process has no stacks
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        faulthandler.register(SIGNAL, file=os.open(dump_path(scratch), flags, 0o600), all_threads=True)


def stacks_in(text: str) -> list[list[Place]]:
    """Return the stacks of a dump, outermost frame first: that of the thread which took the signal first of all."""
    stacks: list[list[Place]] = []
    stack: list[Place] = []
    for line in text.splitlines():
        if line.startswith("Current thread "):
            stacks.insert(0, stack := [])
        elif line.startswith("Thread "):
            stacks.append(stack := [])
        elif found := _FRAME.match(line):
            stack.insert(0, Place(found[1], int(found[2]), found[3]))
    return stacks
