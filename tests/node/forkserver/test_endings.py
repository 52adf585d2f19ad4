"""What a fork server ends, it kills in the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from tests.node.conftest import PATIENCE_S
from tfos_lab.core.descendants import MARK
from tfos_lab.node import agent_watch
from tfos_lab.node.folder_lock import lock
from tfos_lab.node.forkserver import endings
from tfos_lab.node.forkserver.requests import SpawnRequest

# An agent that is asked to end and does not; it may send heartbeats.
AGENT = """
import signal, sys, time
from tfos_lab.node.last_heartbeat import LastHeartbeat
signal.signal(signal.SIGTERM, signal.SIG_IGN)
shown = LastHeartbeat.of_this_process()
print("up", flush=True)
while True:
    time.sleep(0.02)
    if sys.argv[1] == "works":
        shown.was_sent()
"""


def ignore_sigterm():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(os.getpid(), flush=True)  # noqa: T201 - tells the test
    threading.Event().wait()


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_child_that_nobody_holds_any_more_is_killed_though_it_ignores_sigterm(start_child, is_stopped):
    child = start_child(ignore_sigterm)
    child.wait_for_output(b"\n")
    process = psutil.Process(int(child.output["stdout"]))
    if is_stopped:
        process.suspend()
    child.link.fork_server.close()
    process.wait(PATIENCE_S)


@pytest.fixture
def agents():
    """An agent that works, and one that hangs."""
    commands = [[sys.executable, "-c", AGENT, what] for what in ("works", "hangs")]
    agents = [subprocess.Popen(command, stdout=subprocess.PIPE, process_group=0) for command in commands]
    yield agents
    for agent in agents:
        with agent:
            agent.kill()


def test_an_agent_that_hangs_is_killed_soon_and_one_that_works_is_waited_for(monkeypatch, agents):
    monkeypatch.setattr(agent_watch, "SILENT_S", 2.0)
    monkeypatch.setattr(agent_watch, "CHECK_S", 0.5)
    asked = endings.Endings()
    for agent in agents:
        agent.stdout.readline()
        asked.forked(agent.pid, SpawnRequest("agent"))
        asked.end(agent.pid)
    deadline = time.monotonic() + PATIENCE_S
    while agents[1].poll() is None and time.monotonic() < deadline:
        asked.tick()
        time.sleep(0.02)
    assert agents[1].poll() == -signal.SIGKILL
    assert agents[0].poll() is None


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """The folder that an agent has left which was killed; all looks for what its node has started are due at once."""
    monkeypatch.setattr(endings, "scratch_root", lambda: tmp_path)
    monkeypatch.setattr(endings, "_OTHERS_S", 0.0)
    monkeypatch.setattr(endings, "_IDLE_S", 0.0)
    folder = tmp_path / "cluster-0-4711"
    folder.mkdir()
    (folder / "child-1").touch()
    return folder


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("agent", [4711, None])
def test_where_nothing_is_left_looks_that_have_become_due_at_once_do_no_harm(agent):
    looking = endings.Endings()
    looking.look_for_orphans(agent)
    looking.tick()
    assert not looking.pending


def test_what_a_killed_agents_node_has_left_is_found_by_a_later_look_where_the_agent_has_not_quite_ended(
    monkeypatch, folder
):
    monkeypatch.setattr(endings, "_IDLE_S", 0.3)
    left = subprocess.Popen(
        [sys.executable, "-c", "print('up', flush=True); import time; time.sleep(600)"],
        stdout=subprocess.PIPE,
        env={**os.environ, MARK: str(folder / "child-1")},
    )
    with left:
        try:
            left.stdout.readline()
            held = lock(folder)
            looking = endings.Endings()
            looking.look_for_orphans()
            looking.tick()
            assert left.poll() is None
            os.close(held)
            deadline = time.monotonic() + PATIENCE_S
            while looking.pending and time.monotonic() < deadline:
                looking.tick()
                time.sleep(0.02)
            assert left.wait(PATIENCE_S) == -signal.SIGKILL
        finally:
            left.kill()
