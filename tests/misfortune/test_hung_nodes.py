"""Nodes that hang, on this machine: their rows say where, their stacks are shown, and they can fail the run."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.clusters import running_clusters
from tests.support.quick import QUICK_ENV
from tfos_lab.engine.state.events import NodeHung
from tfos_lab.errors import NodeFailed, ProfileFailed

# Longer than a busy machine holds a node back.
HANG_TIMEOUT_S = 5.0


@pytest.fixture
def run(monkeypatch, tmp_path):
    """``tfos_lab.run`` with nodes that are warm at once and hang after five seconds."""
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))
    options = {"local": "processes", "env": QUICK_ENV, "hang_timeout_s": HANG_TIMEOUT_S, "grace_s": 0.2}
    with running_clusters(options) as start:
        yield start


def step_for_ever(args, ctx):
    for _ in iter(int, 1):
        ctx.report()
        time.sleep(0.1)


def hang_at_step_3(args, ctx):
    """Sleep, or hold the interpreter's lock, on the worker; the chief goes on."""
    for step in itertools.count(1):
        ctx.report(loss=step)
        if step == 3 and not ctx.is_chief:
            sleep_in_user_code() if args == "sleep" else sum(itertools.repeat(0))
        time.sleep(0.1)


def sleep_in_user_code():
    threading.Event().wait()


def hung(cluster):
    return [view.node for view in cluster.nodes if view.hung]


def wait_for(condition):
    """Wait as long as hung nodes take to be found."""
    deadline = time.monotonic() + 60.0
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return value


def test_a_stopped_node_is_marked_says_so_and_goes_on(run):
    cluster = run(step_for_ever)
    wait_for(lambda: all(view.step for view in cluster.nodes))
    pid = cluster.nodes[1].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        assert wait_for(lambda: hung(cluster)) == ["worker:0"]
        assert "its process is stopped (SIGSTOP)" in cluster.nodes[1].hung
        stacks = cluster.stacks()
        assert f"its process {pid} is stopped" in stacks["worker:0"]
        # It may be taken just when it reports.
        wait_for(lambda: "time.sleep(0.1)" in cluster.stacks("chief:0")["chief:0"])
        with pytest.raises(ProfileFailed, match=f"worker:0 cannot be profiled: its process {pid} is stopped"):
            cluster.profile("worker:0", 0.1)
        profile = cluster.profile(seconds=0.3)
        assert (profile.node, profile.trace_dir) == ("chief:0", None)
        assert "may crash a node that works with others" in profile.note
        assert "did not start" in cluster.profile(seconds=0.1, trace=True).note
        assert "step_for_ever (test_hung_nodes.py:" in profile.flame_graph.read_text()
        assert profile.flame_graph.parent == cluster.run_dir
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: not hung(cluster))
    events = [event for event in cluster.events if isinstance(event, NodeHung)]
    assert [(event.node, bool(event.text)) for event in events] == [("worker:0", True), ("worker:0", False)]


def test_a_node_that_sleeps_in_the_user_s_code_is_marked_with_its_line(run):
    cluster = run(hang_at_step_3, "sleep")
    assert wait_for(lambda: hung(cluster)) == ["worker:0"]
    text = cluster.nodes[1].hung
    assert "; last: step 3; it is at misfortune/test_hung_nodes.py, line " in text
    assert ", in sleep_in_user_code" in text
    assert cluster.state == "running"
    assert "in sleep_in_user_code\n    threading.Event().wait()" in cluster.stacks("worker:0")["worker:0"]
    with pytest.raises(KeyError, match="there are chief:0, worker:0"):
        cluster.stacks("worker:9")


def test_a_node_that_holds_the_interpreter_s_lock_fails_the_run_with_its_stacks(run):
    cluster = run(hang_at_step_3, "spin", on_hang="fail")
    with pytest.raises(NodeFailed) as failed:
        cluster.wait(timeout_s=60)
    error = failed.value
    assert (error.node, error.kind) == ("worker:0", "Hung")
    assert "last: step 3; its Python does not answer: it is at misfortune/test_hung_nodes.py" in error.message
    assert "sum(itertools.repeat(0))" in error.traceback
    assert "--- stacks of worker:0 ---" in str(error)


def read_rows(args, ctx):
    """Read the rows on the chief; the worker reads some at first, or none."""
    feed = ctx.data_feed()
    if not ctx.is_chief:
        if args == "some":
            feed.next_batch(10)
        sleep_in_user_code()
    while not feed.should_stop():
        feed.next_batch(10)


@pytest.mark.parametrize(("reads", "told"), [("some", "last: step 1"), ("none", "it has taken none of its rows")])
def test_a_node_that_stops_reading_its_rows_is_marked(run, tmp_path, reads, told):
    pq.write_table(pa.table({"x": np.arange(1000)}), tmp_path / "rows.parquet")
    cluster = run(read_rows, reads, num_ps=0)
    cluster.train(str(tmp_path / "rows.parquet"))
    # On a busy machine others need seconds, too, and this node may be marked before it has read.
    wait_for(lambda: hung(cluster) == ["worker:0"] and told in cluster.nodes[1].hung)


def test_nodes_that_wait_for_rows_do_not_hang(run):
    cluster = run(read_rows, "some")
    wait_for(lambda: all(view.activity and view.activity.idle_s > 2 * HANG_TIMEOUT_S for view in cluster.nodes))
    assert hung(cluster) == []
