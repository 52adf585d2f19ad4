"""What is logged to MLflow: a small module of the same names takes its place."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from tests.support.fake_nodes import until
from tfos_lab import messages as m
from tfos_lab.engine.record import mlflow as ours

pytestmark = pytest.mark.leaves_nothing


class Metric(NamedTuple):
    key: str
    value: float
    timestamp: int
    step: int


class Pair(NamedTuple):
    key: str
    value: str


class FakeMlflow:
    """MLflow's module with one run, and the tracking server behind it."""

    def __init__(self):
        self.entities = SimpleNamespace(Metric=Metric, Param=Pair, RunTag=Pair)
        self.active = SimpleNamespace(info=SimpleNamespace(run_id=f"run-{id(self)}"))
        self.metrics, self.params, self.tags = [], {}, {}
        self.error = None

    def active_run(self):
        return self.active

    def get_tracking_uri(self):
        return "memory"

    def MlflowClient(self, *, tracking_uri):  # noqa: N802 - MLflow's own name
        assert tracking_uri == "memory"
        return self

    def log_batch(self, run_id, metrics=(), params=(), tags=()):
        assert run_id == self.active.info.run_id
        assert threading.current_thread().name == "tfos-mlflow"
        assert len(params) <= 100
        assert len(metrics) <= 1000
        if self.error is not None:
            raise self.error
        self.metrics += metrics
        self.params |= dict(params)
        self.tags |= dict(tags)


@pytest.fixture
def mlflow(monkeypatch):
    fake = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    return fake


def finish(cluster, nodes):
    nodes.end(0)
    nodes.end(1)
    cluster.wait(timeout_s=60)
    cluster.stop()


def report(rank, step, **metrics):
    return m.Reported(rank=rank, step=step, total_steps=10, metrics=metrics, time_s=1000.0)


def test_options_metrics_and_tags_are_logged_to_the_active_run(mlflow, start, nodes):
    cluster = start(name="mnist", restarts=1, env={"SECRET": "hunter2"})
    cluster.wait_until_running()
    for step in range(3):
        nodes.send(report(0, step, loss=1.0))
    nodes.send(report(1, 2, loss=0.5))
    until(lambda: cluster.reports_after()[1] == 4)
    finish(cluster, nodes)
    asked = {"name": "mnist", "restarts": "1", "cluster_size": "2", "env": "['SECRET']", "grace_s": "1.0"}
    assert mlflow.params == asked
    assert [(one.key, one.value, one.step) for one in mlflow.metrics] == [
        ("loss", 1.0, 0), ("loss", 1.0, 1), ("loss", 1.0, 2), ("worker-0/loss", 0.5, 2),
    ]  # fmt: skip
    assert mlflow.metrics[0].timestamp == 1_000_000
    assert mlflow.tags["tfos_lab.run"] == cluster.id
    assert mlflow.tags["tfos_lab.run_dir"] == str(cluster.run_dir)
    assert mlflow.tags["tfos_lab.outcome"] == "done"


def test_metrics_are_logged_while_the_cluster_runs(mlflow, start, nodes, monkeypatch):
    monkeypatch.setattr(ours, "PERIOD_S", 0.02)
    cluster = start()
    cluster.wait_until_running()
    nodes.send(report(0, 1, loss=1.0))
    until(lambda: mlflow.metrics)
    assert not cluster.ended
    finish(cluster, nodes)


def test_many_reports_are_thinned_and_sent_in_batches(mlflow, start, nodes, monkeypatch):
    monkeypatch.setattr(ours, "_MAX_REPORTS", 20)
    cluster = start()
    cluster.wait_until_running()
    for step in range(95):
        nodes.send(report(0, step, loss=1.0))
    until(lambda: cluster.reports_after()[1] == 95)
    finish(cluster, nodes)
    assert [one.step for one in mlflow.metrics] == list(range(4, 95, 5))


def test_the_second_cluster_of_a_run_has_names_of_its_own(mlflow, start, nodes):
    first = start(name="mnist")
    finish(first, nodes)
    second = start(name="mnist")
    finish(second, nodes)
    assert mlflow.params["cluster_size"] == mlflow.params["mnist-2/cluster_size"] == "2"
    assert mlflow.tags["mnist-2/tfos_lab.run"] == second.id


def test_a_server_that_fails_costs_the_log_and_not_the_run(mlflow, start, nodes):
    mlflow.error = ConnectionError("the tracking server is gone\nmore")
    cluster = start()
    finish(cluster, nodes)
    assert cluster.view().notes == ("not logged to MLflow any more: ConnectionError: the tracking server is gone",)
    assert cluster.state == "done"


@pytest.mark.parametrize("is_active", [True, False])
def test_without_an_active_run_nothing_is_logged(mlflow, start, nodes, is_active, monkeypatch):
    mlflow.active = None
    if is_active:
        monkeypatch.setattr(mlflow, "active_run", lambda: 1 / 0)
    finish(start(), nodes)
    assert not mlflow.params
