"""Threads that compute are told from threads that sleep."""

from __future__ import annotations

import threading
import time

from tfos_lab.node.activity.threads import BusyThreads

PATIENCE_S = 60.0


def test_a_thread_that_computes_runs_until_it_sleeps():
    over = threading.Event()

    def compute():
        while not over.is_set():
            sum(range(10_000))

    thread = threading.Thread(target=compute)
    thread.start()
    threads, seen = BusyThreads(), False
    deadline = time.monotonic() + PATIENCE_S
    while not seen and time.monotonic() < deadline:
        time.sleep(0.05)
        threads.look()
        seen = threads.any_runs
    over.set()
    thread.join()
    assert seen
    while threads.any_runs and time.monotonic() < deadline:
        time.sleep(0.01)  # it leaves
    assert not threads.any_runs


def test_only_busy_threads_are_looked_at(tmp_path):
    def write(thread, state, ticks):
        (tmp_path / thread).mkdir(exist_ok=True)
        (tmp_path / thread / "stat").write_text(f"{thread} (a (b) c) {state} 1 1 1 0 0 0 0 0 0 0 {ticks} 0 0 0")

    threads = BusyThreads(tmp_path)
    write("1", "S", 10)
    write("2", "R", 10)
    threads.look()
    assert threads.any_runs
    threads.look()
    assert not threads.any_runs
    write("1", "R", 11)
    threads.look()
    assert threads.any_runs


def test_without_the_kernel_s_files_nothing_runs(tmp_path):
    threads = BusyThreads(tmp_path / "none")
    threads.look()
    assert not threads.any_runs
