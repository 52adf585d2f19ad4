"""A link between hosts that fails for longer than is survived: what is told of whom."""

import pytest

from tests.hosts.functions import told_to_end, work_until_told
from tests.hosts.host import HostPlan
from tests.support.eventually import eventually
from tests.support.spark import wait_for_slots
from tfos_lab.errors import NodeFailed

pytestmark = [pytest.mark.minutes, pytest.mark.timeout(600)]

PATIENCE_S = 240
HOSTS = (HostPlan(), HostPlan())
# Spark itself is to outlive the cuts.
SPARK = {"spark.network.timeout": "300s", "spark.executor.heartbeatInterval": "10s"}
RIG = {"options": {"spark.worker.timeout": "300"}}


@pytest.fixture(autouse=True)
def _all_slots_are_free(session):
    # After a cut, what Spark's executor has to say comes when TCP tries again, which may take as long as the cut.
    wait_for_slots(session, 4)


def test_a_cut_of_more_than_a_few_seconds_is_told_with_the_lost_node_and_its_host(run, rig, session):
    cut = rig.hosts[1]
    with told_to_end(*rig.hosts):
        cluster = run(work_until_told, cluster_size=2)
        with cut.wire.cut():
            lost_on_h2(cluster)
            eventually(lambda: not rig.hosts[0].nodes(), PATIENCE_S)
        eventually(lambda: not cut.nodes(), PATIENCE_S)
    wait_for_slots(session, 4)
    assert dict(run(work_until_told, cluster_size=4).wait(timeout=PATIENCE_S))


def lost_on_h2(cluster):
    with pytest.raises(NodeFailed, match=r"the node on h2 \(executor \d\) is gone: not heard of for \d+ s") as caught:
        cluster.wait(timeout=PATIENCE_S)
    [node] = [view.name for view in cluster.nodes if view.host == "h2"]
    assert caught.value.node == node
