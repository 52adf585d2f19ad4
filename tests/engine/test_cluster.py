"""The handle that users hold: what it shows on Tab, and that it does what the runtime does."""

from __future__ import annotations

import pytest

from tests.support.fake_nodes import FakeNodes
from tfos_lab.engine.cluster import Cluster, runtime_of
from tfos_lab.errors import NodeFailed

pytestmark = pytest.mark.leaves_nothing

# README and API.md name these; add to them only what users need.
NAMES = {
    "diagnose", "ended", "events", "id", "inference", "logs", "metrics", "model", "model_path", "name", "nodes", "plot",
    "profile", "results", "run_dir", "shutdown", "stacks", "state", "stop", "tensorboard_url", "timings", "train",
    "view", "wait", "wait_until_running",
}  # fmt: skip


def test_tab_shows_what_users_need_and_nothing_else(start):
    cluster = Cluster(start(launch=False))
    assert {name for name in dir(cluster) if not name.startswith("_")} == NAMES


def test_it_shows_what_the_runtime_knows(start, nodes, tmp_path):
    runtime = start(name="mnist")
    cluster = Cluster(runtime)
    assert runtime_of(cluster) is runtime
    cluster.wait_until_running()
    assert repr(cluster) == "<Cluster 'mnist': running, 2/2 nodes, local>"
    assert (cluster.id, cluster.name, cluster.state, cluster.ended) == (runtime.id, "mnist", "running", False)
    assert cluster.run_dir.parent == tmp_path
    assert cluster.tensorboard_url is None
    nodes.end(0, 1)
    nodes.end(1, 2)
    assert dict(cluster.wait(timeout_s=60)) == dict(cluster.results) == {"chief:0": 1, "worker:0": 2}
    assert cluster.timings["done"] >= cluster.timings["running"]
    assert cluster.events == runtime.history.events
    assert list(cluster.metrics.columns) == ["time", "node", "step"]
    assert cluster.logs("chief:0") == ""
    with pytest.raises(KeyError, match="no node 'worker:9' in this cluster; there are chief:0, worker:0"):
        cluster.logs("worker:9")


def test_the_end_of_a_block_stops_it(start):
    with Cluster(start()) as cluster:
        cluster.wait_until_running()
    assert cluster.state == "stopped"


def test_a_shutdown_waits_and_stops_and_may_come_twice(start, nodes):
    cluster = Cluster(start())
    cluster.wait_until_running()
    nodes.end(0)
    nodes.end(1)
    cluster.shutdown(timeout_s=60)
    cluster.shutdown(timeout_s=60)
    assert cluster.state == "done"


def test_a_shutdown_raises_what_went_wrong_and_stops_all_the_same(start, nodes: FakeNodes):
    cluster = Cluster(start())
    cluster.wait_until_running()
    nodes.fail(1)
    with pytest.raises(NodeFailed):
        cluster.shutdown(timeout_s=60)
    cluster.shutdown(timeout_s=60)
    assert cluster.state == "failed"
    assert nodes.listener.closed
