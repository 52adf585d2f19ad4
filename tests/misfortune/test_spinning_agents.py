"""Agents that hang in their own code: the process is there and busy, and supervises nobody."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.misfortune.conftest import Family, environment_of_a_kernel, gone, repository
from tests.misfortune.test_stopped_processes import _START

# Inherited by whatever is forked from a fork server with this in its path.
SPIN_AT_A_SIGNAL = """
import itertools, signal

def spin(*_):
    while True:
        pass

# The sum holds the lock of the interpreter: no other thread runs.
signal.signal(signal.SIGUSR1, spin)
signal.signal(signal.SIGUSR2, lambda *_: sum(itertools.repeat(0)))
"""
_TOLD = (
    _START.format(seconds=600)
    + """
from tfos_lab.errors import NodeFailed
try:
    cluster.wait(timeout_s=100)
except NodeFailed as error:
    print(json.dumps([error.node, error.kind, error.message]), flush=True)
threading.Event().wait()
"""
)
# A machine that is busy gives an agent that spins its turns late.
PATIENCE_S = 60.0


@pytest.mark.leaves_nothing
def test_an_agent_that_spins_is_a_lost_node_and_leaves_nothing(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(SPIN_AT_A_SIGNAL)
    path = f"{tmp_path}:{repository()}"
    environ = {**environment_of_a_kernel(os.environ["TFOS_LAB_RUNS"]), "PYTHONPATH": path}
    command = [sys.executable, "-c", _TOLD]
    kernels = [subprocess.Popen(command, stdout=subprocess.PIPE, env=environ) for _ in range(2)]
    try:
        families = [Family(*json.loads(kernel.stdout.readline())) for kernel in kernels]
        families[0].agents[1].send_signal(signal.SIGUSR1)
        families[1].agents[1].send_signal(signal.SIGUSR2)
        for kernel, family in zip(kernels, families, strict=True):
            node, kind, message = json.loads(kernel.stdout.readline())
            assert (node, kind) == ("worker:0", "Lost")
            assert "not heard of for" in message
            assert gone(family.nodes, within_s=PATIENCE_S)
    finally:
        for kernel in kernels:
            with kernel:
                kernel.kill()
    servers = [server for family in families for server in (family.fork_server, family.plain_fork_server)]
    assert gone(servers)
