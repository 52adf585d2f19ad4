"""Acted nodes over the real wire, as few as a driver treats like thousands; `make scale` has the thousands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.acted_cluster import ActedCluster
from tests.support.eventually import PATIENCE_S, eventually
from tfos_lab.core import messages as m
from tfos_lab.core.states import NodeState, RunState

pytestmark = pytest.mark.leaves_nothing

NODES = 65
PARTITIONS = 200


@pytest.fixture
def acted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ActedCluster]:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    made = ActedCluster(NODES, tmp_path / "run", processes=1, grace=1.0)
    yield made
    made.close()


def test_a_large_cluster_runs_works_is_fed_and_stops(acted: ActedCluster) -> None:
    cluster = acted.cluster
    cluster.launch()
    cluster.wait_until_running(PATIENCE_S)
    assert all(view.state is NodeState.RUNNING for view in cluster.nodes)

    acted.launcher.order("work")
    eventually(lambda: all((view.step or 0) >= 2 and view.activity is not None for view in cluster.nodes))
    eventually(lambda: all(cluster.files.log(view.name).exists() for view in cluster.nodes))

    head = cluster.head
    state = head.feed_state
    opened = m.FeedOpen(feed=-1, epochs=1, remainder="drop", schema="{}", token="t")
    head.request(lambda _now_s: state.open(opened))
    eventually(lambda: state.current is not None and len(state.current.locations) == NODES)
    feed = state.current
    assert feed is not None
    acted.launcher.order("feed", feed=feed.number, partitions=PARTITIONS, seconds=1)
    eventually(lambda: len(feed.committed) == PARTITIONS)
    head.request(lambda now_s: state.job_done(feed.number, feed.total_rows, PARTITIONS, now_s))
    eventually(lambda: feed.state == "complete")
    assert len(set(feed.rows.values())) == 1
    eventually(lambda: acted.launcher.ask()["commits"] == NODES * PARTITIONS)
    assert sum(event.__class__.__name__ == "FeedProgressed" for event in cluster.history.events) == 1

    cluster.stop(grace=0.0)
    eventually(head.over.is_set)
    assert cluster.state is RunState.STOPPED
    assert {view.state for view in cluster.nodes} == {NodeState.STOPPED}


def test_one_lost_node_of_many_is_named(acted: ActedCluster) -> None:
    cluster = acted.cluster
    cluster.launch()
    cluster.wait_until_running(PATIENCE_S)
    acted.launcher.order("vanish", rank=NODES // 2)
    eventually(lambda: cluster.nodes[NODES // 2].state is NodeState.LOST)
    eventually(cluster.head.over.is_set)
    assert cluster.view().reason.startswith(f"{cluster.nodes[NODES // 2].name}: ")
    assert sum(view.state is NodeState.STOPPED for view in cluster.nodes) == NODES - 1
