"""A fork server that is stopped while nodes wait for it."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.support.quick import QUICK_ENV
from tfos_lab import messages as m
from tfos_lab.engine import registry
from tfos_lab.engine.launchers.local import LocalLauncher, local_fork_servers
from tfos_lab.engine.launchers.this_machine import kernel_environ
from tfos_lab.node.forkserver.client import ForkServerConnection, ForkServerUnavailable
from tfos_lab.node.forkserver.health import ServerRecord
from tfos_lab.transport.frames import frame_pair

_SLOW_AT_FIRST = """
import pathlib, time
began = pathlib.Path(__file__).with_name("began")
if not began.exists():
    began.touch()
    time.sleep(600)
"""


@pytest.fixture
def slow_env(tmp_path):
    """An environment in which TensorFlow's first import does not end."""
    quick = Path(QUICK_ENV["PYTHONPATH"])
    (tmp_path / "keras.py").write_text((quick / "keras.py").read_text())
    (tmp_path / "tensorflow.py").write_text(f"{(quick / 'tensorflow.py').read_text()}{_SLOW_AT_FIRST}")
    return {"PYTHONPATH": str(tmp_path)}


def wait_for(condition, timeout_s=60):
    until = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return found


@pytest.mark.leaves_nothing
def test_one_that_is_stopped_while_it_imports_is_replaced_and_the_run_goes_on(run, slow_env):
    server, _ = local_fork_servers(kernel_environ(), slow_env)
    with ThreadPoolExecutor(1) as pool:
        cluster = pool.submit(run, os.getppid, cluster_size=1, env=slow_env, name="stopped")
        wait_for((Path(slow_env["PYTHONPATH"]) / "began").exists)
        wait_for(lambda: "importing" in [node.state for one in registry.clusters() for node in one.nodes])
        stopped = psutil.Process(wait_for(lambda: ServerRecord.read(server.socket_path)).pid)
        stopped.suspend()
        [parent] = dict(cluster.result().wait(timeout_s=60)).values()
    assert parent == ServerRecord.read(server.socket_path).pid != stopped.pid
    stopped.wait(60)


class FakeForkServer:
    """Hands out connections, whose other ends the test holds."""

    def __init__(self):
        self.others = []
        self.is_warmed = False

    def spawn(self, target, body):
        if len(self.others) == 2:
            raise ForkServerUnavailable
        frames, other = frame_pair()
        self.others.append(other)
        return ForkServerConnection(frames)

    def warm(self):
        self.is_warmed = True


def test_an_agent_is_asked_for_again_once_where_the_fork_server_ended_before_it_was_forked():
    lost = []
    plan = SimpleNamespace(cluster_id="c", note=print, lose=lambda rank, why: lost.append((rank, why)))
    launcher = LocalLauncher(plan)
    launcher._fork_server = fork_server = FakeForkServer()
    launcher._fork_agent(_launch_spec())
    for _ in range(2):
        assert lost == []
        fork_server.others[-1].close()
        launcher._receive(3, launcher._connections[3])
    assert lost == [(3, "the process that its agent was forked from has ended")]
    assert fork_server.is_warmed, "nobody would end what the agent has left"
    launcher._connections[3].close()


def _launch_spec():
    return m.LaunchSpec(
        cluster_id="c",
        rank=3,
        node="worker:2",
        driver=m.DriverAddress("tcp://127.0.0.1:1", "", "", ""),
        owner="nobody",
        watched_pid=os.getpid(),
    )
