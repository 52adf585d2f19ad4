"""Which launcher a configuration and a session lead to, and how many nodes it takes."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest

from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.launchers import LAUNCHERS
from tfos_lab.engine import start
from tfos_lab.errors import NoSession


@pytest.fixture
def session(monkeypatch):
    """A function that makes the active session one with this master, or None."""

    def set_master(master):
        found = mock.Mock() if master else None
        monkeypatch.setattr("tfos_lab.engine.spark.session.active_session", lambda: found)
        monkeypatch.setattr("tfos_lab.engine.spark.session.master_of", lambda _spark: master)
        return found

    return set_master


@pytest.mark.parametrize(
    ("local", "master", "name"),
    [
        ("auto", "", "local"),
        ("auto", "local[4]", "local"),
        ("auto", "local-cluster[2,1,1500]", "spark"),
        ("auto", "spark://host:7077", "spark"),
        ("processes", "spark://host:7077", "local"),
        ("inline", "spark://host:7077", "inline"),
        ("false", "local[4]", "spark"),
    ],
)
def test_the_launcher_follows_from_the_option_and_the_session(session, local, master, name):
    found = session(master)
    assert start.choose_launcher(ClusterConfig(local=local), None) == (found, LAUNCHERS[name])


def test_to_insist_on_spark_takes_a_session(session):
    session("")
    with pytest.raises(NoSession, match="local=false insists on Spark, but there is no SparkSession"):
        start.choose_launcher(ClusterConfig(local="false"), None)


@pytest.mark.parametrize(
    ("most", "nodes"),
    [
        (None, ["ps:0", "chief:0", "evaluator:0", "worker:0"]),
        (4, ["ps:0", "chief:0", "evaluator:0", "worker:0"]),
        (2, ["chief:0", "worker:0"]),
    ],
)
def test_a_launcher_with_a_limit_takes_a_chief_and_workers(most, nodes):
    config = ClusterConfig(cluster_size=4, num_ps=1, eval_node=True)
    launcher = replace(LAUNCHERS["local"], max_nodes=most)
    assert [spec.node for spec in start._node_specs(config, launcher)] == nodes


def test_inline_takes_a_chief():
    config = ClusterConfig(master_node="master")
    assert [spec.node for spec in start._node_specs(config, LAUNCHERS["inline"])] == ["chief:0"]
