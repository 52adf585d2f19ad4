"""``tfos-lab compat``: runs a program that was written for TensorFlowOnSpark, unchanged."""

from __future__ import annotations

from collections.abc import Sequence

from tfos_lab.compat.program import main


def run(arguments: Sequence[str]) -> int:
    """Run a script; returns the exit code."""
    return main(arguments)
