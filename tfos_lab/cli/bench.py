"""``tfos-lab bench``: the benchmarks, which lie in the checkout and not in the installed package."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from tfos_lab.cli.places import find_checkout, kernel_environ
from tfos_lab.cli.terminal import complain


def run(arguments: Sequence[str]) -> int:
    """Run ``python -m benchmarks`` in the checkout; returns its exit code."""
    checkout = find_checkout()
    if checkout is None or not (checkout / "benchmarks" / "__main__.py").is_file():
        complain("the benchmarks are not part of the installed package: run this in a checkout (make bench)")
        return 1
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=checkout, env=kernel_environ(os.environ, checkout), check=False).returncode
