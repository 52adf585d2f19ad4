"""Runs programs one after another in this process, each as ``python -m tfos_lab.compat`` runs it; they share a JVM.

``python tests/compat/run_programs.py "PROGRAM ARGUMENTS" "PROGRAM ARGUMENTS" ...`` prints ``=== PROGRAM ended with CODE``
after each one.
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
        return leave.code if isinstance(leave.code, int) else int(leave.code is not None)


if __name__ == "__main__":
    for command in sys.argv[1:]:
        code = run(command)
        print(f"=== {Path(shlex.split(command)[0]).name} ended with {code}", flush=True)
