"""Clusters on a real YARN, with a real HDFS as Spark's default file system: what is different in its containers.

What is as on every other back end is in `tests/conformance`; whole programs with their files are in `test_programs.py`.
"""

import contextlib
import getpass
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

import tfos_lab
from tests.rigs.yarn import place_on
from tests.support.clusters import running_clusters
from tests.support.eventually import eventually
from tests.support.leftovers import scratch_root
from tests.support.processes import gone
from tests.support.quick import QUICK_ENV
from tests.support.spark_home import spark_environment
from tfos_lab.data import write_tfrecords
from tfos_lab.errors import NodeFailed, NoSession

pytestmark = [
    pytest.mark.leaves_nothing,
    pytest.mark.tensorflow,
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword"),
]

NODES = ["chief:0", "worker:0"]
KINDS = ["parquet", "tfrecords", "csv", "json"]
PATIENCE_S = 60.0


def read_rows(kinds, ctx):
    rows = {kind: [] for kind in kinds}
    for kind in kinds:
        for batch in ctx.dataset(4):
            rows[kind] += batch["x"].numpy()[batch["sample_weight"].numpy() > 0.0].tolist()
    return rows


def wait_for_the_end(args, ctx):
    import threading

    threading.Event().wait()


def whole_tree(pid):
    """Return a process, and all that are below it."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


@pytest.fixture
def numbers(yarn_spark):
    """A DataFrame of the numbers below 50, in partitions of different sizes."""
    return yarn_spark.range(0, 45, 1, 3).union(yarn_spark.range(45, 50, 1, 1)).withColumnRenamed("id", "x")


@pytest.fixture(scope="module")
def on_hdfs(yarn, yarn_spark):
    """The address of files of a column ``x`` with the numbers below 20, in a folder for each format."""
    frame = yarn_spark.range(0, 20, 1, 2).withColumnRenamed("id", "x")
    frame.write.parquet("/data/parquet")
    frame.write.csv("/data/csv", header=True, compression="gzip")
    frame.write.json("/data/json")
    write_tfrecords(frame, "/data/tfrecords")  # as Spark, it finds HDFS where there is no scheme
    return f"{yarn.hdfs}/data"


# ---- nodes ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def survey(yarn, yarn_spark):
    """A cluster whose nodes have looked around in their containers."""

    def look_around(args, ctx):
        import os
        import tempfile

        import tfos_lab

        return {
            "container": os.environ["CONTAINER_ID"],
            "temporary": tempfile.gettempdir(),
            "code": tfos_lab.__file__,
            "local_folders": os.environ["LOCAL_DIRS"].split(","),
            "file_system": ctx.defaultFS,
            "paths": [ctx.absolute_path(path) for path in ("/data/x", "x", "file:/data/x")],
        }

    with running_clusters({"spark": yarn_spark}) as run:
        cluster = run(look_around)
        yield SimpleNamespace(cluster=cluster, results=dict(cluster.wait(PATIENCE_S)))


def test_each_node_is_in_a_container_of_its_own_and_keeps_its_files_on_that_one_s_disks(survey):
    assert sorted(survey.results) == NODES
    assert len({result["container"] for result in survey.results.values()}) == len(NODES)
    assert len({node.executor for node in survey.cluster.nodes if node.executor.isdecimal()}) == len(NODES)
    assert {node.host for node in survey.cluster.nodes} == {socket.gethostname()}
    for result in survey.results.values():
        for place in (result["temporary"], result["code"]):
            assert any(Path(place).is_relative_to(folder) for folder in result["local_folders"])


def test_paths_without_a_scheme_are_on_hdfs(survey, yarn):
    for result in survey.results.values():
        assert result["file_system"] == yarn.hdfs
        home = f"{yarn.hdfs}/user/{getpass.getuser()}"
        assert result["paths"] == [f"{yarn.hdfs}/data/x", f"{home}/x", "file:///data/x"]


def test_the_archive_of_an_environment_is_unpacked_by_yarn_for_all_containers_of_a_host(yarn_spark):
    def unpacked(_):
        import os

        return os.path.realpath("environment"), os.listdir("environment")  # noqa: PTH208 - as users write it

    places = yarn_spark.sparkContext.parallelize(range(2), 2).map(unpacked).collect()
    assert all("/filecache/" in place and names == ["yarn.py"] for place, names in places)


# ---- what is left ---------------------------------------------------------------------------------------------------


def not_there(paths):
    assert not [str(path) for path in paths if path.exists()]
    return True


def fork_servers_of(cluster):
    """Return the sockets of the fork servers that a cluster's nodes are below."""
    parents = [parent.cmdline() for node in cluster.nodes for parent in psutil.Process(node.pid).parents()]
    return {Path(words[words.index("--socket") + 1]) for words in parents if "--socket" in words}


