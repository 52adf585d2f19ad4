"""Links between hosts that fail, or are bad: what is survived, and what is told of whom."""

from __future__ import annotations

import time

import pytest

from tests.hosts.functions import answer_rows, take_rows, told_to_end, wait_until_told, work_until_told
from tests.hosts.host import HostPlan
from tests.support.eventually import eventually
from tfos_lab.errors import NodeFailed
from tfos_lab.launchers.spark.slots import slots_of

pytestmark = [pytest.mark.minutes, pytest.mark.timeout(600)]

PATIENCE_S = 240
HOSTS = (HostPlan(), HostPlan())
# Spark itself is to outlive the cuts.
SPARK = {"spark.network.timeout": "300s", "spark.executor.heartbeatInterval": "10s"}
RIG = {"options": {"spark.worker.timeout": "300"}}


@pytest.fixture(autouse=True)
def _all_slots_are_free(session):
    wait_for_all_slots(session)


def wait_for_all_slots(session):
    # After a cut, what Spark's executor has to say comes when TCP tries again, which may take as long as the cut.
    eventually(lambda: slots_of(session).free == 4, PATIENCE_S)


@pytest.mark.parametrize("seconds", [10, 60])
def test_a_cut_of_more_than_a_few_seconds_is_told_with_the_lost_node_and_its_host(run, rig, session, seconds):
    cut = rig.hosts[1]
    with told_to_end(*rig.hosts):
        cluster = run(work_until_told, cluster_size=2)
        with cut.wire.both_ways(cut=True):
            time.sleep(seconds)
            lost_on_h2(cluster)
            eventually(lambda: not rig.hosts[0].nodes(), PATIENCE_S)
        eventually(lambda: not cut.nodes(), PATIENCE_S)
    wait_for_all_slots(session)
    assert dict(run(work_until_told, cluster_size=4).wait(timeout=PATIENCE_S))


def lost_on_h2(cluster):
    with pytest.raises(NodeFailed, match=r"the node on h2 \(executor \d\) is gone: not heard of for \d+ s") as caught:
        cluster.wait(timeout=PATIENCE_S)
    [node] = [view.name for view in cluster.nodes if view.host == "h2"]
    assert caught.value.node == node


def test_short_cuts_are_survived_where_packets_take_long_and_nodes_say_little(run, rig):
    cut, slow = rig.hosts[1], {"delay_s": 0.02}
    with told_to_end(*rig.hosts):
        cluster = run(wait_until_told, cluster_size=4)
        for number in range(8):
            cut.wire.set(to_host=slow, from_host=slow)
            time.sleep(5.0 + number / 8)  # at any moment between two heartbeats
            began = time.monotonic()
            cut.wire.set(to_host={"cut": True}, from_host={"cut": True})
            time.sleep(2)
            cut.wire.set()
            if time.monotonic() - began > 2.5:
                cluster.stop(grace=0.0)
                pytest.skip("this machine is too busy for a cut of 2 s")
    assert sorted(dict(cluster.wait(timeout=PATIENCE_S)).values()) == ["h1", "h1", "h2", "h2"]


@pytest.mark.parametrize("direction", ["to_host", "from_host"])
def test_a_link_that_loses_one_direction_is_told_as_a_cut_is(run, rig, direction):
    with told_to_end(*rig.hosts):
        cluster = run(work_until_told, cluster_size=2)
        with rig.hosts[1].wire.one_way(**{direction: {"cut": True}}):
            lost_on_h2(cluster)
        for host in rig.hosts:
            eventually(lambda host=host: not host.nodes(), PATIENCE_S)


@pytest.mark.parametrize(
    "fault", [{"loss": 0.05}, {"delay_s": 0.1}, {"bits_per_s": 10e6}], ids=["loss", "delay", "slow"]
)
def test_rows_arrive_over_a_bad_link(run, rig, session, fault):
    rows = session.sparkContext.parallelize(range(4000), 8).map(lambda row: (row, b"x" * 500))
    with rig.hosts[1].wire.both_ways(**fault):
        cluster = run(take_rows, cluster_size=4)
        cluster.train(rows, objects=True)
        told = dict(cluster.wait(timeout=PATIENCE_S))
        with run(answer_rows, cluster_size=2) as answering:
            answers = answering.inference(session.sparkContext.parallelize(range(200), 4)).collect()
    assert sorted(row[0] for said in told.values() for row in said["rows"]) == list(range(4000))
    assert {said["host"] for said in told.values()} == {"h1", "h2"}
    assert [answer[1] for answer in answers] == [2 * row for row in range(200)]
