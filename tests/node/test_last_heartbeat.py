"""When an agent has last sent a heartbeat is seen by other processes of its host."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tfos_lab.node.last_heartbeat import LastHeartbeat

AGENT = """
import sys
from tfos_lab.node.last_heartbeat import LastHeartbeat
own = LastHeartbeat.of_this_process()
print(own.at_s, flush=True)
for _ in sys.stdin:
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


def test_a_process_that_is_no_agent_or_is_gone_has_none(agent):
    assert agent.stdout.readline()
    agent.communicate()
    assert LastHeartbeat.of(agent.pid) is None
    assert LastHeartbeat.of(1) is None
