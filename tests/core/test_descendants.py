"""What a process has started is found by its mark, its group, or its parents."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tfos_lab.core.descendants import MARK, bears_mark, descendants, left_by, signal_marked

_SLEEP = "print('up', flush=True); time.sleep(60)"
_FORKED = """
import os, sys, time
from tfos_lab.core.descendants import wear_mark
wear_mark(sys.argv[1])
if os.fork() == 0:
    os.setsid()
    os.closerange(3, 256)
    print(os.getpid(), flush=True)
time.sleep(60)
"""


@pytest.fixture
def started():
    """A function that starts a process which has printed a line; it is ended with all below it."""
    processes = []

    def start(code, *arguments, **options):
        command = [sys.executable, "-c", code, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, **options)
        processes.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in processes:
        for relative in descendants(process.pid):
            os.kill(relative.pid, signal.SIGKILL)
        process.kill()
        process.communicate()


def test_a_program_has_the_mark_in_its_environment(started, tmp_path):
    mark = str(tmp_path / "child-1")
    process, _ = started(f"import time; {_SLEEP}", env={**os.environ, MARK: mark})
    assert bears_mark(process.pid, mark)
    assert not bears_mark(process.pid, f"{mark}0")
    assert bears_mark(process.pid, f"{mark}0", mark)
    assert not bears_mark(os.getpid(), mark)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_forked_process_has_the_mark_in_its_memory_though_the_file_may_be_gone(started, tmp_path, is_there):
    mark = str(tmp_path / "child-1")
    process, forked = started(_FORKED, mark)
    if not is_there:
        os.unlink(mark)  # noqa: PTH108 - a text
    assert bears_mark(int(forked), mark)
    assert [relative.pid for relative in descendants(process.pid)] == [int(forked)]
    assert descendants(process.pid, without=[int(forked)]) == []


def test_what_a_child_has_left_is_below_what_bears_its_mark(started, tmp_path):
    mark = str(tmp_path / "child-1")
    code = f"import os, time; os.environ.clear(); os.fork() or os.setsid(); {_SLEEP}"
    process, _ = started(code, env={**os.environ, MARK: mark})
    family = descendants(os.getpid())
    below = {process.pid, *(relative.pid for relative in descendants(process.pid))}
    assert left_by(family, mark, group=-1) == below
    assert len(below) == 2
    assert left_by(family, f"{mark}0", group=process.pid) == below
    assert left_by(family, f"{mark}0", group=-1) == set()


def test_all_that_bear_a_mark_are_signalled(started, tmp_path):
    mark = str(tmp_path / "child-1")
    process, _ = started(f"import time; {_SLEEP}", env={**os.environ, MARK: mark})
    assert not signal_marked([f"{mark}0"], signal.SIGKILL)
    assert signal_marked([mark], signal.SIGKILL)
    assert process.wait(20) == -signal.SIGKILL
