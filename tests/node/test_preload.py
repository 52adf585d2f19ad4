"""What a fork server imports: nothing of it is looked at for garbage, and what comes later is."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import gc
from tfos_lab.node.preload import preload
preload("plain")
print(gc.isenabled(), gc.get_freeze_count() > len(gc.get_objects()))
"""


def test_imported_objects_are_exempt_from_garbage_collection_and_later_ones_are_not():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
