"""Nodes on executors under settings of Spark that change how tasks run, and parameter servers beside the driver."""

from pathlib import Path

import pytest

import tfos_lab
from tests.support.clusters import running_clusters
from tests.support.findings import findings, leave
from tests.support.quick import QUICK_ENV
from tfos_lab.errors import NotEnoughRoom

pytestmark = pytest.mark.leaves_nothing


# Spark starts a second copy of a task that takes longer than others; a node's task must stay the only one.
_SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
}


def test_nodes_take_several_cores_each_and_are_not_started_twice(new_spark, standalone, tmp_path):
    def stay(folder, ctx):
        import os
        import time
        from pathlib import Path

        (Path(folder) / f"{ctx.node}-{os.getpid()}").touch()
        time.sleep(0.1 if ctx.is_chief else 2.0)
        return os.getpid()

    session = new_spark(standalone, conf={**_SPECULATION, "spark.task.cpus": "2"})
    options = {"spark": session, "cluster_size": 2, "env": QUICK_ENV, "grace": 2.0}
    begun = tmp_path / "begun"
    begun.mkdir()
    with tfos_lab.run(stay, str(begun), **options) as cluster:
        results = cluster.wait(timeout=60)
    assert {path.name for path in begun.iterdir()} == {f"{node}-{pid}" for node, pid in results.items()}
    with pytest.raises(tfos_lab.errors.NotEnoughSlots, match="Spark has 2 free task slots of 2"):
        tfos_lab.run(stay, str(begun), **{**options, "cluster_size": 3})


# ---- parameter servers on the driver's machine -----------------------------------------------------------------------


@pytest.fixture
def run_beside(spark):
    """``tfos_lab.run`` for two parameter servers beside four nodes, which take all slots of the cluster."""
    defaults = {"spark": spark, "cluster_size": 6, "num_ps": 2, "driver_ps": True, "grace": 2.0, "env": QUICK_ENV}
    with running_clusters(defaults) as start:
        yield start


def look_and_read(folder, ctx):
    """Leave where this node is, where it was told that the parameter servers are, and how many rows it was fed."""
    import os
    from pathlib import Path

    rows = 0
    if ctx.job_name != "ps":
        feed = ctx.data_feed()
        while not feed.should_stop():
            rows += len(feed.next_batch(4))
    folders = str(Path.cwd()), ctx.working_dir
    leave(folder, ctx, [folders, ctx.cluster_spec["ps"], ctx.gpus, os.environ.get("CUDA_VISIBLE_DEVICES"), rows])


@pytest.mark.parametrize("spark_mode", ["standalone"])
def test_parameter_servers_take_no_slot_and_the_others_are_fed_from_slots_that_are_given_back(
    run_beside, spark, tmp_path
):
    (tmp_path / "found").mkdir()
    cluster = run_beside(look_and_read, str(tmp_path / "found"))
    cluster.train(spark.range(40))
    cluster.wait(timeout=120)
    found = findings(tmp_path / "found")
    by_node = {node.name: node for node in cluster.nodes}
    assert list(by_node) == ["ps:0", "ps:1", "chief:0", "worker:0", "worker:1", "worker:2"]
    assert {node: rows for node, (*_, rows) in found.items() if rows} == dict.fromkeys([*by_node][2:], 10)
    assert [by_node[ps].executor for ps in ("ps:0", "ps:1")] == ["this machine"] * 2
    assert all(node.executor.isdigit() for node in cluster.nodes[2:])
    host = spark.conf.get("spark.driver.host")
    assert {address.rpartition(":")[0] for _, spec, *_ in found.values() for address in spec} == {host}
    (cwd, working_dir), _, gpus, visible, _ = found["ps:0"]
    assert (working_dir, gpus, visible) == (str(Path.cwd()), [], "-1")
    assert len({folders[0] for folders, *_ in found.values()} | {cwd}) == 6
    assert cluster.view().launcher == "spark"


@pytest.mark.parametrize("spark_mode", ["standalone"])
def test_more_parameter_servers_than_this_machine_holds_are_refused(run_beside):
    with pytest.raises(NotEnoughRoom, match=r"^num_ps=2000, but this machine has room for .* Ask for num_ps=\d+ or"):
        run_beside(look_and_read, cluster_size=2001, num_ps=2000)
