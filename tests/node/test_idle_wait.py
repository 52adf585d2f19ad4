"""A thread that waits for what does not come, and threads that are only slow."""

from __future__ import annotations

import os
import select
import threading
import time
from pathlib import Path

import pytest

from tests.node.conftest import PATIENCE_S
from tfos_lab.node import idle_wait
from tfos_lab.node.idle_wait import IdleWait


@pytest.fixture
def watched():
    """Starts a thread that does something until the test ends; returns what watches it."""
    end, threads = threading.Event(), []

    def start(work):
        made = []
        thread = threading.Thread(target=lambda: (made.append(IdleWait()), work(end)))
        thread.start()
        threads.append(thread)
        while not made:
            time.sleep(0.01)
        return made[0]

    yield start
    end.set()
    for thread in threads:
        thread.join(PATIENCE_S)


def compute(end):
    while not end.is_set():
        pass


def poll(end):
    while not end.is_set():
        select.select([], [], [], 5.0)


def looks(idle, count=10, *, computing=None):
    """Look so many times; return what was seen. Between two looks, a thread that computes gets the processor."""

    def look():
        used_s, deadline = computing.clock_s if computing else 0.0, time.monotonic() + PATIENCE_S
        time.sleep(0.1)
        while computing and computing.clock_s < used_s + 0.02 and time.monotonic() < deadline:
            time.sleep(0.01)
        return idle.look()

    return [look() for _ in range(count)]


def waits_at_last(idle):
    deadline = time.monotonic() + PATIENCE_S
    while idle.look() < 0.5 and time.monotonic() < deadline:
        time.sleep(0.1)
    return idle.look() >= 0.5


@pytest.mark.parametrize("work", [threading.Event.wait, poll])
def test_a_thread_that_waits_for_a_lock_or_for_others_is_idle(watched, work):
    assert waits_at_last(watched(work))


def test_a_thread_that_computes_or_goes_on_now_and_then_is_not(watched):
    idle = watched(compute)
    assert max(looks(idle, computing=idle)) < 0.2


def test_a_thread_that_waits_for_a_lock_is_not_idle_while_another_thread_works(watched):
    idle = watched(threading.Event.wait)
    computing = watched(compute)
    idle.look()
    assert max(looks(idle, computing=computing)) == 0.0


def test_what_waits_for_files_or_for_what_nobody_knows_is_not_idle(watched, monkeypatch, tmp_path):
    idle = watched(threading.Event.wait)
    task = tmp_path / str(idle._id)
    task.mkdir()
    monkeypatch.setattr(idle_wait, "_TASKS", tmp_path)
    for state, where in (("D", "futex_do_wait"), ("S", "request_wait_answer"), ("S", "0"), ("S", "")):
        (task / "stat").write_text(f"1 (tfos) x) {state} 1")
        (task / "wchan").write_text(where)
        assert max(looks(idle, 3)) == 0.0
    (task / "wchan").unlink()
    assert max(looks(idle, 3)) == 0.0


@pytest.mark.parametrize("where", ["futex_wait_queue_me", "__futex_wait", "do_sys_poll", "ep_poll", "anon_pipe_read"])
def test_the_system_s_functions_have_other_names_elsewhere(watched, monkeypatch, tmp_path, where):
    idle = watched(threading.Event.wait)
    task = tmp_path / str(idle._id)
    task.mkdir()
    (task / "stat").write_text("1 (tfos) S 1")
    (task / "wchan").write_text(where)
    monkeypatch.setattr(idle_wait, "_TASKS", tmp_path)
    assert looks(idle, 3)[-1] > 0.0


def test_this_system_tells_where_its_threads_wait():
    assert Path(f"/proc/self/task/{os.getpid()}/wchan").exists()
