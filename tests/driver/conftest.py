"""Folders of each test's own, and a cluster whose nodes the test plays: for orchestration, in milliseconds."""

import pytest

from tests.support.fake_nodes import FakeNodes, make_cluster


@pytest.fixture(autouse=True)
def _folders(tmp_path, monkeypatch):
    """Where runs are, and what other processes are told of them."""
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))


@pytest.fixture
def nodes():
    return FakeNodes()


@pytest.fixture
def start(nodes, tmp_path):
    """Give a function that makes a cluster of ``nodes``, and launches it unless ``launch=False``."""
    clusters = []

    def start(*, launch=True, **options):
        clusters.append(make_cluster(tmp_path, nodes, **options))
        if launch:
            clusters[-1].launch()
        return clusters[-1]

    yield start
    nodes.deaf.clear()
    for cluster in clusters:
        cluster.stop(grace=0.0)
        cluster.close()