def test_below_tmp_are_sockets_and_locks_only_while_nodes_work_and_nothing_of_them_is_left(run, numbers, tmp_path):
    def train(args, ctx):
        rows = sum(len(batch["x"]) for batch in ctx.dataset(4))
        Path(ctx.output_dir, "model").write_bytes(b"x" * 1_000_000)
        Path("log").write_bytes(b"x" * 1_000_000)
        while not args.exists():
            time.sleep(0.1)
        return rows, os.environ["LOCAL_DIRS"].split(",")

    cluster = run(train, tmp_path / "go", collect="all")
    cluster.train(numbers)
    links = [path for path in scratch_root().iterdir() if path.name.startswith(cluster.id)]
    folders = [path.resolve() for path in links]
    assert [link.is_symlink() for link in links] == [True, True]
    eventually(lambda: all((folder / "work" / "log").exists() for folder in folders))
    for socket_path in fork_servers_of(cluster):
        assert {path.suffix for path in socket_path.parent.iterdir()} <= {".sock", ".lock"}
    (tmp_path / "go").touch()
    results = cluster.wait(PATIENCE_S)
    disks = {disk for _, disks in results.values() for disk in disks}
    assert all(any(folder.is_relative_to(disk) for disk in disks) for folder in folders)
    cluster.stop()
    eventually(lambda: not any(map(os.path.lexists, [*links, *folders])))
    assert not [path for path in scratch_root().iterdir() if path.name.startswith(cluster.id)]
    left = [path for disk in disks for path in Path(disk).glob("tfos_lab-*/*") if cluster.id in path.name]
    assert not left


# ---- HDFS ----------------------------------------------------------------------------------------------------------


def test_nodes_read_their_shares_of_files_on_hdfs_around_spark(run, on_hdfs):
    cluster = run(read_rows, KINDS)
    for kind in KINDS:
        cluster.train(f"{on_hdfs}/{kind}")
    shares = cluster.wait(PATIENCE_S).values()
    assert len(shares) == 2
    for kind in KINDS:
        assert sorted(row for share in shares for row in share[kind]) == list(range(20))


def test_a_task_of_spark_s_own_reads_hdfs_with_tensorflow_after_one_line(yarn_spark, on_hdfs):
    folder = f"{on_hdfs}/tfrecords"

    def count(batches):
        import tensorflow as tf

        import tfos_lab.gfile

        tfos_lab.gfile.register()
        files = tf.data.Dataset.list_files(f"{folder}/part-*")
        records = sum(1 for _ in files.interleave(tf.data.TFRecordDataset))
        for batch in batches:
            yield batch.assign(records=records)

    # In one partition: each of Spark's workers imports TensorFlow.
    rows = yarn_spark.range(0, 2, 1, 1).mapInPandas(count, "id long, records long").collect()
    assert [(row.id, row.records) for row in rows] == [(0, 20), (1, 20)]


# ---- containers -----------------------------------------------------------------------------------------------------


