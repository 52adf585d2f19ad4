"""Dynamic allocation on Kubernetes, where pods do not come."""

import pytest

from tests.support.kube import unschedulable
from tfos_lab.errors import ReservationTimeout

pytestmark = pytest.mark.leaves_nothing


@pytest.fixture(scope="module")
def session(kube, open_session):
    """A session without pods; those that it asks for find no host."""
    kube.why_pending = lambda pod: unschedulable("no host")
    return open_session("## Dynamic allocation")


def test_the_wait_for_pods_that_do_not_come_is_limited_and_explained(kube, session, run):
    with pytest.raises(ReservationTimeout) as error:
        run(lambda: None, cluster_size=2, start_timeout=6)
    assert error.value.missing == ["chief:0", "worker:0"]
    assert str(error.value).startswith("0 of 2 nodes reserved within 6 s; missing: chief:0, worker:0. Spark has ")
    assert "and Kubernetes has started 0 executors so far (why others wait: kubectl -n " in str(error.value)
