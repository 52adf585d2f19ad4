"""A cluster whose nodes are played by the test: for the tests of orchestration, in milliseconds."""

from __future__ import annotations

import pytest

from tests.support.fake_nodes import FakeNodes, make_runtime


@pytest.fixture
def nodes():
    """The nodes, which a test plays."""
    return FakeNodes()


@pytest.fixture
def start(nodes, tmp_path, monkeypatch):
    """Give a function that makes a runtime of ``nodes``, and launches it unless ``launch=False``."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    runtimes = []

    def start(*, launch=True, **options):
        runtimes.append(make_runtime(tmp_path, nodes, **options))
        if launch:
            runtimes[-1].launch()
        return runtimes[-1]

    yield start
    nodes.deaf.clear()
    for runtime in runtimes:
        runtime.stop(grace_s=0.0)
        runtime.close()
