"""Failures on a real Spark cluster: killed nodes, executors and kernels, and executors that cannot run nodes."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import venv
from pathlib import Path

import numpy as np
import psutil
import pytest

import tfos_lab
from tests.misfortune.conftest import Family, environment_of_a_kernel, failure_of, gone, wait_forever
from tests.support.quick import QUICK_ENV
from tfos_lab.core.processes import command_line
from tfos_lab.data.tfrecords.tables import read_tfrecords, write_tfrecords
from tfos_lab.engine.spark import session as spark_session
from tfos_lab.errors import ClusterEnded, ExecutorMismatch, NodeFailed, RecordError

pytestmark = pytest.mark.leaves_nothing


@pytest.fixture(params=["standalone"])
def spark_mode(request):
    return request.param


def test_a_killed_child_on_an_executor_is_named_and_the_next_cluster_runs(run, spark, next_cluster_runs):
    cluster = run(wait_forever)
    family = Family.of(cluster)
    family.children[1].kill()
    error = failure_of(cluster)
    assert (error.node, error.kind) == ("worker:0", "Exited")
    assert family.all_gone()
    next_cluster_runs()


def test_a_killed_agent_on_an_executor_is_a_lost_node(run, spark, next_cluster_runs):
    cluster = run(wait_forever)
    family = Family.of(cluster)
    family.agents[1].kill()
    error = failure_of(cluster)
    assert (error.node, error.kind) == ("worker:0", "Lost")
    assert family.all_gone()
    next_cluster_runs()


def test_a_stopped_agent_on_an_executor_is_a_lost_node_and_leaves_nothing(run, spark, next_cluster_runs):
    cluster = run(wait_forever)
    family = Family.of(cluster)
    family.agents[1].suspend()
    error = failure_of(cluster)
    assert (error.node, error.kind) == ("worker:0", "Lost")
    cluster.stop()
    assert family.all_gone()
    next_cluster_runs()


def test_what_a_node_on_an_executor_has_started_goes_with_it(run, spark):
    def start_a_daemon(args, ctx):
        command = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as daemon:
            daemon.stdout.readline()
            ctx.report(pid=daemon.pid)
            wait_forever(args, ctx)

    cluster = run(start_a_daemon)
    deadline = time.monotonic() + 60
    while not all("pid" in node.metrics for node in cluster.nodes):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    daemons = [psutil.Process(int(node.metrics["pid"])) for node in cluster.nodes]
    Family.of(cluster).agents[0].kill()
    failure_of(cluster)
    assert gone(daemons)


def test_nodes_outlive_the_parents_of_spark_s_python_workers(new_spark, standalone, standalone_cluster):
    session = new_spark(standalone)  # idle Python workers are killed too, and shared sessions may use them
    with tfos_lab.run(wait_forever, spark=session, cluster_size=2, env=QUICK_ENV, grace_s=1.0) as cluster:
        family = Family.of(cluster)
        # Spark does this itself when a task is interrupted while its worker is being forked.
        daemons = [child for executor in _executors_of(standalone_cluster) for child in executor.children()]
        assert daemons
        for daemon in daemons:
            daemon.terminate()
        assert gone(daemons)
        assert session.range(10).count() == 10
        assert cluster.state == "running"
    assert family.all_gone()


def test_a_killed_executor_is_a_lost_node_and_its_processes_end_too(run, spark, standalone_cluster, next_cluster_runs):
    await_slots(spark, 4)
    cluster = run(wait_forever, cluster_size=4)
    family = Family.of(cluster)
    victims = _executors_of(standalone_cluster)
    assert len(victims) == 2
    victims[0].kill()
    error = failure_of(cluster)
    assert error.kind == "Lost", str(error)
    assert "(executor " in error.message
    cluster.stop()
    assert family.all_gone()
    assert spark.range(10).count() == 10
    next_cluster_runs()


def test_a_killed_executor_is_reported_at_once_with_spark_s_reason_though_the_nodes_hold_no_task(
    run, spark, standalone_cluster, next_cluster_runs
):
    await_slots(spark, 4)
    cluster = run(wait_forever, cluster_size=4)
    cluster.train(spark.range(10))  # the nodes have returned their slots
    victim = _executors_of(standalone_cluster)[0]
    victim.kill()
    error = failure_of(cluster)
    assert error.kind == "Lost"
    assert "is gone: Spark has lost its executor: Command exited with code 137" in error.message
    cluster.stop()
    assert spark.range(10).count() == 10
    next_cluster_runs()


def await_slots(spark, count):
    """Wait until executors that another test has killed are back."""
    deadline = time.monotonic() + 60
    while spark_session.slots_of(spark).free < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _executors_of(standalone_cluster):
    workers = [psutil.Process(worker.pid) for worker in standalone_cluster.workers]
    children = [child for worker in workers for child in worker.children(recursive=True)]
    return [child for child in children if "CoarseGrainedExecutorBackend" in " ".join(command_line(child.pid))]


_KERNEL = """
import json, sys, threading, tfos_lab
from pathlib import Path
from tests.support.quick import QUICK_ENV
from tests.support.spark import spark_session
from tfos_lab.engine.cluster import runtime_of

