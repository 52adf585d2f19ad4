"""Runs TensorFlow in a process of its own, so that the tests' process need not import it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

_PROGRAM = """
import json, sys
from tfos_lab.core.lazy_imports import lazy_parts_of_keras

with lazy_parts_of_keras():
    import tensorflow as tf
arguments = sys.argv[1:]
{code}
print("answer:", json.dumps(answer))
"""


def in_tensorflow(code: str, *arguments: str) -> Any:
    """Run code that has ``tf`` and ``arguments``, and return what it leaves in ``answer``, by way of JSON."""
    program = _PROGRAM.format(code=code)
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.rpartition("answer:")[2])