def test_nodes_are_in_containers_where_stop_ends_every_process_of_theirs_and_leaves_the_others(run, yarn, yarn_spark):
    """Also after Spark has replaced the parent of its Python workers."""
    # Here, as nodes import this module, and do not have that one.
    from tests.support.command_line import doctor_finds

    for daemon in [each for each in yarn.container_processes() if "tfos_lab.spark_daemon" in each.cmdline()]:
        with contextlib.suppress(psutil.NoSuchProcess):
            daemon.terminate()  # as Spark does where a task is cancelled while its worker starts
    assert yarn_spark.range(0, 40, 1, 8).mapInArrow(lambda batches: batches, "id long").count() == 40
    cluster = run(wait_for_the_end, env=QUICK_ENV)
    processes = [process for node in cluster.nodes for process in whole_tree(node.pid)]
    inside = yarn.container_processes()
    containers = [process for process in inside if process.name() == "java"]
    assert doctor_finds()["memory"].found == "YARN counts that of nodes as their containers'"
    assert {node.pid for node in cluster.nodes} <= {process.pid for process in inside}
    cluster.stop()
    assert gone(processes)
    assert cluster.state == "stopped"
    # The application master, and two executors.
    assert [process.is_running() for process in containers] == [True] * 3
    # Warm processes stay, and nothing that was forked from them.
    warm = {each.pid for each in yarn.container_processes() if "tfos_lab.node" in " ".join(each.cmdline())}
    assert not {psutil.Process(pid).ppid() for pid in warm} & warm
    assert yarn_spark.range(10).count() == 10


def take_memory(go, ctx):
    """Take more than a container has, on the chief, when a file is there."""
    while not go.exists():
        time.sleep(0.05)
    if ctx.is_chief:
        held = np.ones(5 << 30, np.uint8)
        time.sleep(PATIENCE_S)
        assert held.all()
    time.sleep(PATIENCE_S)


def assert_told_as_memory(message):
    assert re.search(r"physical memory limits. [\d.]+ GB of [\d.]+ GB physical memory used", message)
    assert "spark.executor.memoryOverhead" in message


def test_a_container_that_yarn_kills_for_its_memory_is_told_with_what_helps_and_yarn_brings_another(run, tmp_path):
    cluster = run(take_memory, tmp_path / "go", env=QUICK_ENV)
    victim = cluster.nodes[0]
    processes = [*whole_tree(victim.pid), psutil.Process(victim.pid).parent()]  # the last one is the fork server
    (tmp_path / "go").touch()
    with pytest.raises(NodeFailed) as failed:
        cluster.wait()
    failure = failed.value
    told = f"the node on {victim.host} (executor {victim.executor}) is gone: Spark has lost its executor: Container "
    assert (failure.node, failure.kind) == ("chief:0", "Lost")
    assert failure.message.startswith(told)
    assert_told_as_memory(failure.message)
    assert gone(processes)
    again = run(lambda: "again", env=QUICK_ENV)
    assert victim.executor not in {node.executor for node in again.nodes}
    assert {*again.wait(PATIENCE_S).values()} == {"again"}


# ---- another application --------------------------------------------------------------------------------------------

# It asks for an executor that takes a whole host: as long as this session lives, YARN has no room for it, whoever else
# ends or is replaced meanwhile. It has not been told which Python to run, nor to keep nodes in their container.
ANOTHER = """
import os
import sys
import time

import tfos_lab
from pyspark.sql import SparkSession
from tfos_lab.cli import main

# Without pages: Spark adds YARN's filter to them while it still adds pages, and sometimes fails for it.
builder = SparkSession.builder.master("yarn").config("spark.ui.enabled", "false")
builder.config("spark.executor.instances", "1").config("spark.executor.memoryOverhead", "5632m").getOrCreate()
try:
    tfos_lab.run(lambda: None, cluster_size=1, start_timeout=10)
except tfos_lab.errors.TfosError as error:
    print("given up:", error, flush=True)


def take_memory(args, ctx):
    held = bytearray(b"x") * (6 << 30)
    time.sleep(args)
    return len(held)


try:
    print("limit:", tfos_lab.run(take_memory, PATIENCE_S, cluster_size=1, env=QUICK_ENV).wait())
except tfos_lab.errors.NodeFailed as error:
    print("limit:", error)
os.environ["PYSPARK_PYTHON"] = sys.executable
main(["doctor", "--master", "yarn"])
"""


