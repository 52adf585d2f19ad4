"""Runs programs one after another in this process, each as ``python -m tfos_lab.compat`` runs it; they share a JVM.

After each of its arguments, such as ``"PROGRAM ARGUMENTS"``, it prints ``=== PROGRAM ended with CODE``.
"""

from __future__ import annotations

import runpy
import shlex
import sys
from pathlib import Path


def run(command: str) -> int:
    """Run one program, and return its exit code."""
    sys.argv = ["tfos_lab.compat", *shlex.split(command)]
    try:
        runpy.run_module("tfos_lab.compat", run_name="__main__")
    except SystemExit as leave:
        return int(leave.code) if isinstance(leave.code, int) else int(leave.code is not None)
    raise AssertionError(f"{command} has returned, and not exited")


if __name__ == "__main__":
    for command in sys.argv[1:]:
        code = run(command)
        sys.stdout.write(f"=== {Path(shlex.split(command)[0]).name} ended with {code}\n")
        sys.stdout.flush()
