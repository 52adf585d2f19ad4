"""Which executor a Python worker belongs to."""

from __future__ import annotations

import os

import pytest

from tfos_lab.core import processes
from tfos_lab.node.spark_task import ExecutorIdentity, executor_identity


@pytest.fixture
def identity_below(monkeypatch):
    """A function that returns the identity which a worker finds below processes of the given pids and commands."""

    def find(*parents):
        pids = [os.getpid(), *(pid for pid, _ in parents), 0]
        above = dict(zip(pids, [*pids[1:], 0], strict=True))
        monkeypatch.setattr(processes, "parent_of", above.__getitem__)
        monkeypatch.setattr(processes, "command_line", dict(parents).__getitem__)
        return executor_identity.__wrapped__()

    return find


JVM = ["/usr/bin/java", "-cp", "x", "org.apache.spark.executor.CoarseGrainedExecutorBackend", "--executor-id", "7", ""]
DAEMON = ["python3", "-m", "pyspark.daemon", ""]


def test_it_is_that_of_the_jvm_above_the_daemon(identity_below):
    assert identity_below((30, DAEMON), (20, JVM), (1, ["/sbin/init", ""])) == ExecutorIdentity(20, "7")


def test_in_a_container_without_an_init_process_the_jvm_is_process_1(identity_below):
    assert identity_below((30, DAEMON), (1, JVM)) == ExecutorIdentity(1, "7")