@pytest.fixture(scope="module")
def killed(yarn, yarn_spark, tmp_path_factory):
    """A cluster whose application is killed while another one waits for room; the session ends with it."""
    folder = tmp_path_factory.mktemp("another")
    place = place_on(yarn)
    assert place.conf.pop("spark.python.daemon.module") == "tfos_lab.spark_daemon"
    place.conf["spark.executorEnv.PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in place.conf.items()))
    env = spark_environment(folder / "local") | place.env
    env |= {"SPARK_CONF_DIR": str(folder), "TFOS_LAB_RUNS": str(folder / "runs")}
    del env["PYSPARK_PYTHON"]
    with running_clusters({"spark": yarn_spark}) as run:
        cluster = run(wait_for_the_end, env=QUICK_ENV)
        cluster.wait_until_running()
        left = [
            *fork_servers_of(cluster),
            *(path.resolve().parents[1] for path in scratch_root().glob(f"{cluster.id}-*")),
        ]
        given = f"PATIENCE_S, QUICK_ENV = {PATIENCE_S}, {QUICK_ENV}\n"
        command, pipe = [sys.executable, "-c", given + ANOTHER], subprocess.PIPE
        with subprocess.Popen(command, env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True) as other:
            try:
                said = []
                for line in other.stdout:
                    said.append(line)
                    if line.startswith("given up:"):
                        yarn.kill(yarn_spark.sparkContext.applicationId)
            finally:
                other.kill()
        yield SimpleNamespace(cluster=cluster, left=left, said="".join(said))


# Drivers start, with their JVMs: beside busy processes, that has taken minutes.
@pytest.mark.timeout(900)
def test_a_run_says_that_yarn_has_not_granted_its_executors(killed):
    granted = r"YARN has granted 0 of 1 executor so far \(if no more come, queue 'default' has no room for them"
    assert re.search(f"waiting for Spark's executors: {granted}", killed.said), killed.said
    assert re.search(f"given up: .*{granted}", killed.said), killed.said
    what = "PYSPARK_PYTHON is not set, so executors will run the first python3 of their PATH"
    assert f"waiting for Spark's executors: {what}" in killed.said, killed.said


def test_without_the_setting_nodes_count_while_the_tasks_run_that_have_started_them(killed):
    limit = next(line for line in killed.said.splitlines() if line.startswith("limit:"))
    assert "chief:0: Lost: " in limit, killed.said
    assert_told_as_memory(limit)


def test_the_doctor_waits_until_yarn_has_granted_executors(killed):
    assert re.search(r"✓ Spark session +yarn, 1 of 1 task slot free", killed.said), killed.said
    assert "YARN counts that of nodes while the task lives that has started them" in killed.said


def test_an_application_that_is_killed_is_named_and_the_next_run_does_not_move_to_this_machine(killed, yarn_spark):
    named = f"YARN has ended it: Application {yarn_spark.sparkContext.applicationId} was killed by user"
    with pytest.raises(NodeFailed, match=named):
        killed.cluster.wait(PATIENCE_S)
    with pytest.raises(NoSession, match=rf"{named}.*\. End it with spark\.stop\(\), and make another"):
        tfos_lab.run(lambda: None, cluster_size=2)
    # Nothing of its nodes is left on this machine.
    assert len(killed.left) > 2
    eventually(lambda: not_there(killed.left))
