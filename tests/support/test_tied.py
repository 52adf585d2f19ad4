"""What is tied to a process ends with it, and is else as if nobody had tied it."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil

from tests.support.tied import tied


def test_it_ends_with_the_process_that_has_started_it():
    code = (
        "import subprocess, sys; from tests.support.tied import tied; "
        "print(subprocess.Popen(tied(['sleep', '600'])).pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        sleeper = psutil.Process(int(parent.stdout.readline()))
        while sleeper.name() != "sleep":
            assert sleeper.is_running()
        parent.kill()
    sleeper.wait(60)


def test_signals_and_exit_codes_are_the_commands_own():
    command = tied(["sh", "-c", "grep SigIgn /proc/self/status; exit 3"])
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 3
    ignored = int(done.stdout.split()[1], 16)
    assert not ignored & 1 << signal.SIGPIPE - 1
    with subprocess.Popen(tied(["sleep", "600"])) as process:
        process.terminate()
    assert process.returncode == -signal.SIGTERM
