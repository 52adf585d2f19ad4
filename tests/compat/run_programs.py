"""Runs programs one after another in this process, each as ``python -m tfos_lab.compat`` runs it; they share a JVM.

After each of its arguments, such as ``"PROGRAM ARGUMENTS"``, it prints ``=== PROGRAM ended with CODE``.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from tfos_lab.compat.program import main


def run(command: str) -> int:
    """Run one program, and return its exit code."""
    try:
        return main(shlex.split(command))
    except SystemExit as leave:
        return int(leave.code) if isinstance(leave.code, int) else int(leave.code is not None)


if __name__ == "__main__":
    for command in sys.argv[1:]:
        code = run(command)
        sys.stdout.write(f"=== {Path(shlex.split(command)[0]).name} ended with {code}\n")
        sys.stdout.flush()
