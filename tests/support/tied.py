"""Runs a command that ends with the process that starts it: ``Popen(tied(command))``, on Linux.

A ``preexec_fn`` could say so too, but with one Python forks, and gRPC's threads, which a process has once it has used
Spark Connect, may end the fork before the command runs. Without one, it does not.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

_PROGRAM = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(sys.argv[1]))  # PR_SET_PDEATHSIG, which is kept by exec
for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and by what it executes
    signal.signal(ignored, signal.SIG_DFL)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def tied(command: Sequence[str | Path], number: signal.Signals = signal.SIGTERM) -> list[str]:
    """Return the command that runs this one, and has Linux send it a signal when the thread that starts it has gone."""
    words = [str(word) for word in command]
    if sys.platform != "linux":
        return words
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, str(int(number)), *words]
