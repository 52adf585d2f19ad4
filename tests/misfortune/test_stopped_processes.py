"""Processes that are stopped and go on, or never do, on this machine: who is lost, leaves, or is waited for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.misfortune.conftest import Family, environment_of_a_kernel, failure_of, gone, wait_forever


@pytest.mark.leaves_nothing
def test_a_stopped_agent_is_a_lost_node_and_leaves_nothing(run, next_cluster_runs):
    cluster = run(wait_forever)
    family = Family.of(cluster)
    family.agents[1].suspend()
    error = failure_of(cluster)
    assert (error.node, error.kind) == ("worker:0", "Lost")
    assert "not heard of for" in error.message
    assert family.all_gone()
    next_cluster_runs()


@pytest.mark.leaves_nothing
def test_a_child_leaves_an_agent_that_is_stopped_though_nobody_tells_it_to(run):
    # The driver does not help: it sleeps, too.
    with _kernel(_WAITING) as kernel:
        family = Family(*json.loads(kernel.stdout.readline()))
        kernel.send_signal(signal.SIGSTOP)
        family.agents[0].suspend()
        assert gone([family.children[0], family.agents[0]])
        assert family.children[1].is_running()
        kernel.kill()
    assert family.all_gone()


def test_a_kernel_that_was_stopped_for_a_while_loses_nobody():
    with _kernel(_SHORT) as kernel:
        kernel.stdout.readline()
        kernel.send_signal(signal.SIGSTOP)
        time.sleep(6.0)
        kernel.send_signal(signal.SIGCONT)
        assert json.loads(kernel.stdout.readline()) == ["done", {"chief:0": 9, "worker:0": 9}]


@pytest.mark.leaves_nothing
def test_an_exception_comes_home_although_the_function_has_closed_all_descriptors(fails):
    def map_fun(args, ctx):
        os.closerange(3, 256)
        raise ValueError("the forty-second row is odd")

    error = fails(map_fun, cluster_size=1)
    assert (error.node, error.kind) == ("chief:0", "ValueError")
    assert "the forty-second row is odd" in error.message
    assert "closed descriptors that were not its own" in error.message
    assert 'raise ValueError("the forty-second row is odd")' in error.traceback


@pytest.mark.leaves_nothing
def test_a_result_comes_home_although_the_function_has_closed_all_descriptors(run):
    def map_fun(args, ctx):
        os.closerange(3, 256)
        # What is opened now must not be taken for the connection to the agent.
        files = [os.open(os.devnull, os.O_RDWR) for _ in range(20)]
        time.sleep(1.2)
        return len(files)

    assert run(map_fun, cluster_size=1).wait(timeout_s=60) == {"chief:0": 20}


def _kernel(code):
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment_of_a_kernel(os.environ["TFOS_LAB_RUNS"])
    )


_START = """
import json, threading, time, tfos_lab
from tests.support.quick import QUICK_ENV

def map_fun(args, ctx):
    time.sleep(args)
    return 9

cluster = tfos_lab.run(map_fun, {seconds}, cluster_size=2, local="processes", env=QUICK_ENV)
print(json.dumps([cluster.id, [node.pid for node in cluster.nodes]]), flush=True)
"""
_WAITING = _START.format(seconds=600) + "threading.Event().wait()"
_SHORT = (
    _START.format(seconds=7)
    + """
results = cluster.wait(timeout_s=60)
print(json.dumps([cluster.state, dict(results)]))
"""
)
