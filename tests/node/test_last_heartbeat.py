"""When an agent has last sent a heartbeat is seen by other processes of its host."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tfos_lab.node.last_heartbeat import LastHeartbeat

AGENT = """
import os, sys, threading
# Below the descriptor of the last heartbeat, so that those which come and go are seen first.
low = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
from tfos_lab.node.last_heartbeat import LastHeartbeat
own = LastHeartbeat.of_this_process()

def open_and_close():
    while True:
        for descriptor in low:
            os.close(descriptor)
        low[:] = [os.open(os.devnull, os.O_RDONLY) for _ in low]

print(own.at_s, flush=True)
for line in sys.stdin:
    while line == "beat\\n":
        own.was_sent()
    if line == "churn\\n":
        threading.Thread(target=open_and_close, daemon=True).start()
    own.was_sent()
    print(own.at_s, flush=True)
own.close()
"""


@pytest.fixture
def agent():
    command = [sys.executable, "-c", AGENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


def test_another_process_sees_each_heartbeat_at_once(agent):
    assert agent.stdout.readline()
    seen = LastHeartbeat.of(agent.pid)
    before = time.monotonic()
    agent.stdin.write("\n")
    agent.stdin.flush()
    assert before < float(agent.stdout.readline()) == seen.at_s < time.monotonic()
    agent.communicate()
    assert seen.at_s > before, "the last one stays, though the process is gone"
    seen.close()


def test_it_is_never_read_half_written(agent):
    assert agent.stdout.readline()
    seen = LastHeartbeat.of(agent.pid)
    before = seen.at_s
    agent.stdin.write("beat\n")
    agent.stdin.flush()
    while seen.at_s == before:
        time.sleep(0.001)
    found, deadline = [], time.monotonic() + 60.0
    # Until the agent has had its turn, too.
    while not found or (found[0] == found[-1] and time.monotonic() < deadline):
        found += [seen.at_s for _ in range(200_000)]
    agent.kill()
    assert found == sorted(found)
    assert before < found[0] < found[-1] < time.monotonic()
    seen.close()


def test_it_is_found_while_the_agent_opens_and_closes_files(agent):
    assert agent.stdout.readline()
    agent.stdin.write("churn\n")
    agent.stdin.flush()
    assert agent.stdout.readline()
    for _ in range(300):
        seen = LastHeartbeat.of(agent.pid)
        assert seen is not None
        seen.close()
    agent.communicate()


def test_a_process_that_is_no_agent_or_is_gone_has_none(agent):
    assert agent.stdout.readline()
    agent.communicate()
    assert LastHeartbeat.of(agent.pid) is None
    assert LastHeartbeat.of(1) is None
