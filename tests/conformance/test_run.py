"""Running a function on a cluster, on every back end: context, output and results of nodes."""
# ruff: noqa: T201 - what nodes print is what is tested

import getpass
import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path

import numpy as np
import psutil
import pytest

import tfos_lab
from tests.support.eventually import eventually
from tests.support.processes import gone
from tfos_lab.errors import ClusterEnded, NodeFailed, WaitTimeout

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.tensorflow]

SHAPES = {
    1: ({}, ["chief:0"]),
    2: ({"cluster_size": 2, "num_ps": 1}, ["ps:0", "chief:0"]),
    4: ({"cluster_size": 4, "num_ps": 1, "evaluator": True}, ["ps:0", "chief:0", "evaluator:0", "worker:0"]),
}
ARGS = {"learning_rate": 0.1, "layers": [64, 10], "array": np.arange(3)}
TEXT = "naïve ✓"


@pytest.fixture
def survey(back_end, run, once, tmp_path):
    """A cluster with as many roles as the back end can run, whose nodes return all they know; run once."""

    def look_around(args, ctx):
        print("first line of", ctx.node)
        os.write(1, f"from below {TEXT} {ctx.node}\n".encode())
        print("to stderr", file=sys.stderr)
        print("last words", end="", flush=True)
        if ctx.job_name in ("chief", "worker"):
            ctx.report(total_steps=2, loss=1.0)
            ctx.report(loss=0.5)
        # A parameter server that has not begun when the chief returns need not begin any more.
        Path(folder, ctx.node).touch()
        while not all(Path(folder, node).exists() for node in nodes):
            time.sleep(0.02)
        return {
            "ctx": {
                name: getattr(ctx, name)
                for name in ("job_name", "task_index", "node", "world_size", "worker_num", "is_chief")
            },
            "cluster_spec": ctx.cluster_spec,
            "log_dir": ctx.log_dir,
            "tf_config": os.environ.get("TF_CONFIG"),
            "args": args,
            "same_args": ctx.args is args,
            "pid": os.getpid(),
            "fork_server": os.getppid(),
            "bag": {
                "tuple": (1, "two", 3.0),
                "nested": {"list": [None, True, {"deep": b"\x00\xff"}]},
                "array": np.arange(6, dtype=np.int16).reshape(2, 3),
                "scalar": np.float32(0.5),
            },
        }

    options, nodes = SHAPES[back_end.ranks]
    folder = str(tmp_path)  # which all of this machine see

    def look():
        cluster = run(look_around, ARGS, **options)
        return {"cluster": cluster, "nodes": nodes, "results": cluster.wait(), "view": cluster.view()}

    return once("survey", look)


# ---- what nodes know ----------------------------------------------------------------------------------------------


def test_every_node_returns_a_result_however_often_it_is_asked_for(survey):
    assert sorted(survey.results) == sorted(survey.nodes)
    for again in (survey.cluster.wait(), survey.cluster.results):
        assert {node: result["pid"] for node, result in again.items()} == {
            node: result["pid"] for node, result in survey.results.items()
        }


def test_each_node_knows_its_role_and_rank(survey):
    training = [node for node in survey.nodes if node.startswith(("chief", "worker"))]
    for number, node in enumerate(survey.nodes):
        job, index = node.split(":")
        assert survey.results[node]["ctx"] == {
            "job_name": job,
            "task_index": int(index),
            "node": node,
            "world_size": len(training),
            "worker_num": number,
            "is_chief": job == "chief",
        }


def test_all_nodes_have_the_same_cluster_spec(survey):
    maps = [survey.results[node]["cluster_spec"] for node in survey.nodes]
    assert all(one == maps[0] for one in maps)
    assert {f"{job}:{index}" for job, tasks in maps[0].items() for index in range(len(tasks))} == set(survey.nodes)
    addresses = [address for tasks in maps[0].values() for address in tasks]
    assert len(set(addresses)) == len(addresses)


def test_tf_config_agrees_with_ctx(survey):
    for node in survey.nodes:
        result = survey.results[node]
        if len(survey.nodes) == 1:
            assert result["tf_config"] is None
            continue
        job, index = node.split(":")
        config = json.loads(result["tf_config"])
        assert config["task"] == {"type": job, "index": int(index)}
        assert config["cluster"] == {job: tasks for job, tasks in result["cluster_spec"].items() if job != "evaluator"}


def test_all_nodes_share_one_folder_for_event_files(survey):
    assert {survey.results[node]["log_dir"] for node in survey.nodes} == {str(survey.cluster.run_dir / "events")}


def test_arguments_arrive(survey):
    for node in survey.nodes:
        result = survey.results[node]
        assert result["args"]["learning_rate"] == 0.1
        assert result["args"]["layers"] == [64, 10]
        np.testing.assert_array_equal(result["args"]["array"], np.arange(3))
        assert result["same_args"]


