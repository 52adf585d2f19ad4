"""A cluster whose nodes are played by the test: for the tests of orchestration, in milliseconds."""

from __future__ import annotations

import pytest

from tests.support.fake_nodes import FakeNodes, make_cluster


@pytest.fixture
def nodes():
    """The nodes, which a test plays."""
    return FakeNodes()


@pytest.fixture
def start(nodes, tmp_path, monkeypatch):
    """Give a function that makes a cluster of ``nodes``, and launches it unless ``launch=False``."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
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
