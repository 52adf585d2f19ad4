"""What goes wrong, done on purpose, to real clusters; with a quick TensorFlow their fork servers are warm at once."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

import psutil
import pytest

from tests.support.clusters import running_clusters
from tests.support.quick import QUICK_ENV
from tfos_lab.core.runtime_files import scratch_root
from tfos_lab.errors import NodeFailed

# What is to go goes at once; on a busy machine that takes a while.
PATIENCE_S = 40.0


def wait_forever(args, ctx):
    """What a node does that somebody else has to end."""
    import threading

    threading.Event().wait()


@pytest.fixture(autouse=True)
def _runs_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))


@pytest.fixture
def run(request):
    """``tfos_lab.run`` for two quick nodes: on this machine, or on the session of a test that asks for ``spark``."""
    spark = request.getfixturevalue("spark") if "spark" in request.fixturenames else None
    defaults = {"spark": spark, "local": "false" if spark else "processes", "grace_s": 2.0, "env": QUICK_ENV}
    with running_clusters(defaults) as start:
        yield start


@pytest.fixture
def fails(run):
    """A function that runs a cluster to its failure; a quick one comes before `run` returns."""

    def start_and_wait(map_fun, args, options):
        return run(map_fun, args, **options).wait(timeout_s=120)

    def prove(map_fun, args=None, **options):
        with pytest.raises(NodeFailed) as caught:
            start_and_wait(map_fun, args, options)
        return caught.value

    return prove


def failure_of(cluster):
    """Wait for the failure of a cluster that runs."""
    with pytest.raises(NodeFailed) as caught:
        cluster.wait(timeout_s=120)
    return caught.value


class Family:
    """The processes of a cluster: each node's agent and child, and the fork servers that they were forked from."""

    def __init__(self, cluster_id, children):
        self.children = [psutil.Process(pid) for pid in children]
        folders = sorted(scratch_root().glob(f"{cluster_id}-*"), key=lambda path: int(path.name.split("-")[-2]))
        self.agents = [psutil.Process(int(path.name.rpartition("-")[2])) for path in folders]
        self.fork_server = self.children[0].parent()
        self.plain_fork_server = self.agents[0].parent()

    @classmethod
    def of(cls, cluster):
        return cls(cluster.id, [node.pid for node in cluster.nodes])

    @property
    def nodes(self):
        return [*self.children, *self.agents]

    def all_gone(self):
        return gone(self.nodes)


def gone(processes, *, within_s=PATIENCE_S):
    """Wait for processes to end; return whether all have."""
    deadline = time.monotonic() + within_s
    alive = list(processes)
    while alive and time.monotonic() < deadline:
        alive = [process for process in alive if _lives(process)]
        select.select([], [], [], 0.02 if alive else 0)
    return not alive


def _lives(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def next_cluster_runs(run):
    """A function that proves that whatever happened, the next cluster runs."""

    def prove():
        assert set(run(lambda: "next").wait(timeout_s=120).values()) == {"next"}

    return prove


def repository():
    return Path(__file__).parents[2]


def environment_of_a_kernel(folder):
    """What a process needs that plays the notebook's kernel in a test."""
    return {**os.environ, "PYTHONPATH": str(repository()), "TFOS_LAB_RUNS": str(folder)}