def test_results_of_many_types_come_back(survey):
    for node in survey.nodes:
        bag = survey.results[node]["bag"]
        assert bag["tuple"] == (1, "two", 3.0)
        assert bag["nested"] == {"list": [None, True, {"deep": b"\x00\xff"}]}
        np.testing.assert_array_equal(bag["array"], np.arange(6).reshape(2, 3))
        assert bag["array"].dtype == np.int16
        assert bag["scalar"] == np.float32(0.5)


def test_every_node_is_a_process_of_its_own(survey, back_end):
    pids = {survey.results[node]["pid"] for node in survey.nodes}
    assert len(pids) == len(survey.nodes)
    assert (os.getpid() in pids) == back_end.is_inline


# ---- what is seen of them -----------------------------------------------------------------------------------------


def test_printed_text_is_in_the_logs_and_complete_in_the_run_s_files(survey, back_end):
    for node in survey.nodes:
        text = survey.cluster.logs(node)
        said = [f"first line of {node}\n", f"from below {TEXT} {node}\n", "to stderr\n", "last words"]
        if back_end.is_inline:
            said = []  # the function prints to the kernel's own output
        assert all(line in text for line in said)
        assert len(text) == sum(map(len, said))
        assert survey.cluster.logs(node, tail=1) == "".join(text.splitlines()[-1:])
        for line in text.splitlines():
            assert f"[{node}] {line}" in survey.cluster.logs()
        file = survey.cluster.run_dir / f"{node.replace(':', '-')}.log"
        assert not said or file.read_text() == text


def test_the_view_shows_where_nodes_ran_and_how_they_ended(survey, back_end):
    view = survey.view
    assert (view.state, view.launcher) == ("done", back_end.launcher)
    assert [node.name for node in view.nodes] == survey.nodes
    assert {node.state for node in view.nodes} == {"done"}
    assert {node.pid for node in view.nodes} == {survey.results[node]["pid"] for node in survey.nodes}
    assert all(node.host for node in view.nodes)


def test_metrics_reach_the_notebook(survey):
    training = [view for view in survey.view.nodes if view.name.startswith(("chief", "worker"))]
    assert {(view.step, view.total_steps, view.metrics["loss"]) for view in training} == {(2, 2, 0.5)}
    table = survey.cluster.metrics
    reported = {node: (list(rows["step"]), list(rows["loss"])) for node, rows in table.groupby("node")}
    assert reported == {view.name: ([1, 2], [1.0, 0.5]) for view in training}
    assert table["time"].between(0, survey.cluster.timings["done"]).all()


def test_timings_of_phases_are_in_order(survey):
    timings = survey.cluster.timings
    phases = [timings[phase] for phase in ("launched", "reserved", "released", "running", "done")]
    assert phases == sorted(phases)
    assert phases[0] >= 0.0


@pytest.mark.back_ends("standalone")
def test_feeding_a_cluster_that_has_ended_is_refused(survey, frame):
    with pytest.raises(ClusterEnded, match=r"cannot feed rows: cluster 'cluster' is done"):
        survey.cluster.train(frame(3))


# ---- one cluster after another ------------------------------------------------------------------------------------


@pytest.mark.back_ends("local", "standalone", "yarn")
def test_the_next_cluster_comes_from_the_same_fork_server_and_its_function_gets_what_it_takes(survey, run, back_end):
    fork_servers = back_end.ranks if back_end.name == "yarn" else 1  # a container has its own
    assert len({survey.results[node]["fork_server"] for node in survey.nodes}) == fork_servers
    # The survey may be of an earlier session, where this process has taken over another one's tests.
    functions = (lambda args: (args, os.getppid()), lambda ctx: (ctx.rank, os.getppid()))
    (taken, first), (ranks, second) = (zip(*run(function, 7).wait().values(), strict=True) for function in functions)
    assert (set(taken), sorted(ranks)) == ({7}, list(range(len(ranks))))
    assert set(first) == set(second)
    assert len(set(first)) == fork_servers


@pytest.mark.back_ends("local")
def test_the_env_option_applies_before_tensorflow_is_imported(survey, run):
    def map_fun():
        import tensorflow as tf

        return os.environ["TFOS_TEST"], tf.keras.Model.__module__.partition(".")[0], os.getppid()

    cluster = run(map_fun, env={"TFOS_TEST": "yes", "TF_USE_LEGACY_KERAS": "1"})
    (first, *others) = cluster.wait().values()
    assert first[:2] == ("yes", "tf_keras")
    assert others == [first] * len(others)
    assert first[2] not in {survey.results[node]["fork_server"] for node in survey.nodes}


