"""``tfos-lab bench``: runs the benchmarks, which are part of the checkout and not of the installed package."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tfos_lab.cli.paths import find_checkout, kernel_environ
from tfos_lab.cli.terminal import echo_error


def run(arguments: Sequence[str]) -> int:
    """Replace this process by ``python -m benchmarks`` in the checkout; returns an exit code if that is impossible."""
    checkout = find_checkout()
    if checkout is None or not (checkout / "benchmarks" / "__main__.py").is_file():
        echo_error("the benchmarks are not part of the installed package: run this in a checkout (make bench)")
        return 1
    command = [sys.executable, "-m", "benchmarks", *arguments]
    os.chdir(checkout)
    # It replaces this process, so that signals reach it and the exit code is its own.
    os.execve(command[0], command, kernel_environ(os.environ, checkout))  # noqa: S606
    return 0
