"""Processes that are killed, on this machine: the cluster ends, names the cause, and leaves nothing behind."""
# ruff: noqa: T201 - a kernel reports to its test by printing

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from tests.misfortune.conftest import Family, environment_of_a_kernel, failure_of, gone, wait_forever
from tests.support.clusters import runtime_of
from tfos_lab.engine.state import causes


@pytest.mark.leaves_nothing
def test_a_killed_child_is_named_with_the_likely_cause(run, next_cluster_runs):
    cluster = run(wait_forever)
    family = Family.of(cluster)
    family.children[1].kill()
    error = failure_of(cluster)
    assert (error.node, error.kind) == ("worker:0", "Exited")
    assert "killed (SIGKILL); the host may have run out of memory" in error.message
    assert cluster.state == "failed"
    assert family.all_gone()
    next_cluster_runs()


@pytest.mark.leaves_nothing
def test_a_killed_agent_is_a_lost_node_and_its_child_ends_too(run, next_cluster_runs):
    cluster = run(wait_forever)
    family = Family.of(cluster)
    family.agents[0].kill()
    error = failure_of(cluster)
    assert (error.node, error.kind) == ("chief:0", "Lost")
    assert "its agent ended with code -9" in error.message
    assert family.all_gone()
    next_cluster_runs()


@pytest.mark.leaves_nothing
def test_when_the_fork_server_is_killed_its_children_end_and_the_next_cluster_gets_another(run, next_cluster_runs):
    cluster = run(wait_forever)
    family = Family.of(cluster)
    family.fork_server.kill()
    error = failure_of(cluster)
    assert error.kind == "Exited"
    assert "process it was forked from has ended" in error.message
    assert family.all_gone()
    next_cluster_runs()


@pytest.mark.leaves_nothing
def test_when_the_agents_fork_server_is_killed_the_cluster_ends_and_the_next_one_runs(run, next_cluster_runs):
    cluster = run(wait_forever)
    family = Family.of(cluster)
    family.plain_fork_server.kill()
    error = failure_of(cluster)
    assert error.kind == "Lost"
    assert "the process that its agent was forked from has ended" in error.message
    assert family.all_gone()
    next_cluster_runs()


@pytest.mark.leaves_nothing
def test_a_function_that_ignores_sigterm_is_killed(run):
    def ignore_signals(args, ctx):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        ctx.report(1)
        threading.Event().wait()

    cluster = run(ignore_signals)
    with runtime_of(cluster).bus.subscribe() as events:
        while not all(node.step for node in cluster.nodes):
            events.take(timeout_s=0.2)
    family = Family.of(cluster)
    cluster.stop(grace_s=0.3)
    assert cluster.state == "stopped"
    assert family.all_gone()


@pytest.mark.leaves_nothing
@pytest.mark.parametrize("code", [0, 3])
def test_a_process_that_exits_silently_is_reported_with_its_exit_code(fails, code):
    error = fails(lambda args, ctx: os._exit(args), code, cluster_size=1)
    assert (error.node, error.kind) == ("chief:0", "Exited"), error
    assert f"exited with code {code} before the function returned" in error.message


@pytest.mark.leaves_nothing
def test_a_segmentation_fault_is_reported_with_the_last_output(fails):
    def crash(args, ctx):
        import ctypes

        print("about to read address 0")
        ctypes.string_at(0)

    error = fails(crash, cluster_size=1)
    assert "ended by signal 11" in error.message
    assert "about to read address 0" in error.log_tail
    assert "about to read address 0" in str(error)


@pytest.mark.leaves_nothing
def test_the_cause_is_reported_and_not_its_consequence(fails, tmp_path, monkeypatch):
    # Not the matter here: on a busy machine the cause may be a second later than its consequence.
    monkeypatch.setattr(causes, "CONSEQUENCE_PATIENCE_S", 30.0)
    meeting_point = str(tmp_path / "fifo")
    os.mkfifo(meeting_point)

    def map_fun(args, ctx):
        # Both nodes meet here.
        os.close(os.open(args, os.O_WRONLY if ctx.is_chief else os.O_RDONLY))
        if ctx.is_chief:
            ctx.wait_for_training(0.2)
            os._exit(7)

        class UnavailableError(Exception):
            """Like TensorFlow's error when a peer has gone."""

        raise UnavailableError("Collective ops is aborted by: connection reset by peer")

    error = fails(map_fun, meeting_point)
    assert (error.node, error.kind) == ("chief:0", "Exited")
    assert list(error.consequences) == ["worker:0"]
    assert "worker:0 then failed too, because chief:0 was gone" in str(error)


@pytest.mark.leaves_nothing
def test_processes_that_a_node_has_started_end_with_it(run):
    def map_fun(args, ctx):
        ignoring = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); "
        child = subprocess.Popen([sys.executable, "-c", ignoring + "time.sleep(600)"], stdout=subprocess.PIPE)
        child.stdout.readline()
        return child.pid

    cluster = run(map_fun)
    grandchildren = [psutil.Process(pid) for pid in cluster.wait(timeout_s=60).values()]
    cluster.stop()
    assert gone(grandchildren)


@pytest.mark.leaves_nothing
def test_a_node_may_start_its_own_processes(run):
    def map_fun(args, ctx):
        import multiprocessing

        with multiprocessing.get_context("fork").Pool(2) as pool:
            return pool.map(abs, [-1, -2, -3])

    assert set(map(tuple, run(map_fun).wait(timeout_s=60).values())) == {(1, 2, 3)}


_KERNEL = """
import json, threading, tfos_lab
from tests.support.quick import QUICK_ENV

def map_fun(args, ctx):
    import signal, threading
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Event().wait()

cluster = tfos_lab.run(map_fun, cluster_size=2, local="processes", env=QUICK_ENV)
print(json.dumps([cluster.id, [node.pid for node in cluster.nodes]]), flush=True)
threading.Event().wait()
"""


@pytest.mark.leaves_nothing
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_when_the_kernel_is_killed_everything_ends_with_it(tmp_path, how):
    environment = environment_of_a_kernel(tmp_path)
    with subprocess.Popen([sys.executable, "-c", _KERNEL], stdout=subprocess.PIPE, env=environment) as kernel:
        try:
            family = Family(*json.loads(kernel.stdout.readline()))
            kernel.send_signal(how)
            kernel.wait(20)
        finally:
            kernel.kill()
    assert gone([*family.nodes, family.fork_server, family.plain_fork_server])
