"""Parameter servers on the driver's machine, all other nodes on the executors of a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.misfortune.conftest import Family, failure_of, wait_forever
from tests.support.clusters import running_clusters
from tests.support.quick import QUICK_ENV
from tfos_lab.errors import NotEnoughRoom

pytestmark = pytest.mark.leaves_nothing


@pytest.fixture(params=["standalone"])
def spark_mode(request):
    return request.param


@pytest.fixture
def run(spark, monkeypatch, tmp_path):
    """``tfos_lab.run`` for two parameter servers beside four nodes, which take all slots of the cluster."""
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))
    defaults = {"spark": spark, "cluster_size": 6, "num_ps": 2, "driver_ps": True, "grace_s": 2.0, "env": QUICK_ENV}
    with running_clusters(defaults) as start:
        yield start


def where(args, ctx):
    """Return where this node is, and where it was told that the parameter servers are."""
    import os
    from pathlib import Path

    if ctx.job_name == "ps":
        ctx.wait_for_training()
    return (str(Path.cwd()), ctx.working_dir), ctx.cluster_spec["ps"], ctx.gpus, os.environ.get("CUDA_VISIBLE_DEVICES")


def test_parameter_servers_take_no_slot_and_are_reached_by_the_driver_s_host(run, spark):
    cluster = run(where)
    results = cluster.wait(timeout_s=120)
    by_node = {node.node: node for node in cluster.nodes}
    assert list(by_node) == ["ps:0", "ps:1", "chief:0", "worker:0", "worker:1", "worker:2"]
    assert [by_node[ps].executor for ps in ("ps:0", "ps:1")] == ["this machine"] * 2
    assert all(node.executor.isdigit() for node in cluster.nodes[2:])
    host = spark.conf.get("spark.driver.host")
    assert {address.rpartition(":")[0] for _, spec, _, _ in results.values() for address in spec} == {host}
    (cwd, working_dir), _, gpus, visible = results["ps:0"]
    assert (working_dir, gpus, visible) == (str(Path.cwd()), [], "-1")
    assert len({folders[0] for folders, *_ in results.values()} | {cwd}) == len(results)
    assert cluster.view().launcher == "spark"


def test_they_are_fed_from_slots_that_are_given_back(run, spark):
    def read(args, ctx):
        if ctx.job_name == "ps":
            return ctx.wait_for_training()
        return sum(int((batch["sample_weight"].numpy() > 0).sum()) for batch in ctx.dataset(4))

    with run(read, env={}) as cluster:
        cluster.train(spark.range(40).withColumnRenamed("id", "x"))
        rows = {node: count for node, count in cluster.wait(timeout_s=120).items() if not node.startswith("ps")}
        assert rows == dict.fromkeys(["chief:0", "worker:0", "worker:1", "worker:2"], 10)


@pytest.mark.parametrize(("rank", "node", "kind"), [(0, "ps:0", "Lost"), (3, "worker:0", "Lost")])
def test_a_lost_node_on_either_side_ends_both(run, rank, node, kind):
    cluster = run(wait_forever)
    family = Family.of(cluster)
    family.agents[rank].kill()
    error = failure_of(cluster)
    assert (error.node, error.kind) == (node, kind)
    assert family.all_gone()


def test_after_a_lost_parameter_server_both_sides_start_again(run):
    def return_later(args, ctx):
        import threading

        if ctx.restart == 0:
            threading.Event().wait()
        return ctx.restart

    cluster = run(return_later, restarts=1)
    family = Family.of(cluster)
    family.children[1].kill()
    assert set(cluster.wait(timeout_s=120).values()) == {1}
    assert family.all_gone()
    assert [node.executor for node in cluster.nodes[:2]] == ["this machine"] * 2


def test_more_parameter_servers_than_this_machine_holds_are_refused(run):
    with pytest.raises(NotEnoughRoom, match=r"^num_ps=2000, but this machine has room for .* Ask for num_ps=\d+ or"):
        run(wait_forever, cluster_size=2001, num_ps=2000)
