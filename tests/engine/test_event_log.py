"""The events that are kept: the last ones, and of a feed to many nodes the newest."""

from __future__ import annotations

from tfos_lab.engine.event_log import EventLog
from tfos_lab.engine.state.events import FeedProgressed, NodeChanged


def fed(feed, partitions, nodes):
    rows = {f"worker:{number}": partitions for number in range(nodes)}
    return FeedProgressed(time_s=1.0, feed=feed, rows=rows, partitions=partitions, size_bytes=1)


def came(number):
    return NodeChanged(time_s=1.0, node=f"worker:{number}", state="running")


def test_the_oldest_goes_first():
    log = EventLog(3)
    for number in range(5):
        log.add(came(number))
    assert log.all == [came(2), came(3), came(4)]


def test_all_progress_of_a_feed_to_a_few_nodes_is_kept():
    log = EventLog(10)
    log.add(fed(0, 1, nodes=2))
    log.add(fed(0, 2, nodes=2))
    assert log.all == [fed(0, 1, nodes=2), fed(0, 2, nodes=2)]


def test_of_a_feed_to_many_nodes_the_newest_is_kept():
    log = EventLog(10)
    for event in (fed(0, 1, nodes=100), came(0), fed(1, 1, nodes=100), fed(0, 2, nodes=100)):
        log.add(event)
    assert log.all == [came(0), fed(1, 1, nodes=100), fed(0, 2, nodes=100)]
