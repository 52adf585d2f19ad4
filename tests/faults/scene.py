"""Where a fault is done: a real cluster, its processes by the names of its nodes, and ways to look for what is left.

Nodes import this module, as they import the table, whose functions they run: it imports little.
"""

import contextlib
import os
import time
from pathlib import Path

import psutil

from tests.support.eventually import PATIENCE_S
from tests.support.leftovers import scratch_root

ROOT = Path(__file__).parents[2]


def wait_forever(args, ctx):
    """What a node does that somebody else has to end."""
    import threading

    threading.Event().wait()


def waits_for(path):
    """Wait on a node for a file that its test makes."""
    while not os.path.exists(path):  # noqa: PTH110 - text or path
        time.sleep(0.02)


class Family:
    """The processes of a cluster: each node's agent and child, and the fork servers that they were forked from."""

    def __init__(self, cluster_id, children):
        self.children = [psutil.Process(pid) for pid in children]
        self.agents = list(agents_of(cluster_id).values())
        self.fork_server = self.children[0].parent()
        self.plain_fork_server = self.agents[0].parent()

    @classmethod
    def of(cls, cluster):
        return cls(cluster.id, [node.pid for node in cluster.nodes])

    @property
    def nodes(self):
        return [*self.children, *self.agents]

    @property
    def all(self):
        return [*self.nodes, self.fork_server, self.plain_fork_server]


def agents_of(cluster_id):
    """Return the agents of a cluster by rank: each has a folder, which is named for it."""
    names = [path.name.rsplit("-", 2)[1:] for path in scratch_root().glob(f"{cluster_id}-*-*")]
    return {rank: psutil.Process(pid) for rank, pid in sorted((int(rank), int(pid)) for rank, pid in names)}


def processes_of_spark(name):
    """Return the processes below this one whose command line has a word."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # nor any zombie
            if name in " ".join(process.cmdline()):
                found.append(process)
    return found


def environment_of_a_kernel(folder):
    """What a process needs that plays the notebook's kernel in a test."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "TFOS_LAB_RUNS": str(folder)}


def executors():
    """Return the JVMs of executors on this machine."""
    return processes_of_spark("CoarseGrainedExecutorBackend")


class Scene:
    """A cluster to which something is done; ``start`` is like ``tfos_lab.run``.

    ``folder`` is for files of the fault's own, and ``close_sessions`` ends the session that tests share.
    """

    def __init__(self, start, folder, *, spark=None, monkeypatch=None, close_sessions=None):
        self._start, self.folder = start, folder
        self.spark, self.monkeypatch, self.close_sessions = spark, monkeypatch, close_sessions
        self.cluster = self.family = None

    def run(self, map_fun=wait_forever, args=None, **options):
        """Start the cluster; note its processes while they are there."""
        self.cluster = self._start(map_fun, args, **options)
        with contextlib.suppress(psutil.NoSuchProcess, IndexError, ValueError):
            self.family = Family.of(self.cluster)
        return self.cluster

    def view(self, node):
        """Return what is known of a node."""
        return next(view for view in self.cluster.nodes if view.name == node)

    def child(self, node):
        """Return the process that runs the function of a node."""
        return psutil.Process(self.view(node).pid)

    def agent(self, node):
        """Return the process that supervises it."""
        rank = [view.name for view in self.cluster.nodes].index(node)
        return agents_of(self.cluster.id)[rank]

    def feed(self, rows, **options):
        """Feed the cluster until it has read all rows."""
        self.cluster.train(rows, **options)
        return self.cluster.wait(timeout=2 * PATIENCE_S)

    def python_workers(self):
        """Return Spark's Python workers: forks of its daemons."""
        forks = processes_of_spark("pyspark.daemon")
        return [process for process in forks if process.ppid() in {fork.pid for fork in forks}]