@pytest.mark.back_ends("inline")
def test_the_env_option_holds_in_this_process_while_the_function_runs(run):
    assert list(run(lambda: os.environ["TFOS_TEST"], env={"TFOS_TEST": "yes"}).wait().values()) == ["yes"]
    with pytest.raises(OSError, match="bad file"):
        run(raise_of_a_file, env={"TFOS_TEST": "yes"}).wait()
    assert "TFOS_TEST" not in os.environ


def raise_of_a_file(args, ctx):
    raise OSError("bad file: \udcff.csv")  # as `os.fsdecode` reads a name that is no UTF-8


# ---- remote addresses ----------------------------------------------------------------------------------------------


@pytest.mark.back_ends("standalone")
def test_tensorflow_writes_and_reads_an_address_that_it_does_not_know(run, tmp_path):
    def write(args, ctx):
        import tensorflow as tf

        with tf.io.gfile.GFile(f"{args}/{ctx.worker_num}", "w") as file:
            file.write(ctx.node)
        return tf.io.gfile.GFile(f"{args}/{ctx.worker_num}").read()

    results = run(write, f"local://{tmp_path}").wait()
    assert {node: node for node in results} == dict(results)
    assert [(tmp_path / str(rank)).read_text() for rank in range(len(results))] == list(results)


@pytest.mark.back_ends("local")
def test_a_store_that_is_gone_is_the_failure_of_the_node_that_met_it(run):
    def read(args, ctx):
        import tensorflow as tf

        if ctx.is_chief:
            ctx.wait_for_training(60)
        return tf.io.gfile.GFile("hdfs://127.0.0.1:1/data").read()

    with pytest.raises(NodeFailed) as caught:
        run(read).wait()
    assert caught.value.node == "worker:0"
    assert caught.value.message.startswith("hdfs://127.0.0.1:1/data: ")


# ---- failure ------------------------------------------------------------------------------------------------------


@pytest.mark.back_ends("inline", "yarn")  # for the others see the_function_raises in tests/faults/table.py
def test_an_exception_is_raised_with_its_line_and_the_next_cluster_runs(run, spark, back_end):
    last = min(2, back_end.ranks) - 1

    def map_fun(args, ctx):
        if ctx.worker_num == args:
            raise LookupError(f"no such label on {ctx.node}")
        if not ctx.wait_for_training(60):
            raise AssertionError("nobody stopped this node")

    with pytest.raises((NodeFailed, LookupError)) as caught:
        run(map_fun, last).wait(timeout=120)
    cluster = tfos_lab.clusters()[-1]
    error = cluster.failure()
    node = ("chief:0", "worker:0")[last]
    assert (error.node, error.kind, error.message) == (node, "LookupError", f"no such label on {node}")
    told = getattr(caught.value, "traceback", None) or "".join(traceback.format_exception(caught.value))
    assert f'File "{__file__}", line' in told
    assert 'raise LookupError(f"no such label on {ctx.node}")' in told
    assert cluster.state == "failed"

    assert spark is None or spark.range(3).count() == 3
    assert set(run(lambda: "next").wait().values()) == {"next"}


def test_a_wait_may_time_out_and_stop_ends_every_process_and_may_be_called_twice(run, back_end):
    begun = []
    cluster = run(lambda args, ctx: begun.append(1) or threading.Event().wait(60))
    processes = [psutil.Process(node.pid) for node in cluster.nodes if node.pid not in (0, os.getpid())]
    assert len(processes) == (0 if back_end.is_inline else len(cluster.nodes))
    if not back_end.is_inline:  # there, a function runs while it is waited for
        with pytest.raises(WaitTimeout, match=r"after 0\.3 s still running: chief:0, worker:0"):
            cluster.wait(timeout=0.3)
        assert cluster.state == "running"
        eventually(lambda: all(node.activity and node.activity.memory_bytes for node in cluster.nodes))
    cluster.stop(grace=1.0)
    assert gone(processes)
    assert cluster.state == "stopped"
    if not back_end.is_inline:
        assert all(node.activity.memory_bytes for node in cluster.nodes), "not those of processes that have gone"
    cluster.stop()
    with pytest.raises(ClusterEnded, match="is stopped"):
        cluster.wait()
    assert begun == []


@pytest.mark.back_ends("local-session", "connect")
def test_paths_are_those_of_sparks_own_file_system(run, spark):
    def where(args, ctx):
        default = ctx.defaultFS
        ctx.defaultFS = "hdfs://nn"
        return default, ctx.absolute_path("file:/data/x"), ctx.absolute_path("/data/x"), ctx.absolute_path("x")

    home = f"hdfs://nn/user/{getpass.getuser()}/x"
    assert set(run(where).wait(timeout=100).values()) == {("file:///", "file:///data/x", "hdfs://nn/data/x", home)}