def map_fun(args, ctx):
    import signal, threading
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Event().wait()

with spark_session(sys.argv[1], Path(sys.argv[2])) as spark:
    options = {"spark": spark, "env": QUICK_ENV}
    slotless = tfos_lab.run(map_fun, cluster_size=2, **options)
    running = tfos_lab.run(map_fun, cluster_size=3, num_ps=1, driver_ps=True, **options)
    # As a feed does when no slot is free.
    runtime_of(slotless).generation.launcher._plan.free_slots()
    runtime_of(slotless).generation.launcher._thread.join()
    clusters = [[cluster.id, [node.pid for node in cluster.nodes]] for cluster in (slotless, running)]
    print(json.dumps(clusters), flush=True)
    threading.Event().wait()
"""


def test_when_the_kernel_is_killed_everything_on_the_executors_ends(spark_sessions, standalone, tmp_path):
    spark_sessions.close()  # its session holds the executors
    command = [sys.executable, "-c", _KERNEL, standalone, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment_of_a_kernel(tmp_path)) as kernel:
        try:
            slotless, running = (Family(*cluster) for cluster in json.loads(kernel.stdout.readline()))
        finally:
            kernel.kill()
    assert gone([*slotless.nodes, *running.nodes, slotless.fork_server, slotless.plain_fork_server])


# ---- executors that cannot run nodes -------------------------------------------------------------------------------


@pytest.fixture
def bare_python(tmp_path):
    """A Python of this version with no packages at all."""
    venv.create(tmp_path / "bare", with_pip=False)
    return tmp_path / "bare" / "bin" / "python"


@pytest.fixture
def lean_python(bare_python):
    """A Python with all packages of this one except TensorFlow."""
    (theirs,) = bare_python.parents[1].glob("lib/python*/site-packages")
    for package in Path(np.__file__).parents[1].iterdir():
        if not package.name.startswith("tensorflow"):
            (theirs / package.name).symlink_to(package)
    return bare_python


@pytest.fixture
def other_python():
    """A Python of another minor version, if this machine has one."""
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    folders = [*Path.home().glob(".pyenv/versions/3.*/bin"), Path("/usr/bin"), Path("/usr/local/bin")]
    for path in sorted(path for folder in folders for path in folder.glob("python3.[0-9]*")):
        minor = path.name.removeprefix("python")
        if minor.replace(".", "").isdigit() and minor != mine and int(minor.split(".")[1]) >= 10:
            return str(path), minor
    return None


@pytest.fixture
def executors_run(spark, monkeypatch):
    """A function that makes the session's executors run another Python."""

    def change(python):
        monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))

    return change


def test_executors_without_tensorflow_are_named(run, spark, executors_run, lean_python):
    executors_run(lean_python)
    with pytest.raises(ExecutorMismatch) as error:
        run(wait_forever, env={**QUICK_ENV, "TFOS_TEST": "first look"})
    assert error.value.problems == {socket.gethostname(): "lacks tensorflow"}


def test_executors_that_cannot_run_even_spark_s_own_tasks_are_named(run, spark, executors_run, bare_python):
    executors_run(bare_python)
    with pytest.raises(ExecutorMismatch) as error:
        run(wait_forever, env={**QUICK_ENV, "TFOS_TEST": "second look"})
    assert error.value.problems == {"127.0.0.1": "lacks pyarrow"}


