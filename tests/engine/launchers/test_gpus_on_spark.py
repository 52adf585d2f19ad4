"""Which GPUs nodes on executors get: those that Spark has assigned, else those of the executor's host."""

from __future__ import annotations

import os

import pytest

from tests.support.clusters import running_clusters
from tests.support.fake_gpus import discovery_script, fake_gpus
from tests.support.quick import QUICK_ENV
from tests.support.standalone import standalone_cluster
from tfos_lab.errors import ConfigError, NotEnoughGpus


def see(args, ctx):
    """Return what this node may use."""
    if ctx.job_name == "ps":
        ctx.wait_for_training()
    names = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TF_FORCE_GPU_ALLOW_GROWTH")
    return ctx.gpus, *(os.environ.get(name) for name in names)


def executor_conf(host):
    return {f"spark.executorEnv.{name}": value for name, value in host.items()}


def worker_resources(script):
    return {"spark.worker.resource.gpu.amount": "4", "spark.worker.resource.gpu.discoveryScript": str(script)}


def session_resources():
    return {"spark.executor.resource.gpu.amount": "2", "spark.task.resource.gpu.amount": "1"}


@pytest.fixture(scope="module")
def gpu_cluster(tmp_path_factory):
    """A standalone worker with four cores, and four GPUs that its discovery script finds."""
    folder = tmp_path_factory.mktemp("gpu-cluster")
    script = discovery_script(folder, "4", "5", "6", "7")
    with pytest.MonkeyPatch.context() as environ:
        environ.delenv("CUDA_VISIBLE_DEVICES", raising=False)  # executors inherit it
        with standalone_cluster(folder, workers=1, cores=4, conf=worker_resources(script)) as cluster:
            yield cluster


def start_on(spark, monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))
    spark.range(1).count()  # waits for executors for as long as it takes
    return running_clusters({"spark": spark, "env": QUICK_ENV, "grace_s": 2.0})


def test_spark_s_own_assignment_counts_on_standalone(gpu_cluster, new_spark, monkeypatch, tmp_path):
    spark = new_spark(gpu_cluster.master_url, conf={**session_resources(), "spark.executor.cores": "2"})
    with start_on(spark, monkeypatch, tmp_path) as start:
        found = start(see, cluster_size=4, num_ps=1).wait(timeout_s=120)
        assert found["ps:0"][:2] == ([], "-1"), "Spark has assigned it one, and it does not use it"
        trained = [gpu for node, (gpus, *_) in found.items() if node != "ps:0" for gpu in gpus]
        assert len(set(trained)) == 3
        assert set(trained) < {"4", "5", "6", "7"}
        with pytest.raises(ConfigError, match="gpus=2: Spark assigns 1 to each task"):
            start(see, cluster_size=2, gpus=2)


def test_spark_s_own_assignment_counts_on_a_local_cluster(new_spark, monkeypatch, tmp_path):
    script = discovery_script(tmp_path, "2", "3")
    conf = {**session_resources(), **worker_resources(script), "spark.worker.resource.gpu.amount": "2"}
    spark = new_spark("local-cluster[2,2,1024]", conf=conf)
    with start_on(spark, monkeypatch, tmp_path) as start:
        found = start(see, cluster_size=2, gpus=1).wait(timeout_s=120)
    assert all(len(gpus) == 1 and gpus[0] in ("2", "3") for gpus, *_ in found.values())


def test_executors_deal_out_their_host_s_gpus_where_spark_assigns_none(gpu_cluster, new_spark, monkeypatch, tmp_path):
    host = fake_gpus(tmp_path / "host", 5)
    spark = new_spark(gpu_cluster.master_url, conf={**executor_conf(host), "spark.executor.cores": "2"})
    with start_on(spark, monkeypatch, tmp_path) as start:
        found = start(see, cluster_size=3, eval_node=True).wait(timeout_s=120)
        assert found["evaluator:0"][0] == []
        assert sorted(len(gpus) for gpus, *_ in found.values()) == [0, 2, 2]
        assert len({gpu for gpus, *_ in found.values() for gpu in gpus}) == 4
        with pytest.raises(NotEnoughGpus, match=r"gpus=2, but \S+ has 5 GPUs for 3 nodes\. Ask for fewer GPUs"):
            start(see, cluster_size=3, gpus=2)
