"""What is told of other processes."""

from __future__ import annotations

import subprocess
import sys

from tests.support.eventually import eventually
from tfos_lab.core.processes import lives


def test_a_process_that_has_ended_does_not_live_though_its_parent_has_not_taken_note():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert lives(process.pid)
        process.kill()
        eventually(lambda: not lives(process.pid))
        assert process.returncode is None
    assert not lives(process.pid)
