"""Dynamic allocation on Kubernetes: pods come when there are tasks for them, or do not come."""

from __future__ import annotations

import pytest

from tests.support.kube import unschedulable
from tfos_lab.errors import ReservationTimeout

pytestmark = pytest.mark.leaves_nothing

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def session(kube, open_session):
    """A session without pods; those that it asks for find no host at first."""
    kube.why_pending = lambda pod: unschedulable("no host")
    return open_session("## Dynamic allocation")


def test_the_wait_for_pods_that_do_not_come_is_limited_and_explained(kube, session, run):
    with pytest.raises(ReservationTimeout) as error:
        run(lambda: None, cluster_size=2, start_timeout=6)
    assert error.value.missing == ["chief:0", "worker:0"]
    assert str(error.value).startswith("0 of 2 nodes reserved within 6 s; missing: chief:0, worker:0. Spark has ")
    assert "and Kubernetes has started 0 executors so far (why others wait: kubectl -n " in str(error.value)


def test_pods_come_when_nodes_wait_for_them(kube, session, run):
    kube.why_pending = lambda pod: None
    cluster = run(lambda args, ctx: ctx.node, cluster_size=2)
    assert len({node.executor for node in cluster.nodes}) == 2
    assert sorted(cluster.wait(timeout=PATIENCE_S).values()) == ["chief:0", "worker:0"]
