"""Process helpers, on real processes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tfos_lab.core import processes

SLEEP = [sys.executable, "-c", "import sys, time; print('up', flush=True); time.sleep(60)"]


@pytest.fixture
def sleeper():
    with subprocess.Popen(SLEEP, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout.readline() == b"up\n"
        yield process
        process.kill()


def test_a_pidfd_becomes_readable_when_the_process_ends(sleeper):
    pidfd = processes.open_pidfd(sleeper.pid)
    assert select.select([pidfd], [], [], 0)[0] == []
    sleeper.kill()
    assert select.select([pidfd], [], [], 5.0)[0] == [pidfd]
    os.close(pidfd)


def test_there_is_no_pidfd_of_a_process_that_is_gone(sleeper):
    sleeper.kill()
    sleeper.wait()
    assert processes.open_pidfd(sleeper.pid) is None


def test_a_signal_reaches_a_whole_group(sleeper):
    assert processes.group_alive(sleeper.pid)
    assert processes.signal_group(sleeper.pid, signal.SIGKILL)
    assert sleeper.wait(60) == -signal.SIGKILL
    assert not processes.group_alive(sleeper.pid)
    assert not processes.signal_group(sleeper.pid, signal.SIGTERM)


def test_parents_and_command_lines_are_found(sleeper):
    assert processes.parent_of(sleeper.pid) == os.getpid()
    assert processes.command_line(sleeper.pid)[:2] == SLEEP[:2]


def test_a_process_that_is_gone_has_neither_parent_nor_command_line(sleeper):
    sleeper.kill()
    sleeper.wait()
    assert processes.parent_of(sleeper.pid) == 0
    assert processes.command_line(sleeper.pid) == []


def has_ended(process):
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_process_ends_with_its_parent():
    middle = """
import os, sys, time
from tfos_lab.core.processes import die_with_parent
reading, writing = os.pipe()
parent, child = os.getpid(), os.fork()
if child == 0:
    die_with_parent(parent)
    os.write(writing, b"x")
    time.sleep(60)
os.read(reading, 1)
print(child, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", middle], stdout=subprocess.PIPE) as parent:
        grandchild = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + 60.0
    while not has_ended(grandchild) and time.monotonic() < deadline:
        select.select([], [], [], 0.01)
    assert has_ended(grandchild)


def test_a_process_whose_parent_has_gone_ends_at_once():
    with subprocess.Popen([sys.executable, "-c", _ORPHAN], stdout=subprocess.PIPE) as process:
        assert process.stdout.read() == b"before\n"
        assert process.wait(60) == 1


_ORPHAN = """
from tfos_lab.core.processes import die_with_parent
print("before", flush=True)
die_with_parent(-1)
print("after", flush=True)
"""
