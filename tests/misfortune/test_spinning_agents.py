"""Agents that hang in their own code: the process is there, busy or idle, and supervises nobody."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.misfortune.conftest import Family, environment_of_a_kernel, gone, repository

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
WAIT_AT_A_SIGNAL = """
import os, signal, threading

# For a lock that nobody releases, and for another process that says nothing.
signal.signal(signal.SIGUSR1, lambda *_: threading.Event().wait())
ends = os.pipe()
signal.signal(signal.SIGUSR2, lambda *_: os.read(ends[0], 1))
"""
KERNEL = """
import json, threading, tfos_lab
from tests.misfortune.conftest import wait_forever
from tests.support.quick import QUICK_ENV
from tfos_lab.errors import NodeFailed

options = dict(cluster_size=1, local="processes", env=QUICK_ENV)
clusters = [tfos_lab.run(wait_forever, name=name, **options) for name in ("first", "second")]
print(json.dumps([[cluster.id, [cluster.nodes[0].pid]] for cluster in clusters]), flush=True)
for cluster in clusters:
    try:
        cluster.wait(timeout_s=100)
    except NodeFailed as error:
        print(json.dumps([error.kind, error.message]), flush=True)
threading.Event().wait()
"""
# A machine that is busy gives an agent that spins its turns late.
PATIENCE_S = 60.0


@pytest.mark.leaves_nothing
def test_an_agent_that_spins_is_a_lost_node_and_leaves_nothing(tmp_path):
    prove_lost(tmp_path, SPIN_AT_A_SIGNAL)


@pytest.mark.leaves_nothing
def test_an_agent_that_waits_for_what_does_not_come_is_a_lost_node_and_leaves_nothing(tmp_path):
    prove_lost(tmp_path, WAIT_AT_A_SIGNAL)


def prove_lost(tmp_path, at_a_signal):
    (tmp_path / "sitecustomize.py").write_text(at_a_signal)
    path = f"{tmp_path}:{repository()}"
    environ = {**environment_of_a_kernel(os.environ["TFOS_LAB_RUNS"]), "PYTHONPATH": path}
    with subprocess.Popen([sys.executable, "-c", KERNEL], stdout=subprocess.PIPE, env=environ) as kernel:
        families = [Family(*ids) for ids in json.loads(kernel.stdout.readline())]
        for family, number in zip(families, (signal.SIGUSR1, signal.SIGUSR2), strict=True):
            family.agents[0].send_signal(number)
        for family in families:
            kind, message = json.loads(kernel.stdout.readline())
            assert kind == "Lost"
            assert "not heard of for" in message
            assert gone(family.nodes, within_s=PATIENCE_S)
        kernel.kill()
    assert gone([families[0].fork_server, families[0].plain_fork_server])
