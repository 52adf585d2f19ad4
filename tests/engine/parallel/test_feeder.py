"""What the end of a feed means for the run whose node is fed."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from tfos_lab.engine.parallel.feeder import Feeder
from tfos_lab.errors import ClusterEnded, FeedError

CLUSTER = SimpleNamespace(id="a-run")


def begin(feed):
    feeder = Feeder(feed, CLUSTER)
    feeder.start()
    return feeder


def test_it_has_ended_when_all_rows_are_stored():
    stored = threading.Event()
    feeder = begin(lambda cluster: stored.wait())
    assert not feeder.has_ended(0.01)
    stored.set()
    assert feeder.has_ended(5)


def test_an_error_is_raised_where_the_end_is_waited_for():
    def fail(cluster):
        assert cluster is CLUSTER
        raise FeedError(reason="no such column")

    with pytest.raises(FeedError, match="no such column"):
        begin(fail).has_ended(5)


def test_a_cluster_that_has_ended_wants_no_more_rows():
    def end(cluster):
        raise ClusterEnded(cluster="a", state="done", asked="feed rows")

    assert begin(end).has_ended(5)
