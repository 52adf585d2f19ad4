"""Feeds of a cluster that is played by fakes."""

from __future__ import annotations

import pytest

from tests.engine.feed.fakes import FakeCluster, FakeSparkJob
from tfos_lab.engine.feed import job as job_module


@pytest.fixture
def cluster(monkeypatch):
    """A cluster of two nodes, whose Spark jobs are played by their frames."""
    cluster = FakeCluster()

    class Job(FakeSparkJob):
        @property
        def generation(self):
            return cluster.generation

    monkeypatch.setattr(job_module, "SparkJob", Job)
    return cluster
