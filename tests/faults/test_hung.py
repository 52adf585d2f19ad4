"""Nodes and runs that hang or are late, on this machine: where they are is told, and some fail their run."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import tfos_lab
from tests.faults.scene import wait_forever
from tests.faults.table import HANG, hang_at_step_3, read_plainly, wait_in_user_code
from tests.support.clusters import running_clusters
from tests.support.data_files import rows, write_parquet
from tests.support.eventually import eventually
from tests.support.quick import QUICK_ENV
from tfos_lab.errors import NodeFailed, ParallelFailed, ProfileFailed

HERE = {"local": "processes", "env": QUICK_ENV}
# Nodes are marked, and the run goes on.
MARKED = {**HERE, "hang_timeout": HANG["hang_timeout"], "grace": 0.2}
ALONE = {**HERE, **HANG, "show": False}


def step_for_ever(args, ctx):
    for _ in iter(int, 1):
        ctx.report()
        time.sleep(0.1)


def read_some(args, ctx):
    """Read the rows on the chief; the worker reads a batch."""
    if not ctx.is_chief:
        ctx.data_feed().next_batch(10)
        wait_forever(args, ctx)
    read_plainly(0, ctx)


@pytest.fixture(scope="module")
def marked(tmp_path_factory):
    """A cluster for each function, all at once: it takes a while until their nodes are marked."""
    folder = tmp_path_factory.mktemp("marked")
    with pytest.MonkeyPatch.context() as patch, running_clusters(MARKED) as start:
        patch.setenv("TFOS_LAB_RUNS", str(folder))
        clusters = {function: start(function, "sleep") for function in (step_for_ever, hang_at_step_3, read_some)}
        clusters[read_some].train(write_parquet(folder / "rows.parquet", rows(0, 1000), group=1000))
        yield clusters


def hung(cluster):
    return [view.name for view in cluster.nodes if view.hung]


def test_a_stopped_node_is_marked_says_so_and_goes_on(marked):
    cluster = marked[step_for_ever]
    eventually(lambda: all(view.step for view in cluster.nodes))
    pid = cluster.nodes[1].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: hung(cluster) == ["worker:0"])
        assert "its process is stopped (SIGSTOP)" in cluster.nodes[1].hung
        assert f"its process {pid} is stopped" in cluster.stacks()["worker:0"]
        # It may be taken just when it reports.
        eventually(lambda: "time.sleep(0.1)" in cluster.stacks("chief:0")["chief:0"])
        with pytest.raises(ProfileFailed, match=f"worker:0 cannot be profiled: its process {pid} is stopped"):
            cluster.profile("worker:0", 0.1)
        profile = cluster.profile(seconds=0.3)
        assert (profile.node, profile.trace_dir) == ("chief:0", None)
        assert "may crash a node that works with others" in profile.note
        assert "step_for_ever (test_hung.py:" in profile.flame_graph.read_text()
        assert profile.flame_graph.parent == cluster.run_dir
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: not hung(cluster))


def test_a_node_that_sleeps_in_the_user_s_code_is_marked_with_its_line(marked):
    cluster = marked[hang_at_step_3]
    eventually(lambda: hung(cluster) == ["worker:0"])
    text = cluster.nodes[1].hung
    assert "; last: step 3; it is at faults/table.py, line " in text
    assert ", in wait_in_user_code" in text
    assert cluster.state == "running"
    assert "in wait_in_user_code\n    threading.Event().wait()" in cluster.stacks("worker:0")["worker:0"]
    with pytest.raises(KeyError, match="there are chief:0, worker:0"):
        cluster.stacks("worker:9")


def test_a_node_that_stops_reading_its_rows_is_marked(marked):
    cluster = marked[read_some]
    # On a busy machine others need seconds, too, and this node may be marked before it has read.
    eventually(lambda: hung(cluster) == ["worker:0"] and "last: step 1" in cluster.nodes[1].hung)


def hang_at_one(x, ctx):
    """Report a loss that is least for x = 0; then return, or hang in the user's code."""
    x = x["x"] if isinstance(x, dict) else x
    ctx.report(step=1, loss=float(x))
    if x == 1:
        wait_in_user_code()
    return "done"


def run_script(folder):
    script = folder / "train.py"
    script.write_text("import threading\nctx.report(step=1)\nthreading.Event().wait()\n")
    tfos_lab.run_script(script, **ALONE).wait(timeout=120)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """What calls came to, which were at once: each waits until one of its nodes hangs, or takes too long."""
    late = {**HERE, "show": False, "timeout": 20.0, "raise_failures": False}
    folder = tmp_path_factory.mktemp("ended")
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor() as pool:
        patch.setenv("TFOS_LAB_RUNS", str(folder))
        return {
            "parallel": pool.submit(tfos_lab.parallel, hang_at_one, [0, 1], **ALONE),
            "search": pool.submit(tfos_lab.search, hang_at_one, {"x": [0, 1, 2]}, **ALONE),
            "run_script": pool.submit(run_script, folder),
            "late": pool.submit(tfos_lab.parallel, hang_at_one, [0, 1], **late),
        }


def test_a_run_that_hangs_fails_with_its_stacks_and_the_others_return(ended):
    with pytest.raises(ParallelFailed) as caught:
        ended["parallel"].result()
    assert caught.value.results[0] == "done"
    [failure] = caught.value.failures.values()
    assert (failure.run, failure.kind, failure.error) == (1, "hung", "")
    assert failure.headline.startswith("run 1 (1): hung: no step, row or log line for ")
    assert ", in wait_in_user_code" in failure.message
    assert "--- stacks of run 1 ---" in str(failure)


def test_a_trial_that_hangs_is_a_failed_row_with_its_stacks_and_the_others_count(ended):
    found = ended["search"].result()
    assert (found.best.params, found.best.value) == ({"x": 0}, "done")
    assert list(found.table["x"]) == [0, 2, 1]
    assert list(found.table["state"]) == ["done", "done", "failed"]
    assert found.table["error"][2].startswith("hung: no step, row or log line for ")
    [failure] = found.failures.values()
    assert (failure.run, failure.kind) == (1, "hung")
    assert ", in wait_in_user_code" in str(failure)


def test_a_script_that_hangs_has_failed(ended):
    with pytest.raises(NodeFailed) as caught:
        ended["run_script"].result()
    assert (caught.value.node, caught.value.kind) == ("worker:0", "Hung")
    assert caught.value.message.endswith('train.py", line 3')


def test_a_run_that_takes_too_long_has_failed(ended):
    failure = ended["late"].result().failures[1]
    assert failure.kind == "timed out"
    assert "timeout=20" in failure.message
