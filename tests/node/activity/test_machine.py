"""The figures of processes and hosts are those of ``/proc``."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from tfos_lab.node.activity.machine import Machine

BURN = "import time\nprint('begun', flush=True)\nwhile True: pass"


@pytest.fixture
def burning():
    with subprocess.Popen([sys.executable, "-c", BURN], stdout=subprocess.PIPE, start_new_session=True) as process:
        process.stdout.readline()
        yield process
        process.kill()


def used_by(process):
    times = psutil.Process(process.pid).cpu_times()
    return times.user + times.system


def test_a_process_that_computes_is_seen_to(burning):
    machine, began_s = Machine(burning.pid), time.monotonic()
    assert machine.read(began_s).cpu == 0.0
    before_s = used_by(burning)
    while used_by(burning) < before_s + 0.5:  # it may get little of a busy host
        time.sleep(0.05)
    ended_s = time.monotonic()
    figures = machine.read(ended_s)
    assert figures.cpu == pytest.approx((used_by(burning) - before_s) / (ended_s - began_s), rel=0.5)
    resident = psutil.Process(burning.pid).memory_info().rss
    assert resident / 2 < figures.memory_bytes < resident * 2
    assert 0.0 < figures.host_cpu <= 1.0
    assert 0.0 < figures.host_memory < 1.0


def test_the_processes_of_a_group_count_together(tmp_path):
    for pid, group, ticks in ((7, 7, 100), (8, 7, 300), (9, 9, 900)):
        folder = tmp_path / str(pid)
        folder.mkdir()
        write_stat(folder, pid, group, ticks)
        (folder / "statm").write_text("50 10 5 1 0 4 0")
    machine = Machine(7, proc=tmp_path)
    assert machine.read(0.0).memory_bytes == 10 * os.sysconf("SC_PAGE_SIZE")
    assert machine.read(10.0).memory_bytes == 20 * os.sysconf("SC_PAGE_SIZE")
    write_stat(tmp_path / "7", 7, 7, 100 + os.sysconf("SC_CLK_TCK"))
    write_stat(tmp_path / "8", 8, 7, 300 + os.sysconf("SC_CLK_TCK"))
    assert machine.read(14.0).cpu == 0.5


def write_stat(folder, pid, group, ticks):
    (folder / "stat").write_text(f"{pid} (a (b) c) S 1 {group} {group} 0 0 0 0 0 0 0 {ticks} 0 0 0 20 0 1")


def test_a_process_that_has_gone_takes_nothing(tmp_path):
    figures = Machine(7, proc=tmp_path).read(0.0)
    assert (figures.cpu, figures.memory_bytes, figures.host_cpu, figures.host_memory) == (0.0, 0, 0.0, 0.0)
