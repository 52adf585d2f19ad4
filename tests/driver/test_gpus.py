"""Which GPUs each node gets on this machine and on executors, and what is said where there are too few."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

import tfos_lab
from tests.support.clusters import running_clusters
from tests.support.fake_gpus import discovery_script, fake_gpus
from tests.support.findings import findings, leave
from tests.support.quick import QUICK_ENV
from tests.support.standalone import standalone_cluster
from tfos_lab.errors import ConfigError, NotEnoughGpus


@pytest.fixture
def host(monkeypatch, tmp_path):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    environ = fake_gpus(tmp_path / "host", 4)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return environ


@pytest.fixture
def run(host):
    with running_clusters({"local": "processes", "env": QUICK_ENV, "grace": 2.0}) as start:
        yield start


@pytest.fixture
def found_in(tmp_path):
    folder = tmp_path / "found"
    folder.mkdir()
    return folder


def see(args, ctx):
    """Return what this node may use; with `args`, leave it in this folder, for nodes that are not waited for."""
    names = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TF_FORCE_GPU_ALLOW_GROWTH")
    found = ctx.gpus, *(os.environ.get(name) for name in names)
    if args:
        leave(args, ctx, found)
    return found


def wait(args, ctx):
    import time

    time.sleep(600)


# ---- on this machine ------------------------------------------------------------------------------------------------


def test_each_node_has_its_own_and_the_table_shows_them(run, found_in):
    cluster = run(see, str(found_in), cluster_size=4, num_ps=1, evaluator=True)
    cluster.wait(timeout=60)
    found = findings(found_in)
    assert found["ps:0"][:2] == found["evaluator:0"][:2] == [[], "-1"]
    assert sorted([*found["chief:0"][0], *found["worker:0"][0]]) == ["0", "1", "2", "3"]
    for gpus, visible, order, growth in (found["chief:0"], found["worker:0"]):
        assert (visible, order, growth) == (",".join(gpus), "PCI_BUS_ID", "true")
    assert {node.name: list(node.gpus) for node in cluster.nodes} == {node: gpus for node, (gpus, *_) in found.items()}


def test_a_user_s_own_settings_are_left_alone(run):
    env = {**QUICK_ENV, "TF_FORCE_GPU_ALLOW_GROWTH": "false", "CUDA_VISIBLE_DEVICES": "3"}
    found = run(see, cluster_size=2, env=env).wait(timeout=60)
    assert list(found.values()) == [(["3"], "3", None, "false")] * 2


def test_clusters_at_the_same_time_get_different_ones(run):
    first = run(wait, cluster_size=2, gpus=1)
    second = run(see, cluster_size=2, gpus=1)
    gpus = [gpu for cluster in (first, second) for node in cluster.nodes for gpu in node.gpus]
    assert sorted(gpus) == ["0", "1", "2", "3"]
    second.wait(timeout=60)
    with pytest.raises(NotEnoughGpus, match=r"gpus=3, but \S+ has 4 GPUs for 1 node, 2 of them taken by others\. Ask"):
        run(see, cluster_size=1, gpus=3)
    first.stop(grace=0.0)
    assert run(see, cluster_size=1, gpus=4).wait(timeout=60)["chief:0"][0] == ["0", "1", "2", "3"]


def test_nodes_that_get_none_of_what_there_is_are_named_in_a_note(run, monkeypatch, tmp_path):
    for name, value in fake_gpus(tmp_path / "small", 1).items():
        monkeypatch.setenv(name, value)
    cluster = run(see, cluster_size=2)
    assert [gpus for gpus, *_ in cluster.wait(timeout=60).values()] == [[], []]
    assert any(note.startswith("no GPU was left for chief:0, worker:0 (") for note in cluster.view().notes)
    assert [gpus for gpus, visible, *_ in run(see, gpus="all").wait(timeout=60).values()] == [[], []]


def occupy(args, ctx):
    """Fail if another run has one of the GPUs at the same time."""
    import time
    from pathlib import Path

    folder, seconds = args
    taken = [Path(folder) / gpu for gpu in ctx.gpus]
    for path in taken:
        path.mkdir()
    time.sleep(seconds)
    for path in taken:
        path.rmdir()
    return len(taken)


def test_independent_runs_take_turns_on_the_gpus(host, tmp_path):
    options = {"local": "processes", "env": QUICK_ENV}
    assert list(tfos_lab.parallel(occupy, [(str(tmp_path), 0.2)] * 3, gpus=2, slots=3, **options)) == [2] * 3
    assert next(iter(tfos_lab.parallel(see, [None], **options)))[:2] == ([], None), "all see all"


def test_runs_of_two_callers_wait_for_one_another_s_gpus(host, tmp_path):
    options = {"local": "processes", "env": QUICK_ENV, "gpus": 4, "retries": 0}
    held = str(tmp_path), 3.5  # longer than an agent waits for GPUs whose node has just ended

    def call(name):
        return list(tfos_lab.parallel(occupy, [held], name=name, **options))

    with ThreadPoolExecutor() as pool:
        assert list(pool.map(call, ("first", "second"))) == [[4], [4]]


@pytest.mark.parametrize(
    ("options", "gpus"),
    [({"cluster_size": 3}, [1, 1, 1]), ({"cluster_size": 2, "gpus": 0}, [0, 0])],
    ids=["divided", "none"],
)
def test_gpus_are_divided_evenly_and_none_is_given_twice(run, options, gpus):
    assert [len(found[0]) for found in run(see, **options).wait(timeout=60).values()] == gpus


# ---- what TensorFlow's import touches --------------------------------------------------------------------------------


# Writes down when it is loaded and initialised, and what it would see then; then says that there is no device.
DRIVER = """
#include <stdio.h>
#include <stdlib.h>
static void note(const char *what) {
  FILE *file = fopen(getenv("FAKE_CUDA_LOG"), "a");
  const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *growth = getenv("TF_FORCE_GPU_ALLOW_GROWTH");
  fprintf(file, "%s: %s, %s\\n", what, visible ? visible : "unset", growth ? growth : "unset");
  fclose(file);
}
__attribute__((constructor)) static void loaded(void) { note("loaded"); }
int cuInit(unsigned flags) { note("initialised"); return 100; }
"""


def look(args, ctx):
    import tensorflow as tf

    return len(tf.config.list_physical_devices("GPU"))


@pytest.mark.tensorflow
@pytest.mark.skipif(shutil.which("cc") is None, reason="a pretended driver has to be compiled")
def test_the_driver_is_asked_for_the_node_s_gpus_only(monkeypatch, tmp_path):
    (tmp_path / "driver.c").write_text(DRIVER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", tmp_path / "driver.c"], check=True)
    log = tmp_path / "log"
    env = {"LD_LIBRARY_PATH": str(tmp_path), "FAKE_CUDA_LOG": str(log)}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in fake_gpus(tmp_path / "host", 2).items():
        monkeypatch.setenv(name, value)
    with tfos_lab.run(look, cluster_size=1, gpus=1, local="processes", env=env) as cluster:
        assert dict(cluster.wait(timeout=120)) == {"chief:0": 0}
    assert log.read_text().splitlines() == ["loaded: 0, true", "initialised: 0, true"]


# ---- on Spark --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpu_cluster(tmp_path_factory):
    """A standalone worker with four cores, and four GPUs that its discovery script finds."""
    folder = tmp_path_factory.mktemp("gpu-cluster")
    script = str(discovery_script(folder, "4", "5", "6", "7"))
    conf = {"spark.worker.resource.gpu.amount": "4", "spark.worker.resource.gpu.discoveryScript": script}
    with pytest.MonkeyPatch.context() as environ:
        environ.delenv("CUDA_VISIBLE_DEVICES", raising=False)  # executors inherit it
        with standalone_cluster(folder, workers=1, cores=4, conf=conf) as cluster:
            yield cluster


def start_on(spark):
    spark.range(1).count()  # waits for executors for as long as it takes
    return running_clusters({"spark": spark, "env": QUICK_ENV, "grace": 2.0})


def test_spark_s_own_assignment_counts_on_standalone(gpu_cluster, new_spark, found_in):
    conf = {"spark.executor.resource.gpu.amount": "4", "spark.task.resource.gpu.amount": "1"}
    spark = new_spark(gpu_cluster.master_url, conf={**conf, "spark.executor.cores": "4"})
    with start_on(spark) as start:
        start(see, str(found_in), cluster_size=4, num_ps=1).wait(timeout=120)
        found = findings(found_in)
        assert found["ps:0"][:2] == [[], "-1"], "Spark has assigned it one, and it does not use it"
        trained = [gpu for node, (gpus, *_) in found.items() if node != "ps:0" for gpu in gpus]
        assert len(set(trained)) == 3
        assert set(trained) < {"4", "5", "6", "7"}
        with pytest.raises(ConfigError, match="gpus=2: Spark assigns 1 to each task"):
            start(see, cluster_size=2, gpus=2)


def test_executors_deal_out_their_host_s_gpus_where_spark_assigns_none(gpu_cluster, new_spark, tmp_path, found_in):
    conf = {f"spark.executorEnv.{name}": value for name, value in fake_gpus(tmp_path / "host", 5).items()}
    spark = new_spark(gpu_cluster.master_url, conf={**conf, "spark.executor.cores": "2"})
    with start_on(spark) as start:
        start(see, str(found_in), cluster_size=3, evaluator=True).wait(timeout=120)
        found = findings(found_in)
        assert found["evaluator:0"][0] == []
        assert sorted(len(gpus) for gpus, *_ in found.values()) == [0, 2, 2]
        assert len({gpu for gpus, *_ in found.values() for gpu in gpus}) == 4
        with pytest.raises(NotEnoughGpus, match=r"gpus=2, but \S+ has 5 GPUs for 3 nodes\. Ask for fewer GPUs"):
            start(see, cluster_size=3, gpus=2)
