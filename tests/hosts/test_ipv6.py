"""Hosts that have IPv6 addresses only."""

import pytest

from tests.hosts.functions import answer_rows, meet, take_rows
from tests.hosts.host import HostPlan, firewall

pytestmark = [pytest.mark.minutes, pytest.mark.timeout(600)]

PATIENCE_S = 240
HOSTS = (HostPlan(), HostPlan())
RIG = {"ipv6": True}


def test_nodes_meet_at_their_ipv6_addresses_within_a_range_of_ports(run, rig, monkeypatch):
    monkeypatch.setenv("TFOS_NODE_PORTS", "20000-20019")
    with firewall(*rig.hosts, ports="20000-20019"):
        told = dict(run(meet, cluster_size=4).wait(timeout=PATIENCE_S))
    assert {said["met"] for said in told.values()} == {3}
    addresses = {host.name: f"[{host.address}]" for host in rig.hosts}
    assert {said["at"].rpartition(":")[0] == addresses[said["host"]] for said in told.values()} == {True}


def test_rows_and_answers_travel_over_ipv6(run, session):
    cluster = run(take_rows, cluster_size=2)
    cluster.train(session.sparkContext.parallelize(range(100), 4), objects=True)
    told = dict(cluster.wait(timeout=PATIENCE_S))
    assert sorted(row for said in told.values() for row in said["rows"]) == list(range(100))
    with run(answer_rows, cluster_size=2) as answering:
        answers = answering.inference(session.sparkContext.parallelize(range(200), 4)).collect()
    assert [answer[1] for answer in answers] == [2 * row for row in range(200)]


@pytest.mark.tensorflow
def test_tensorflow_s_nodes_find_one_another(run):
    def add_up(args, ctx):
        import tensorflow as tf

        strategy = ctx.strategy()
        with strategy.scope():
            return float(strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0))))

    assert set(dict(run(add_up, cluster_size=2, env={}).wait(timeout=PATIENCE_S)).values()) == {2.0}