def test_executors_of_another_python_version_are_named(run, spark, executors_run, other_python, monkeypatch):
    if other_python is None:
        # Pretend that the notebook has another one: Spark compares this with the executor's version.
        monkeypatch.setattr(spark.sparkContext, "pythonVer", "3.99")
        there = f"{sys.version_info.major}.{sys.version_info.minor}"
    else:
        python, there = other_python
        executors_run(python)
    with pytest.raises(ExecutorMismatch) as error:
        run(wait_forever, env={**QUICK_ENV, "TFOS_TEST": "another look"})
    ((host, what),) = error.value.problems.items()
    assert host == "127.0.0.1"
    assert f"runs Python {there}, the notebook runs" in what


def test_executors_that_change_after_the_first_inspection_are_named_too(run, spark, executors_run, bare_python):
    run(lambda: None).wait()
    executors_run(bare_python)
    with pytest.raises(ExecutorMismatch, match=r"\(127\.0\.0\.1: lacks pyarrow\)"):
        run(wait_forever)


def test_executors_without_that_python_are_named(run, spark, executors_run):
    executors_run("/no/such/python")
    with pytest.raises(ExecutorMismatch, match=r"127\.0\.0\.1: has no /no/such/python"):
        run(wait_forever, env={**QUICK_ENV, "TFOS_TEST": "one more look"})


# ---- the session --------------------------------------------------------------------------------------------------


def test_stopping_the_session_of_a_cluster_ends_the_cluster(new_spark, standalone):
    session = new_spark(standalone)
    cluster = tfos_lab.run(wait_forever, spark=session, cluster_size=2, env=QUICK_ENV, grace_s=1.0)
    family = Family.of(cluster)
    session.stop()
    with pytest.raises((NodeFailed, ClusterEnded)):
        cluster.wait(timeout_s=60)
    assert family.all_gone()
    cluster.stop()


# ---- errors of Spark's tasks --------------------------------------------------------------------------------------


def test_a_damaged_file_fails_its_feed_with_the_error_that_the_executor_raised(run, spark, tmp_path):
    def count(args, ctx):
        return sum(1 for _ in ctx.dataset(8))

    write_tfrecords(spark.range(100).coalesce(1), str(tmp_path / "records"))
    rows = read_tfrecords(spark, str(tmp_path / "records"), "id long")
    (file,) = (tmp_path / "records").glob("part-*")
    file.write_bytes(file.read_bytes()[:-1])
    cluster = run(count, env={})
    with pytest.raises(RecordError, match=rf"{file.name}: the record at byte \d+ .* was cut off"):
        cluster.train(rows)
    assert cluster.state == "failed"
    with pytest.raises(NodeFailed, match="was cut off"):
        cluster.wait(timeout_s=60)


# ---- folders that are not shared ----------------------------------------------------------------------------------


def test_a_model_that_the_notebook_will_not_find_is_reported_before_it_is_saved(run, spark, tmp_path, monkeypatch):
    def save(args, ctx):
        spark_s = Path("stdout").resolve().parent  # the working folder shows what is in Spark's folder for the job
        return [ctx.model_dir(path) for path in (*args, str(spark_s / "deep" / "model.keras"))]

    monkeypatch.chdir(tmp_path)
    # /proc/self/cwd is another folder for each process, as a local path is for each host.
    paths = ["/proc/self/cwd/tfos-model/model.keras", str(tmp_path / "model.keras"), "relative/model.keras"]
    cluster = run(save, paths)
    results = cluster.wait(timeout_s=60)
    *full, relative, spark_s = results["chief:0"]
    assert full == paths[:2]
    assert relative == str(tmp_path / "relative" / "model.keras")
    unseen, vanishing = cluster.view().notes
    advice = (
        "use ctx.save_model or ctx.output_dir to have it here, or give ctx.model_dir the full path of a folder that is "
        "shared"
    )
    host = socket.gethostname()
    assert unseen == f"chief:0 saves to {paths[0]} on {host}, where this machine does not see it: {advice}"
    expected = f"chief:0 saves to {spark_s} on {host}, in Spark's folder for the job, which Spark removes: {advice}"
    assert vanishing == expected
    cluster.stop()
    assert not list(tmp_path.rglob(".tfos-*"))
