"""Fuzzing: random messages, files and bytes for all that reads what others have sent.

`make test` tries the same examples each time; ``TFOS_LAB_FUZZ=soak``, as in `make soak`, tries other ones, and
many more. No example has a deadline, as machines are loaded.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_MANY = os.environ.get("TFOS_LAB_FUZZ") == "soak"
_COMMON = {"deadline": None, "print_blob": True, "suppress_health_check": list(HealthCheck), "database": None}


def fuzzed(examples: int, *, steps: int = 30) -> settings:
    """Return the settings of a test that tries so many examples, of so many steps if it is of a state machine."""
    if _MANY:
        return settings(max_examples=20 * examples, stateful_step_count=2 * steps, **_COMMON)
    return settings(max_examples=examples, stateful_step_count=steps, derandomize=True, **_COMMON)
