"""``tfos-lab bench``: the benchmarks, which lie in the checkout and not in the installed package."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tfos_lab.cli.paths import find_checkout, kernel_environ
from tfos_lab.cli.terminal import complain


def run(arguments: Sequence[str]) -> int:
    """Become ``python -m benchmarks`` in the checkout; returns an exit code if that cannot be."""
    checkout = find_checkout()
    if checkout is None or not (checkout / "benchmarks" / "__main__.py").is_file():
        complain("the benchmarks are not part of the installed package: run this in a checkout (make bench)")
        return 1
    command = [sys.executable, "-m", "benchmarks", *arguments]
    os.chdir(checkout)
    # It takes our place, so that whoever ends us ends it, and the exit code is its own.
    os.execve(command[0], command, kernel_environ(os.environ, checkout))  # noqa: S606
    return 0
